"""Pairs of publishers that may coincide, by the unit's plan."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from srtm.correlation.arrow import by_partition, numbers, unpack
from srtm.correlation.groups.hashing import GRIDS, bands, bins, bucket_pairs, signatures
from srtm.correlation.groups.instants import Integers, heads
from srtm.correlation.groups.plan import BANDS, INDEX
from srtm.correlation.groups.settings import Settings
from srtm.correlation.schema import columns

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
