"""`srtm autoscale watch`, `run`, `explain` and `stop`: on a group that runs."""

import logging
from pathlib import Path

import click

from srtm.autoscaler.live.choice import check_policy
from srtm.cli.looks import count_option, default_count
from srtm.consumer.file import GroupFile
from srtm.consumer.required import require_client
from srtm.consumer.scaled_file import ScaledFile, read_scaled_file
from srtm.options.logs import log_level_option, log_to_stderr
from srtm.text.errors import Exit, UsageError

log = logging.getLogger("srtm.autoscale")

_file = click.argument("file", type=click.Path(dir_okay=False, path_type=Path))


@click.command()
@_file
@click.option(
    "--policy",
    "names",
    multiple=True,
    metavar="NAME",
    help="Show only this policy; may be given more than once. The default is every policy, but of "
    "landau-* only landau-mbfp and the policy of FILE.",
)
@count_option(in_pipe=3)
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each look.")
def watch(file: Path, names: tuple[str, ...], count: int | None, as_json: bool) -> None:
    """Show the group or pool of FILE once an interval, and what each policy would do.

    It shows the rate, lag and consumer of each partition, and the rate that each consumer can
    serve. Nothing is changed: it only reads offsets, members and /stats. It works for any group or
    pool, whatever its consumers are.
    """
    parsed = read_scaled_file(file)
    log_to_stderr("error")
    _watch(parsed, names, file, default_count(3) if count is None else count, as_json)


def _watch(
    parsed: ScaledFile, names: tuple[str, ...], file: Path, count: int, as_json: bool
) -> None:
    if not isinstance(parsed, GroupFile):
        from srtm.autoscaler.pool.watch import watch_pool

        watch_pool(parsed, names, file, count, as_json)
        return
    require_client(parsed, file)
    from srtm.autoscaler.live.watch import watch_group  # librdkafka, an extra

    watch_group(parsed, names, file, count, as_json)


@click.command()
@_file
@click.option("--dry-run", is_flag=True, help="Only show what would be done, as watch does.")
@log_level_option
def run(file: Path, dry_run: bool, log_level: str) -> None:
    """Control the group or pool of FILE: run as many consumers as its SLO needs and assign the
    partitions to them.

    Of several controllers of one group one leads and the others stand by. SIGTERM ends the
    controller; consumers go on as they are until the next controller takes over. /ping, /stats and
    /metrics are at http-address of [controller].
    """
    parsed = read_scaled_file(file)
    check_policy(parsed.group.policy, f"{file}: [group]")
    _refuse_one_port_for_many(parsed, file)
    if dry_run:
        log_to_stderr("error")
        _watch(parsed, (parsed.group.policy,), file, 0, False)
        return
    log_to_stderr(log_level)
    if parsed.announced and parsed.group.policy != "srtm":
        policy = parsed.group.policy
        log.warning("[[announced]] has no effect: policy %s does not follow it, srtm does", policy)
    raise click.exceptions.Exit(_run(parsed, file))


def _refuse_one_port_for_many(parsed: ScaledFile, file: Path) -> None:
    """Raises UsageError."""
    table, executor, most = parsed.consumer, parsed.executor, parsed.group.max
    address = table.http_address if table else None
    if address is not None and executor.kind == "local" and not executor.command and most > 1:
        raise UsageError(
            f"{file}: [consumer]: only one of up to {most} consumers of this machine could listen "
            f"on http-address {address}; leave it out, or give [group] max = 1"
        )


def _run(parsed: ScaledFile, file: Path, dismiss: bool = False) -> int:
    if not isinstance(parsed, GroupFile):
        from srtm.autoscaler.pool.service import run_pool

        return run_pool(parsed, file, dismiss)
    require_client(parsed, file)
    from srtm.autoscaler.live.service import run_group  # librdkafka, an extra

    return run_group(parsed, file, dismiss)


@click.command()
@_file
def stop(file: Path) -> None:
    """End all consumers of the group or pool of FILE, after the batches that they have in hand.

    End its controllers first: a running controller would launch consumers again.
    """
    parsed = read_scaled_file(file)
    log_to_stderr("warn")
    code = _run(parsed, file, dismiss=True)
    if code == Exit.OK:
        click.echo("no consumer is left", err=True)
    raise click.exceptions.Exit(code)


@click.command()
@_file
@click.option(
    "--last",
    default=20,
    show_default=True,
    type=click.IntRange(1, 200),
    help="How many decisions.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON list.")
def explain(file: Path, last: int, as_json: bool) -> None:
    """Show the last decisions for the group or pool of FILE: why each was taken, what moved, and
    for how long it stood still.

    Decisions are read from Kafka, or from the file that a pool's controller keeps, so no controller
    has to run.
    """
    parsed = read_scaled_file(file)
    if not isinstance(parsed, GroupFile):
        from srtm.autoscaler.pool.watch import explain_pool

        explain_pool(parsed, file, last, as_json)
        return
    require_client(parsed, file)
    from srtm.autoscaler.live.explain import explain_group

    explain_group(parsed, last, as_json)
