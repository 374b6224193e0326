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

from srtm.bearer import read_token
from srtm.duration import parse_duration
from srtm.errors import SrtmError, UnavailableError, UsageError
from srtm.http_client import Endpoint
from srtm.load import runner, table
from srtm.load.brokers import Brokers, brokers_of, left_out
from srtm.load.connection import target_of
from srtm.load.follow import Follower
from srtm.load.placement import read_placement, settings_of
from srtm.load.settings import LoadSettings
from srtm.load.trace import read_trace
from srtm.options import parsed
from srtm.slo import SLO
from srtm.terminal import show

_DURATION = parsed(parse_duration)
_SLO = parsed(SLO.parse)
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.option("--topic", default="load", show_default=True, help="Topic to publish to.")
@click.option("--channel", default="load", show_default=True, help="Channel to consume from.")
@click.option(
    "--nsqd-tcp-address",
    "publish_addresses",
    multiple=True,
    metavar="HOST:PORT",
    help="nsqd or gateway to publish to; may be given several times, publishers take them in turn. "
    "Default: the topic's brokers, of which publishers take one after the other; without a "
    "deployment 127.0.0.1:4150.",
)
@click.option(
    "--lookupd-http-address",
    "lookupds",
    multiple=True,
    metavar="HOST:PORT",
    help="nsqlookupd that knows the topic's brokers (several times).",
)
@click.option(
    "--deployment",
    type=click.Path(path_type=Path),
    envvar="SRTM_DEPLOYMENT",
    show_envvar=True,
    help="Data path or file of the `srtm up` that knows them.  [default: ./srtm-data]",
)
@click.option(
    "--consumer-nsqd-tcp-address",
    "consume_addresses",
    multiple=True,
    metavar="HOST:PORT",
    help="nsqd or gateway to consume from (several times). Default: where is published to.",
)
@click.option("--no-consumer", is_flag=True, help="Publish only; no end-to-end latency.")
@click.option(
    "--consumer-buffer",
    is_flag=True,
    help="Consume with nsqd's own output buffer: more throughput, up to 250 ms later.",
)
@click.option("--publishers", default=10, show_default=True, help="Connections that publish.")
@click.option(
    "--rate",
    type=float,
    help="Messages/s of each publisher.  [default: 10, unless --max-speed or --trace]",
)
@click.option(
    "--arrivals",
    type=click.Choice(["poisson", "periodic"]),
    default="poisson",
    show_default=True,
    help="Intended send times: Poisson, or evenly spaced with a random phase.",
)
@click.option(
    "--batch", default=1, show_default=True, help="Messages a publisher sends at one instant."
)
@click.option("--mpub", is_flag=True, help="Send a batch as one MPUB instead of PUBs.")
@click.option(
    "--group-size",
    default=1,
    show_default=True,
    help="Publishers that send at the same instants (a correlation group).",
)
@click.option(
    "--jitter",
    metavar="DURATION",
    callback=_DURATION,
    default="0s",
    show_default=True,
    help="Spread the members of a group evenly over this time.",
)
@click.option(
    "--distributor-address",
    metavar="HOST:PORT",
    help="Load Distributor that has placed TOPIC: its publishers, their rates and groups, each at "
    "its own gateway, wherever they are moved.",
)
@click.option(
    "--distributor-token-file",
    default="",
    metavar="FILE",
    help="File of mode 0600 with the distributor's token.",
)
@click.option("--max-speed", is_flag=True, help="Closed loop: send again at each answer.")
@click.option(
    "--outstanding",
    type=int,
    help="With --max-speed: unanswered PUBs (or MPUBs) of each publisher.  [default: 1]",
)
@click.option(
    "--trace",
    type=_FILE,
    help="CSV with the messages/s of all publishers in its last column, one row a second.",
)
@click.option("--trace-scale", default=1.0, show_default=True, help="Factor on the trace's rates.")
@click.option(
    "--duration",
    metavar="DURATION",
    callback=_DURATION,
    help="How long to send.  [default: 10s, or the whole trace]",
)
@click.option(
    "--warmup",
    metavar="DURATION",
    callback=_DURATION,
    default="0s",
    show_default=True,
    help="Leave out what is intended in this first part of the duration.",
)
@click.option(
    "--drain",
    metavar="DURATION",
    callback=_DURATION,
    default="5s",
    show_default=True,
    help="Longest wait for answers and messages after the last send.",
)
@click.option("--message-size", default=100, show_default=True, help="Bytes of a body, 24 or more.")
@click.option("--seed", default=1, show_default=True, help="Of all random choices.")
@click.option(
    "--slo", callback=_SLO, metavar="P@DURATION", help="Judge end to end, such as 0.99@1ms."
)
@click.option("--strict", is_flag=True, help="Exit with 1 when the SLO is missed.")
@click.option("--histogram", type=_FILE, help="Write the end-to-end percentile distribution (ms).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
@click.pass_context
def load(
    context: click.Context,
    /,
    slo: SLO | None,
    strict: bool,
    histogram: Path | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Publish a load and measure its latency.

    Open loop: messages are sent at their intended times whatever the broker does, and latency
    counts from the intended time to the receipt by a consumer of this process. With --max-speed
    the loop is closed and shows throughput. A topic split over brokers is shown broker by broker.

    \b
    1,000 publishers with 10 msg/s each, a minute, judged:
      srtm load --publishers 1000 --rate 10 --duration 1m --warmup 5s --slo 0.99@1ms
    Throughput:
      srtm load --publishers 50 --outstanding 20 --max-speed
    The publishers of a topic as they are placed:
      srtm load --topic sensors --distributor-address 127.0.0.1:4180
    """
    _require_apart(context)
    found = _brokers(flags)
    settings, follower = _settings(**flags)
    _warn(settings, found)
    if (slo or histogram) and not settings.consume_addresses:
        raise UsageError("--slo and --histogram need a consumer: leave out --no-consumer")
    if strict and slo is None:
        raise UsageError("--strict needs an --slo to judge")
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
    if strict and slo is not None and not result.meets(slo):
        raise SrtmError(f"the SLO {slo} was missed")


_PLACED = {
    "publish_addresses": "--nsqd-tcp-address",
    "lookupds": "--lookupd-http-address",
    "deployment": "--deployment",
    "publishers": "--publishers",
    "rate": "--rate",
    "group_size": "--group-size",
    "max_speed": "--max-speed",
    "trace": "--trace",
}
"""What a placement says"""


def _require_apart(context: click.Context) -> None:
    if context.params["distributor_address"] is None:
        if context.params["distributor_token_file"]:
            raise UsageError("--distributor-token-file goes with --distributor-address")
        return
    for name, flag in _PLACED.items():
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UsageError(f"{flag}: the distributor says it; leave out one of the two")


def _brokers(flags: dict[str, Any]) -> Brokers | None:
    """Those of the topic, which take the place of addresses that are not given; None: the
    distributor knows where its publishers belong. Raises UsageError, UnavailableError."""
    lookupds, deployment = flags.pop("lookupds"), flags.pop("deployment")
    if flags["distributor_address"] is not None:
        return None
    for address in lookupds:
        target_of(address)
    try:
        found = brokers_of(flags["topic"], deployment, lookupds)
    except UnavailableError:
        if not flags["publish_addresses"]:
            raise
        return None
    flags["publish_addresses"] = flags["publish_addresses"] or found.addresses
    return found


def _warn(settings: LoadSettings, found: Brokers | None) -> None:
    """A load on a part of the brokers is late by the whole of the contract's other part."""
    used = {
        settings.publish_addresses[settings.address_index(publisher)]
        for publisher in range(settings.publishers)
    }
    if found is not None and (warning := left_out(settings.topic, found, used)):
        click.echo(f"warning: {warning}", err=True)


def _check_writable(path: Path) -> None:
    """Before the run, not after it."""
    try:
        path.open("ab").close()
    except OSError as error:
        raise UsageError(f"--histogram {path}: {error.strerror}") from None


def _settings(
    *,
    publish_addresses: tuple[str, ...],
    consume_addresses: tuple[str, ...],
    no_consumer: bool,
    consumer_buffer: bool,
    rate: float | None,
    max_speed: bool,
    outstanding: int | None,
    trace: Path | None,
    duration: float | None,
    message_size: int,
    jitter: float,
    warmup: float,
    drain: float,
    distributor_address: str | None,
    distributor_token_file: str,
    **same: Any,
) -> tuple[LoadSettings, Follower | None]:
    if (rate is not None) + max_speed + (trace is not None) > 1:
        raise UsageError("--rate, --max-speed and --trace exclude each other")
    if outstanding is not None and not max_speed:
        raise UsageError("--outstanding goes with --max-speed; a rate is an open loop")
    if no_consumer and consume_addresses:
        raise UsageError("--no-consumer and --consumer-nsqd-tcp-address exclude each other")
    if no_consumer and consumer_buffer:
        raise UsageError("--no-consumer and --consumer-buffer exclude each other")
    placed: dict[str, Any] = {}
    follower = None
    if distributor_address is not None:
        token = read_token(distributor_token_file, "--distributor-token-file")
        endpoint = Endpoint(distributor_address, token)
        everybody = read_placement(endpoint, same["topic"])
        ids, at = [each.id for each in everybody], [each.address for each in everybody]
        follower = Follower(endpoint, same["topic"], ids, at)
        placed = settings_of(everybody)
        publish_addresses = placed["publish_addresses"]
    elif max_speed:
        outstanding = 1 if outstanding is None else outstanding
    elif rate is None and trace is None:
        rate = 10.0
    if duration is None and trace is None:
        duration = 10.0
    same = {**same, "publish_addresses": publish_addresses, **placed}
    settings = LoadSettings(
        consume_addresses=() if no_consumer else consume_addresses or publish_addresses,
        rate_per_second=rate,
        outstanding=outstanding,
        trace=None if trace is None else read_trace(trace),
        duration_seconds=duration,
        message_bytes=message_size,
        low_latency=not consumer_buffer,
        jitter_seconds=jitter,
        warmup_seconds=warmup,
        drain_seconds=drain,
        **same,
    )
    return settings, follower


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
