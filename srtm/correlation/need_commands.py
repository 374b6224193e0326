"""`srtm correlate envelope`, `statistics` and `what-if`: what each topic needs."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from srtm.correlation.need_tables import envelope_tables, statistics_tables, what_if_tables
from srtm.correlation.options import (
    EnvelopeOptions,
    StatisticsOptions,
    TraceOptions,
    WhatIfOptions,
)
from srtm.correlation.result import read_result
from srtm.options.model import add_options, read_options
from srtm.text.errors import UsageError
from srtm.text.terminal import show
from tb_adaptor.share import Part

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@contextmanager
def _rows(options: TraceOptions) -> "Iterator[DataFrame]":
    """Raises UsageError, UnavailableError without Spark or Java, and SrtmError in one line for what
    Spark does in the block."""
    from srtm.correlation.session import spark_session

    with spark_session() as spark:
        from srtm.correlation.faults import one_line
        from srtm.correlation.trace import open_trace

        trace = open_trace(options.trace, options.skip_damaged)
        for fault in trace.faults:
            click.echo(f"left out: {fault}", err=True)
        with one_line(options.trace):
            rows = trace.frame(spark)
            if options.topic is not None:
                rows = rows.where(rows.topic == options.topic)
            if rows.isEmpty():
                raise UsageError(trace.nothing(options.topic))
            yield rows


def _print(document: dict[str, Any], as_json: bool, tables: Callable[..., list[Any]]) -> None:
    if as_json:
        click.echo(json.dumps(document, indent=2))
        return
    for table in tables(document):
        show(table, "")


@click.command("envelope", context_settings={"auto_envvar_prefix": "SRTM_CORRELATE_ENVELOPE"})
@add_options(EnvelopeOptions)
@_as_json
@click.pass_context
def envelope(context: click.Context, /, as_json: bool, **_: object) -> None:
    """Show the burst that each rate needs, as r-b curves.

    \b
      srtm correlate envelope --trace DIR
      srtm correlate envelope --trace DIR --topic sensors --by publisher
      srtm correlate envelope --trace DIR --by group --groups RESULT

    The burst is the smallest with which the share --percentile of the messages waits for no token
    in a bucket of the rate of --headroom. For a topic it is also shown as split over its brokers.
    """
    options = read_options(EnvelopeOptions, context)
    with _rows(options) as rows:
        from srtm.correlation.envelopes import BY
        from srtm.correlation.needs import envelope_document

        if options.groups is not None:
            rows = _grouped(rows, options.groups)
        document = envelope_document(
            rows, BY[options.by], options.headroom, options.percentile, options.most
        )
        _print(document, as_json, envelope_tables)


def _grouped(rows: "DataFrame", groups: Path) -> "DataFrame":
    """The rows with a column `group`; publishers of no group are left out."""
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


@click.command("statistics", context_settings={"auto_envvar_prefix": "SRTM_CORRELATE_STATISTICS"})
@add_options(StatisticsOptions)
@_as_json
@click.pass_context
def statistics(context: click.Context, /, as_json: bool, **_: object) -> None:
    """Show each topic's rates, burstiness, daily course, drift, and largest publishers.

    \b
      srtm correlate statistics --trace DIR --slo 0.99@5ms

    Dispersion is the variance of the messages in a window over their mean: 1 for Poisson arrivals,
    less for clocks, more for bursts.
    """
    options = read_options(StatisticsOptions, context)
    with _rows(options) as rows:
        from srtm.correlation.needs import statistics_document

        document = statistics_document(rows, options.most, options.target_seconds)
        _print(document, as_json, statistics_tables)


@click.command("what-if", context_settings={"auto_envvar_prefix": "SRTM_CORRELATE_WHAT_IF"})
@add_options(WhatIfOptions)
@_as_json
@click.pass_context
def what_if(context: click.Context, /, as_json: bool, **_: object) -> None:
    """Replay a trace through another placement, split or contract.

    \b
      srtm correlate what-if --trace DIR --topic sensors --rate 1100 --burst 40 --slo 0.99@5ms
      srtm correlate what-if --trace DIR --placement new.csv --split even

    Without a contract each topic gets 1.1 times its rate, and the smallest burst with which 99 % of
    its messages wait for no token in one bucket.
    """
    options = read_options(WhatIfOptions, context)
    with _rows(options) as rows:
        from srtm.correlation.bursts import smallest_bursts
        from srtm.correlation.needs import what_if_document
        from srtm.correlation.what_if import read_placement

        moved = {} if options.placement is None else read_placement(options.placement)
        if options.rate is not None and options.burst is not None:
            contracts = {str(options.topic): Part(options.rate, options.burst)}
        else:
            contracts = {
                row["topic"]: Part(row["rate"], float(row["burst"]))
                for row in smallest_bursts(rows, ["topic"]).collect()
                if row["rate"] > 0
            }
            if not contracts:
                raise UsageError(f"--trace {options.trace}: all arrivals are at one instant")
        even = options.split == "even"
        document = what_if_document(rows, contracts, moved, even, options.target_seconds)
        _print(document, as_json, what_if_tables)
