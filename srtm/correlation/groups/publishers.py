"""Who came, how often, who can be judged at all, and the arrivals of each of these as one row."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from srtm.correlation.arrow import by_partition, numbers, pack
from srtm.correlation.groups.instants import heads
from srtm.correlation.groups.settings import Settings
from srtm.correlation.schema import columns

ARRIVALS = columns("topic string, window bigint, publisher string, broker string, time_us bigint")
"""window: number of the stretch of time that is judged by itself; 0 where all is one."""

PUBLISHERS = columns(
    "topic string, window bigint, publisher string, id bigint, arrivals bigint, "
    "first_us bigint, last_us bigint, judged boolean"
)
"""id: a hash of topic, window and publisher (two of 10^6 share one with probability 3e-8)"""

UNITS = columns(
    "topic string, window bigint, unit bigint, publishers bigint, judged bigint, "
    "arrivals bigint, seconds double"
)
"""A unit is a topic in a window: pairs are looked for within units. publishers: all that came;
judged, arrivals, seconds: of those that can be judged."""

BUSIEST_PER_SECOND = 100.0
"""Above it the arrivals of a publisher make one endless instant; it is in no group. So is one that
sends half of everything, and its arrivals are never gathered in one place."""

SERIES = columns("unit bigint, id bigint, instants int, times binary")
"""times: int64 of each arrival, us since 1970, sorted; of arrivals within one ms only the first
"""

_FINEST_US = 1_000
"""Arrivals that are nearer each other than the narrowest window tell nothing more."""


def arrivals(trace: DataFrame, window_us: int = 0) -> DataFrame:
    """ARRIVALS of a trace, whatever became of them; window_us: 0: all of it is one window."""
    time_us = f.expr("time div 1000")
    window = f.floor(time_us / window_us) if window_us > 0 else f.lit(0)
    return trace.select(
        "topic",
        window.cast("long").alias("window"),
        "publisher",
        "broker",
        time_us.alias("time_us"),
    )


def publisher_id() -> Column:
    return f.xxhash64("topic", "window", "publisher")


def unit_id() -> Column:
    return f.xxhash64("topic", "window")


def publishers(came: DataFrame, settings: Settings) -> DataFrame:
    """PUBLISHERS of ARRIVALS."""
    rate = f.col("arrivals") / ((f.col("last_us") - f.col("first_us")) / 1e6)
    return (
        came.groupBy("topic", "window", "publisher")
        .agg(
            f.count("*").alias("arrivals"),
            f.min("time_us").alias("first_us"),
            f.max("time_us").alias("last_us"),
        )
        .withColumn("id", publisher_id())
        .withColumn(
            "judged",
            (f.col("arrivals") >= settings.least)
            & (f.col("last_us") > f.col("first_us"))
            & (rate <= BUSIEST_PER_SECOND),
        )
        .select(*PUBLISHERS.fieldNames())
    )


def units(who: DataFrame) -> DataFrame:
    """UNITS of PUBLISHERS."""
    judged = f.col("judged")
    span = f.max(f.when(judged, f.col("last_us"))) - f.min(f.when(judged, f.col("first_us")))
    return (
        who.groupBy("topic", "window")
        .agg(
            f.count("*").alias("publishers"),
            f.count_if(judged).alias("judged"),
            f.coalesce(f.sum(f.when(judged, f.col("arrivals"))), f.lit(0)).alias("arrivals"),
            f.coalesce(span / 1e6, f.lit(0.0)).alias("seconds"),
        )
        .withColumn("unit", unit_id())
        .select(*UNITS.fieldNames())
    )


def series(came: DataFrame, who: DataFrame, settings: Settings, partitions: int) -> DataFrame:
    """SERIES of ARRIVALS, for those of PUBLISHERS that are judged and have instants enough."""
    skipped = who.where(~f.col("judged") & (f.col("arrivals") >= settings.least))
    rows = came.select(unit_id().alias("unit"), publisher_id().alias("id"), f.col("time_us")).join(
        f.broadcast(skipped.select("id")), "id", "left_anti"
    )
    gather = partial(_gathered, least=settings.least, gap_us=settings.widest_us)
    return by_partition(rows.repartition(partitions, "id"), gather, SERIES)


def _gathered(table: pa.Table, least: int, gap_us: int) -> Iterator[pa.Table]:
    identity, time, unit = (numbers(table, name) for name in ("id", "time_us", "unit"))
    order = np.lexsort((time, identity))
    identity, time, unit = identity[order], time[order], unit[order]
    begins = heads(identity)
    step = np.diff(time, prepend=time[:1])
    # Thinned on a fixed grid: a dense stretch keeps an arrival in each millisecond.
    grid = time // _FINEST_US
    kept = begins | (np.diff(grid, prepend=grid[:1]) != 0)
    owner = np.cumsum(begins) - 1
    runs = np.bincount(owner, begins | (step > gap_us)).astype(np.int32)
    firsts = np.flatnonzero(begins)
    enough = runs >= least
    kept &= enough[owner]
    sizes = np.bincount(owner[kept], minlength=firsts.size)[enough]
    if enough.any():
        yield pa.table(
            {
                "unit": unit[firsts][enough],
                "id": identity[firsts][enough],
                "instants": runs[enough],
                "times": pack(time[kept], sizes),
            }
        )
