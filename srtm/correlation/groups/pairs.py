"""Candidate pairs judged by their exact times."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from srtm.correlation.arrow import by_partition, numbers, unpack
from srtm.correlation.groups.coincidences import Pairs, compare
from srtm.correlation.groups.instants import Integers, instants, split
from srtm.correlation.groups.settings import Settings
from srtm.correlation.schema import columns

_FIGURES = tuple(name for name in Pairs.__dataclass_fields__ if name not in ("left", "right"))
_WHOLE = ("window_us", "coincidences")
PAIRS = columns(
    "unit bigint, a bigint, b bigint, "
    + ", ".join(f"{name} {'bigint' if name in _WHOLE else 'double'}" for name in _FIGURES)
)
"""The columns of the pairs that are kept, those with coincidences enough and p not above the rate:
as in Pairs; lags are b's time - a's."""

LARGEST = 2_000
"""Members of a component of which all pairs are judged, candidates or not: LSH finds a pair with
probability 0.6 to 1, and a group is found by its members' pairs all together."""
_CHUNK = 64
"""Members of a larger one whose pairs, or those with another chunk's, are one task."""


def judged_pairs(
    candidates: DataFrame,
    components: DataFrame,
    series: DataFrame,
    settings: Settings,
    partitions: int,
) -> DataFrame:
    """PAIRS of the components of CANDIDATES."""
    within, between = (partial(each, settings=settings) for each in (_within, _between))
    small = series.join(components.where(f.col("size") <= LARGEST), "id")
    of_tasks = by_partition(_tasks(small).repartition(partitions, "task"), within, PAIRS)
    large = components.where(f.col("size") > LARGEST).select(f.col("id").alias("a"))
    sides = candidates.join(large, "a").repartition(partitions, "a", "b")
    for side in ("a", "b"):
        sides = sides.join(
            series.select(f.col("id").alias(side), f.col("times").alias(f"times_{side}")), side
        )
    return of_tasks.union(by_partition(sides, between, PAIRS))


def _tasks(members: DataFrame) -> DataFrame:
    """The members, each in all tasks that compare its chunk with another, or with itself."""
    chunks = f.ceil(f.col("size") / _CHUNK).cast("int")
    return (
        members.withColumn("chunk", f.pmod(f.xxhash64("id", f.lit(1)), chunks).cast("int"))
        .withColumn("other", f.explode(f.sequence(f.lit(0), chunks - 1)))
        .select(
            f.xxhash64("component", f.least("chunk", "other"), f.greatest("chunk", "other")).alias(
                "task"
            ),
            (f.col("chunk") > f.col("other")).cast("int").alias("side"),
            (f.col("chunk") == f.col("other")).alias("diagonal"),
            "unit",
            "id",
            "times",
        )
    )


def _within(table: pa.Table, settings: Settings) -> Iterator[pa.Table]:
    task, side = numbers(table, "task"), numbers(table, "side")
    diagonal = table.column("diagonal").to_numpy()
    order = np.lexsort((side, task))
    left, right = [], []
    for rows in split(task, order):
        if diagonal[rows[0]]:
            one, other = np.triu_indices(rows.size, 1)
            left.append(rows[one])
            right.append(rows[other])
        else:
            one = rows[side[rows] == 0]
            other = rows[side[rows] == 1]
            left.append(np.repeat(one, other.size))
            right.append(np.tile(other, one.size))
    times, starts = unpack(table, "times")
    identity, unit = numbers(table, "id"), numbers(table, "unit")
    yield from _judged(
        times, starts, np.concatenate(left), np.concatenate(right), identity, unit, settings
    )


def _between(table: pa.Table, settings: Settings) -> Iterator[pa.Table]:
    one, starts = unpack(table, "times_a")
    other, more = unpack(table, "times_b")
    rows = np.arange(table.num_rows)
    identity = np.concatenate([numbers(table, "a"), numbers(table, "b")])
    yield from _judged(
        np.concatenate([one, other]),
        np.concatenate([starts, more[1:] + starts[-1]]),
        rows,
        rows + table.num_rows,
        identity,
        np.tile(numbers(table, "unit"), 2),
        settings,
    )


def _judged(
    times: Integers,
    starts: Integers,
    left: Integers,
    right: Integers,
    identity: Integers,
    unit: Integers,
    settings: Settings,
) -> Iterator[pa.Table]:
    swapped = identity[left] > identity[right]
    left, right = np.where(swapped, right, left), np.where(swapped, left, right)
    came = instants(times, starts, settings.widest_us)
    for found in compare(came, left, right, settings):
        kept = (found.p <= settings.rate) & (found.coincidences >= settings.least)
        if kept.any():
            figures = {name: getattr(found, name)[kept] for name in _FIGURES}
            a, b = found.left[kept], found.right[kept]
            yield pa.table({"unit": unit[a], "a": identity[a], "b": identity[b], **figures})
