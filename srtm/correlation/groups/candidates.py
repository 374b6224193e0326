"""Pairs of publishers that may coincide, and how they are looked for in each unit, by what it would
cost.

An inverted index on time bins is exact, and costs arrivals x arrivals/s x bin. Above that, LSH: a
publisher is the set of its time bins, and those whose sets are alike share values of a MinHash.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from srtm.correlation.arrow import by_partition, numbers, unpack
from srtm.correlation.groups.hashing import GRIDS, bands, bins, bucket_pairs, signatures
from srtm.correlation.groups.instants import Integers, heads
from srtm.correlation.groups.settings import Settings
from srtm.correlation.schema import columns

INDEX, LSH = "index", "lsh"
BANDS = {1: 32, 2: 64, 3: 128}
"""Values of a band -> bands. A pair has to share two. Sets of publishers whose own traffic is as
much as their bursts are alike by 0.2 to 0.33: they share 6, 3 and 1 at the least, on average."""
_MOST_INDEXED = 2e7
_MOST_BY_CHANCE = 2e7
"""Pairs that are counted: 3 s of a core for each 10^7."""
_MOST_CANDIDATES = 0.1
"""for each publisher, that share two bands by chance. Judging one costs 0.1 ms, and where they are
many all groups are in one component, too large for all of its pairs to be tried."""
_MOST_ALIKE = 0.05
"""of two sets by chance. Where publishers send more often, bins are narrower, and jitter that is
wider than a bin goes unseen."""
_NARROWEST_US = 2_000

PLAN = columns(
    "topic string, window bigint, unit bigint, judged bigint, method string, bin_us bigint, "
    "values int, estimated double"
)
"""values: of a band (LSH), 0 for the index; estimated: pairs that are counted, chance ones."""


def plan(units: DataFrame, settings: Settings) -> DataFrame:
    """PLAN of UNITS."""
    seconds = f.greatest(f.col("seconds"), f.lit(1.0))
    widest = 2 * settings.widest_us
    indexed = f.col("arrivals") * f.col("arrivals") / seconds * (widest / 1e6)
    each = f.col("arrivals") / f.greatest(f.col("judged"), f.lit(1)) / seconds / 2e6
    narrower = f.floor(f.lit(_MOST_ALIKE) / f.greatest(each, f.lit(1e-12)))
    width = f.least(f.lit(widest), f.greatest(f.lit(_NARROWEST_US), narrower)).cast("long")
    is_indexed = indexed <= _MOST_INDEXED
    judged = f.col("judged").cast("double")

    def by_chance(values: int) -> Column:
        return judged * judged / 2 * f.pow(each * width, f.lit(values)) * BANDS[values]

    def few(values: int) -> Column:
        bands = f.pow(each * width, f.lit(values)) * BANDS[values]
        shared = judged * judged / 2 * f.least(f.lit(1.0), bands * bands / 2)
        return (by_chance(values) <= _MOST_BY_CHANCE) & (shared <= _MOST_CANDIDATES * judged)

    values = f.when(few(1), 1).when(few(2), 2).otherwise(3)
    counted = f.when(values == 1, by_chance(1)).when(values == 2, by_chance(2))
    return units.where(f.col("judged") >= 2).select(
        "topic",
        "window",
        "unit",
        "judged",
        f.when(is_indexed, INDEX).otherwise(LSH).alias("method"),
        f.when(is_indexed, f.lit(widest)).otherwise(width).cast("long").alias("bin_us"),
        f.when(is_indexed, 0).otherwise(values).cast("int").alias("values"),
        f.when(is_indexed, indexed)
        .otherwise(f.coalesce(counted, by_chance(3)))
        .cast("double")
        .alias("estimated"),
    )


CANDIDATES = columns("unit bigint, a bigint, b bigint")
"""a < b: ids"""

_BUCKETS = columns("bucket bigint, unit bigint, id bigint, least bigint")
"""least: buckets that a pair with this publisher has to share"""

_COUNTED = columns("unit bigint, a bigint, b bigint, least bigint, n bigint")
_TWO_BANDS = 2
_SHARE = 0.5
"""of the floor: what coincides within a bin is less than all, and a bin's grid is coarse"""


def candidates(
    series: DataFrame, plan: DataFrame, settings: Settings, partitions: int
) -> DataFrame:
    """CANDIDATES of SERIES."""
    share = _SHARE * settings.floor * GRIDS
    spread = partial(_spread, share=share, least=settings.least)
    planned = series.join(f.broadcast(plan.select("unit", "method", "bin_us", "values")), "unit")
    rows = by_partition(planned, spread, _BUCKETS)
    counted = by_partition(rows.repartition(partitions, "bucket"), _counted, _COUNTED)
    return (
        counted.groupBy("unit", "a", "b")
        .agg(f.sum("n").alias("n"), f.min("least").alias("least"))
        .where("n >= least")
        .select("unit", "a", "b")
    )


def _spread(table: pa.Table, share: float, least: int) -> Iterator[pa.Table]:
    """Rows that put each publisher into its buckets."""
    times, starts = unpack(table, "times")
    sizes = np.diff(starts)
    identity, unit = numbers(table, "id"), numbers(table, "unit")
    values, width = numbers(table, "values"), numbers(table, "bin_us")
    indexed = table.column("method").to_numpy() == INDEX
    keys = bins(times, np.repeat(unit, sizes), np.repeat(width, sizes))
    owner = np.repeat(np.arange(sizes.size), sizes)
    own = indexed[owner]
    if own.any():
        needed = np.maximum(least, np.ceil(share * numbers(table, "instants"))).astype(np.int64)
        yield _rows(keys[:, own].T.ravel(), np.repeat(owner[own], GRIDS), unit, identity, needed)
    for each in np.unique(values[~indexed]):
        members = np.flatnonzero(~indexed & (values == each))
        place = np.full(sizes.size, -1)
        place[members] = np.arange(members.size)
        own = place[owner] >= 0
        signature = signatures(
            keys[:, own].T.ravel(),
            np.repeat(place[owner[own]], GRIDS),
            members.size,
            BANDS[int(each)] * int(each),
        )
        key = bands(signature, unit[members], int(each))
        which, band = np.nonzero(key)
        needed = np.full(sizes.size, _TWO_BANDS)
        yield _rows(key[which, band], members[which], unit, identity, needed)


def _rows(
    bucket: Integers, owner: Integers, unit: Integers, identity: Integers, least: Integers
) -> pa.Table:
    return pa.table(
        {"bucket": bucket, "unit": unit[owner], "id": identity[owner], "least": least[owner]}
    )


def _counted(table: pa.Table) -> Iterator[pa.Table]:
    """How many buckets of this partition each pair shares."""
    bucket, identity = numbers(table, "bucket"), numbers(table, "id")
    unit, least = numbers(table, "unit"), numbers(table, "least")
    order = np.lexsort((identity, bucket))
    order = order[heads(bucket[order], identity[order])]
    left, right = bucket_pairs(bucket[order], identity[order])
    if not left.size:
        return
    left, right = order[left], order[right]
    # Publishers by number, so that a pair is one word, and sorts fast.
    known, number = np.unique(identity, return_inverse=True)
    first = np.zeros(known.size, np.int64)
    first[number] = np.arange(number.size)
    pair, count = np.unique(number[left] * known.size + number[right], return_counts=True)
    a, b = first[pair // known.size], first[pair % known.size]
    yield pa.table(
        {
            "unit": unit[a],
            "a": identity[a],
            "b": identity[b],
            "least": np.minimum(least[a], least[b]),
            "n": count,
        }
    )
