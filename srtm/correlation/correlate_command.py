"""`srtm correlate`."""

import json
import logging
import signal
import sys
from pathlib import Path

import click

from srtm.cli.group import LazyGroup
from srtm.correlation.import_command import import_command
from srtm.correlation.need_commands import envelope, statistics, what_if
from srtm.correlation.options import GroupOptions, group_options
from srtm.correlation.propose import propose
from srtm.correlation.report.report_command import report
from srtm.correlation.result import GroupedTopic, Result, read_result
from srtm.correlation.session import spark_session
from srtm.correlation.stream.stream_command import stream
from srtm.text.terminal import Column, Table, printable, show


@click.group("correlate", cls=LazyGroup)
def correlate() -> None:
    """Find which publishers burst together, by Spark, from the traces that gateways write.

    \b
      srtm correlate import FILE --time COLUMN --publisher COLUMN --trace DIR
      srtm correlate run --trace DIR --out DIR
      srtm correlate stream --trace DIR --out DIR
      srtm correlate show DIR
      srtm correlate report DIR
      srtm correlate propose DIR
      srtm correlate envelope --trace DIR
      srtm correlate statistics --trace DIR
      srtm correlate what-if --trace DIR --placement FILE
    """


@correlate.command("run")
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="Folder of srtm gateway --trace-dir, with its subfolders.",
)
@group_options
@click.option(
    "--skip-damaged", is_flag=True, help="Leave out files that cannot be read, and say so."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def run_command(trace: Path, asked: GroupOptions, skip_damaged: bool, as_json: bool) -> None:
    """Find the groups of a trace: publishers whose arrivals coincide beyond chance.

    Under spark-submit the run uses that master; otherwise it uses all cores of this machine.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends Spark, as Ctrl-C does
    with spark_session() as spark:
        from srtm.correlation.run import run
        from srtm.correlation.trace import open_trace

        logging.basicConfig(format="%(message)s", stream=sys.stderr)
        logging.getLogger("srtm.correlation").setLevel("INFO")
        result, left_out = run(spark, asked.request(trace, skip_damaged=skip_damaged))
    for line in left_out:
        click.echo(f"left out: {line}", err=True)
    if not result.topics:
        click.echo(open_trace(trace, skip=True).nothing(), err=True)
    print_result(result, as_json)


for command in (import_command, stream, report, propose, envelope, statistics, what_if):
    correlate.add_command(command)


@correlate.command("show")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--topic", help="Only this topic.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show_command(folder: Path, topic: str | None, as_json: bool) -> None:
    """Show the groups that a run left in DIR. It needs no Spark."""
    print_result(read_result(folder).only(topic), as_json)


def print_result(result: Result, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(result.model_dump(mode="json"), indent=2))
        return
    table = Table(
        Column("topic", text=True),
        Column("group", text=True),
        Column("publishers"),
        Column("lift", rank=2),
        Column("q", rank=2),
        Column("coincidences", rank=1),
        Column("who", text=True, sentence=True, rank=3),
    )
    for topic in result.topics:
        for group in topic.groups:
            table.add(
                topic.topic,
                group.name,
                f"{len(group.publishers):,}",
                f"{group.lift:,.3g}",
                f"{group.q:.1g}",
                f"{group.coincidences:,}",
                _some(group.publishers),
            )
    lines = [_summary(topic) for topic in result.topics]
    show(*([table] if len(table) else []), *(lines or ["no arrivals"]))


def _summary(topic: GroupedTopic) -> str:
    return (
        f"{printable(topic.topic)}: {topic.publishers:,} publishers, {len(topic.groups):,} groups, "
        f"{topic.ungrouped:,} in none"
    )


_SHOWN = 5


def _some(publishers: tuple[str, ...]) -> str:
    more = f" and {len(publishers) - _SHOWN:,} more" if len(publishers) > _SHOWN else ""
    return ", ".join(publishers[:_SHOWN]) + more
