"""`srtm correlate run`: from a trace to a folder of results, whole or not at all."""

import json
import time
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from srtm.correlation.faults import DamagedFile, one_line
from srtm.correlation.groups.clocks import corrected
from srtm.correlation.groups.evidence import GROUPS, changes
from srtm.correlation.groups.find import TOPICS, find_groups
from srtm.correlation.groups.publishers import arrivals
from srtm.correlation.groups.settings import Settings
from srtm.correlation.result import NAMES, Result, read_result, write_json
from srtm.correlation.trace import open_trace
from srtm.correlation.whole import whole_folder
from srtm.text.errors import UsageError


@dataclass(frozen=True)
class Request:
    """window_seconds: 0: the whole trace at once, and nothing else; history_seconds: back from the
    newest arrival, what is looked at; 0: all; left_out: more lines for the result, of what never
    came into the trace."""

    trace: Path
    out: Path
    topic: str | None = None
    window_seconds: float = 0.0
    skip_damaged: bool = False
    settings: Settings = Settings()  # noqa: RUF009
    history_seconds: float = 0.0
    left_out: tuple[str, ...] = ()


class NoArrivals(UsageError):
    """The trace has no arrivals of the topic that is asked for."""


def run(spark: SparkSession, request: Request) -> tuple[Result, tuple[str, ...]]:
    """Find the groups of a trace. Returns the result, and a line for each file that was left out.
    Raises SrtmError."""
    damaged = set[Path]()
    while True:
        try:
            return _run(spark, request, damaged)
        except DamagedFile as error:  # Spark finds out when it reads it
            if not request.skip_damaged or error.path in damaged:
                raise
            damaged.add(error.path)


def _run(
    spark: SparkSession, request: Request, damaged: Collection[Path]
) -> tuple[Result, tuple[str, ...]]:
    trace = open_trace(request.trace, request.skip_damaged, damaged)
    with whole_folder(request.out, NAMES) as folder, one_line(request.trace, request.out):
        frame = trace.frame(spark)
        if request.topic is not None:
            frame = frame.where(f.col("topic") == request.topic)
            if frame.isEmpty():
                raise NoArrivals(trace.nothing(request.topic))
        if request.history_seconds:
            frame = _newest(frame, request.history_seconds)
        span = frame.agg(f.min("time"), f.max("time")).first()
        first, last = span if span is not None else (None, None)
        came = corrected(arrivals(frame)) if trace.rows else arrivals(frame)
        document: dict[str, Any] = {
            "trace": str(request.trace),
            "rows": trace.rows,
            "first": first,
            "last": last,
            "left_out": [*trace.faults, *request.left_out],
            "unfinished": trace.unfinished,
            "topic": request.topic,
            "window_seconds": request.window_seconds or None,
            "settings": asdict(request.settings),
        }
        document["plan"] = _whole(came, request, folder) if trace.rows else _nothing(spark, folder)
        if request.window_seconds and trace.rows:
            _by_window(frame, request, folder)
        (folder / "run.json").write_text(json.dumps(document, indent=2) + "\n")
    return read_result(request.out), trace.faults


def _newest(frame: DataFrame, seconds: float) -> DataFrame:
    """The arrivals of so long back. One from the future has a wrong time, and would make all others
    old."""
    now = f.lit(time.time_ns() + _CLOCKS_NS)
    past = frame.where(f.col("time") <= now)
    newest = past.agg(f.max("time")).first()
    if newest is None or newest[0] is None:
        return past
    return past.where(f.col("time") >= newest[0] - round(seconds * 1e9))


_CLOCKS_NS = 3_600 * 1_000_000_000
"""by which a host's clock may be ahead"""


def _nothing(spark: SparkSession, folder: Path) -> list[dict[str, Any]]:
    """Write the result of an empty trace. Returns its plan, which is empty."""
    _write(spark.createDataFrame([], GROUPS).drop("window"), folder / "groups.parquet")
    _write(spark.createDataFrame([], TOPICS).drop("window"), folder / "topics.parquet")
    write_json(folder, [], iter([]))
    return []


def _whole(came: DataFrame, request: Request, folder: Path) -> list[dict[str, Any]]:
    """The groups of all of the trace; how candidates were found, by topic."""
    found = find_groups(came, request.settings)
    groups, topics = found.groups.drop("window"), found.topics.drop("window")
    _write(groups, folder / "groups.parquet")
    _write(topics, folder / "topics.parquet")
    order = ("topic", f.length("name"), "name")
    write_json(
        folder,
        (row.asDict() for row in topics.orderBy("topic").toLocalIterator()),
        (row.asDict() for row in groups.orderBy(*order).toLocalIterator()),
    )
    columns = ("topic", "judged", "method", "bin_us", "values", "estimated")
    largest = found.plan.orderBy(f.desc("estimated")).limit(_MOST_PLANS)
    return [row.asDict() for row in largest.select(*columns).collect()]


def _by_window(frame: DataFrame, request: Request, folder: Path) -> None:
    window_us = round(request.window_seconds * 1e6)
    came = corrected(arrivals(frame, window_us))
    found = find_groups(came, request.settings)
    _write(changes(found.groups, window_us), folder / "windows.parquet")


_MOST_PLANS = 100
"""topics whose plan is kept"""


def _write(frame: DataFrame, path: Path) -> None:
    frame.write.parquet(f"file://{path.absolute()}")
