"""`srtm correlate envelope`, `statistics` and `what-if`: what each topic needs."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from srtm.correlation.need_tables import envelope_tables, statistics_tables, what_if_tables
from srtm.correlation.result import read_result
from srtm.errors import UsageError
from srtm.options import parsed
from srtm.slo import SLO
from srtm.terminal import show
from tb_adaptor.share import Part

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Command = Callable[..., None]


def _of_a_trace(command: Command) -> Command:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
        click.option(
            "--skip-damaged", is_flag=True, help="Leave out files that cannot be read, and say so."
        ),
        click.option("--topic", help="This topic alone."),
        click.option(
            "--trace",
            "folder",
            type=click.Path(path_type=Path),
            required=True,
            metavar="DIR",
            help="The folder of srtm gateway --trace-dir.",
        ),
    ):
        command = option(command)
    return command


_slo = click.option(
    "--slo",
    callback=parsed(SLO.parse),
    metavar="P@T",
    help="Say how many are late by it, such as 0.99@5ms.",
)


@contextmanager
def _rows(folder: Path, topic: str | None, skip_damaged: bool) -> "Iterator[DataFrame]":
    """Raises UsageError, UnavailableError without Spark or Java, and SrtmError in one line for what
    Spark does in the block."""
    from srtm.correlation.session import spark_session

    with spark_session() as spark:
        from srtm.correlation.faults import one_line
        from srtm.correlation.trace import open_trace

        trace = open_trace(folder, skip_damaged)
        for fault in trace.faults:
            click.echo(f"left out: {fault}", err=True)
        with one_line(folder):
            rows = trace.frame(spark)
            if topic is not None:
                rows = rows.where(rows.topic == topic)
            if rows.isEmpty():
                raise UsageError(trace.nothing(topic))
            yield rows


def _print(document: dict[str, Any], as_json: bool, tables: Callable[..., list[Any]]) -> None:
    if as_json:
        click.echo(json.dumps(document, indent=2))
        return
    for table in tables(document):
        show(table, "")


@click.command("envelope")
@_of_a_trace
@click.option(
    "--by",
    type=click.Choice(["topic", "broker", "publisher", "group"]),
    default="topic",
    show_default=True,
    help="Whose curves.",
)
@click.option(
    "--groups",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="With --by group: what srtm correlate run left.",
)
@click.option(
    "--headroom",
    type=click.FloatRange(1, min_open=True),
    default=1.1,
    show_default=True,
    help="Rate of the bucket, over the traced one.",
)
@click.option(
    "--percentile",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.99,
    show_default=True,
    help="Share of messages that wait for no token.",
)
@click.option(
    "--most",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="So many, of the biggest bursts.",
)
def envelope(
    folder: Path,
    topic: str | None,
    skip_damaged: bool,
    as_json: bool,
    by: str,
    groups: Path | None,
    headroom: float,
    percentile: float,
    most: int,
) -> None:
    """Show which burst each rate needs: r-b curves.

    \b
      srtm correlate envelope --trace DIR
      srtm correlate envelope --trace DIR --topic sensors --by publisher
      srtm correlate envelope --trace DIR --by group --groups RESULT

    The burst is the smallest with which this share of messages waits for no token in a bucket of
    the given headroom; that of a topic also as it is split over its brokers.
    """
    if (by == "group") != (groups is not None):
        raise UsageError("--by group and --groups DIR go together; srtm correlate run makes DIR")
    with _rows(folder, topic, skip_damaged) as rows:
        from srtm.correlation.envelopes import BY
        from srtm.correlation.needs import envelope_document

        if groups is not None:
            rows = _grouped(rows, groups)
        _print(
            envelope_document(rows, BY[by], headroom, percentile, most), as_json, envelope_tables
        )


def _grouped(rows: "DataFrame", groups: Path) -> "DataFrame":
    """With a column `group`; publishers of none are left out."""
    members = [
        (topic.topic, publisher, group.name)
        for topic in read_result(groups).topics
        for group in topic.groups
        for publisher in group.publishers
    ]
    if not members:
        raise UsageError(f"--groups {groups}: there are no groups in it")
    names = rows.sparkSession.createDataFrame(
        members, "topic string, publisher string, group string"
    )
    return rows.join(names, ["topic", "publisher"])


@click.command("statistics")
@_of_a_trace
@_slo
@click.option(
    "--most",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="So many of those who send most.",
)
def statistics(
    folder: Path, topic: str | None, skip_damaged: bool, as_json: bool, slo: SLO | None, most: int
) -> None:
    """Show each topic's rates, burstiness, day, drift, and who sends most.

    \b
      srtm correlate statistics --trace DIR --slo 0.99@5ms

    Dispersion is the variance of the messages in a window over their mean: 1 for Poisson arrivals,
    less for clocks, more for bursts.
    """
    with _rows(folder, topic, skip_damaged) as rows:
        from srtm.correlation.needs import statistics_document

        target = None if slo is None else slo.target_seconds
        _print(statistics_document(rows, most, target), as_json, statistics_tables)


@click.command("what-if")
@_of_a_trace
@_slo
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Contract: messages/s.")
@click.option("--burst", type=click.FloatRange(1), help="Contract: messages.")
@click.option(
    "--placement",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="CSV with publisher,broker: they are moved there, the others stay.",
)
@click.option(
    "--split",
    type=click.Choice(["proportional", "even"]),
    default="proportional",
    show_default=True,
    help="How the contract is divided over brokers.",
)
def what_if(
    folder: Path,
    topic: str | None,
    skip_damaged: bool,
    as_json: bool,
    slo: SLO | None,
    rate: float | None,
    burst: float | None,
    placement: Path | None,
    split: str,
) -> None:
    """Replay a trace through another placement, split or contract.

    \b
      srtm correlate what-if --trace DIR --topic sensors --rate 1100 --burst 40 --slo 0.99@5ms
      srtm correlate what-if --trace DIR --placement new.csv --split even

    Without a contract each topic gets 1.1 times its rate, and the smallest burst with which 99 % of
    its messages wait for no token in one bucket.
    """
    if (rate is None) != (burst is None):
        raise UsageError("--rate and --burst go together: they are one contract")
    if rate is not None and topic is None:
        raise UsageError("--rate and --burst are those of one topic: name it by --topic")
    with _rows(folder, topic, skip_damaged) as rows:
        from srtm.correlation.bursts import smallest_bursts
        from srtm.correlation.needs import what_if_document
        from srtm.correlation.what_if import read_placement

        moved = {} if placement is None else read_placement(placement)
        if rate is not None and burst is not None:
            contracts = {str(topic): Part(rate, burst)}
        else:
            contracts = {
                row["topic"]: Part(row["rate"], float(row["burst"]))
                for row in smallest_bursts(rows, ["topic"]).collect()
                if row["rate"] > 0
            }
            if not contracts:
                raise UsageError(f"--trace {folder}: all arrivals are at one instant")
        target = None if slo is None else slo.target_seconds
        document = what_if_document(rows, contracts, moved, split == "even", target)
        _print(document, as_json, what_if_tables)
