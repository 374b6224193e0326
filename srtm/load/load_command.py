"""`srtm load`: flags, progress, table or JSON."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from srtm.http.service import distributor_files, service_at
from srtm.load import runner, table
from srtm.load.brokers import Brokers, brokers_of, left_out
from srtm.load.follow import Follower
from srtm.load.options import LoadOptions
from srtm.load.placement import read_placement, settings_of
from srtm.load.settings import LoadSettings
from srtm.load.trace import read_trace
from srtm.nsq.blocking import target_of
from srtm.options.model import add_options, read_options
from srtm.text.errors import SrtmError, UnavailableError, UsageError
from srtm.text.terminal import show


@click.command(context_settings={"auto_envvar_prefix": "SRTM_LOAD"})
@add_options(LoadOptions)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
@click.pass_context
def load(context: click.Context, /, as_json: bool, **_: object) -> None:
    """Publish a load and measure its latency.

    The load is open-loop: messages are sent at their intended times whatever the broker does, and
    latency counts from the intended time to the receipt by a consumer of this process. With
    --max-speed the loop is closed and measures throughput. A topic that is split over brokers is
    shown broker by broker.

    \b
    1,000 publishers with 10 msg/s each, for a minute, judged by an SLO:
      srtm load --publishers 1000 --rate 10 --duration 1m --warmup 5s --slo 0.99@1ms
    Throughput:
      srtm load --publishers 50 --outstanding 20 --max-speed
    The publishers of a topic as they are placed:
      srtm load --topic sensors --distributor-address 127.0.0.1:4180
    """
    options = read_options(LoadOptions, context)
    if options.distributor_address:
        _refuse_what_is_placed(context)
        settings, follower = _placed(options)
    else:
        found = _brokers(options)
        settings, follower = _settings(options, _addresses(options, found)), None
        _warn(settings, found)
    histogram, slo = options.histogram, options.slo
    if histogram is not None:
        _check_writable(histogram)
    with _progress(settings, silent=as_json) as on_progress:
        result = runner.run_load(settings, on_progress, follower)
    if histogram is not None:
        result.total.end_to_end.write_distribution(histogram)
    if as_json:
        click.echo(json.dumps(result.document(slo), indent=2))
    else:
        show(table.render(result, slo))
    if result.problems:
        raise SrtmError("; ".join(result.problems))
    if options.strict and slo is not None and not result.meets(slo):
        raise SrtmError(f"the SLO {slo} was missed")


_PLACED = (
    "nsqd_tcp_address",
    "lookupd_http_address",
    "deployment",
    "publishers",
    "rate",
    "group_size",
    "max_speed",
    "trace",
)
"""What a placement says"""


def _refuse_what_is_placed(context: click.Context) -> None:
    for name in _PLACED:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            flag = "--" + name.replace("_", "-")
            raise UsageError(f"{flag}: the distributor says it; leave out one of the two")


def _brokers(options: LoadOptions) -> Brokers | None:
    """The brokers of the topic; None: nobody tells, and addresses are given. Raises UsageError,
    UnavailableError."""
    for address in options.lookupd_http_address:
        target_of(address)
    try:
        return brokers_of(options.topic, options.deployment, options.lookupd_http_address)
    except UnavailableError:
        if not options.nsqd_tcp_address:
            raise
        return None


def _addresses(options: LoadOptions, found: Brokers | None) -> tuple[str, ...]:
    """The addresses to publish to."""
    return options.nsqd_tcp_address or (() if found is None else found.addresses)


def _warn(settings: LoadSettings, found: Brokers | None) -> None:
    """A load on a part of the brokers is late by the whole of the contract's other part."""
    used = {
        settings.publish_addresses[settings.address_index(publisher)]
        for publisher in range(settings.publishers)
    }
    if found is not None and (warning := left_out(settings.topic, found, used)):
        click.echo(f"warning: {warning}", err=True)


def _check_writable(path: Path) -> None:
    """Check that the file can be written, before the run and not after it. Raises UsageError."""
    try:
        path.open("ab").close()
    except OSError as error:
        raise UsageError(f"--histogram {path}: {error.strerror}") from None


def _placed(options: LoadOptions) -> tuple[LoadSettings, Follower]:
    """The publishers of the placed topic, and who follows their moves."""
    endpoint = service_at(
        options.distributor_address, distributor_files(options), "--distributor-token-file"
    )
    everybody = read_placement(endpoint, options.topic)
    ids, at = [each.id for each in everybody], [each.address for each in everybody]
    follower = Follower(endpoint, options.topic, ids, at)
    placed = settings_of(everybody)
    return _settings(options, placed.pop("publish_addresses"), **placed), follower


def _settings(
    options: LoadOptions, publish_addresses: tuple[str, ...], **placed: Any
) -> LoadSettings:
    rate, outstanding, duration = options.rate, options.outstanding, options.duration
    if options.max_speed:
        outstanding = 1 if outstanding is None else outstanding
    elif rate is None and options.trace is None and not placed:
        rate = 10.0
    if duration is None and options.trace is None:
        duration = 10.0
    consume_addresses = options.consumer_nsqd_tcp_address or publish_addresses
    return LoadSettings(
        topic=options.topic,
        channel=options.channel,
        publish_addresses=publish_addresses,
        consume_addresses=() if options.no_consumer else consume_addresses,
        rate_per_second=rate,
        outstanding=outstanding,
        trace=None if options.trace is None else read_trace(options.trace),
        trace_scale=options.trace_scale,
        arrivals=options.arrivals,
        batch=options.batch,
        mpub=options.mpub,
        jitter_seconds=options.jitter,
        duration_seconds=duration,
        warmup_seconds=options.warmup,
        message_bytes=options.message_size,
        low_latency=not options.consumer_buffer,
        drain_seconds=options.drain,
        seed=options.seed,
        features=options.features("--"),
        **({"publishers": options.publishers, "group_size": options.group_size} | placed),
    )


@contextmanager
def _progress(
    settings: LoadSettings, silent: bool
) -> Iterator[Callable[[runner.Progress], None] | None]:
    """A bar on a terminal, drawn from the loop: a thread would contend for the interpreter."""
    console = Console(stderr=True)
    if silent or not console.is_terminal or not sys.stdout.isatty():
        yield None
        return
    columns = (
        TextColumn("sending"),
        BarColumn(),
        TextColumn("{task.fields[received]:,} received, {task.fields[unanswered]:,} unanswered"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, auto_refresh=False, transient=True) as bar:
        task = bar.add_task("load", total=settings.seconds, received=0, unanswered=0)

        def show(now: runner.Progress) -> None:
            bar.update(
                task, completed=now.seconds, received=now.received, unanswered=now.unanswered
            )
            bar.refresh()

        yield show
