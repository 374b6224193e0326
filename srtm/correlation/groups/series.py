"""The arrivals of each publisher that can be judged, as one row."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from srtm.correlation.arrow import by_partition, numbers, pack
from srtm.correlation.groups.publishers import publisher_id, unit_id
from srtm.correlation.groups.settings import Settings

SERIES = StructType(
    [
        StructField("unit", LongType(), False),
        StructField("id", LongType(), False),
        StructField("instants", IntegerType(), False),
        StructField("times", BinaryType(), False),
    ]
)
"""times: int64 of each arrival, us since 1970, sorted; of arrivals within one ms only the first
"""

_FINEST_US = 1_000
"""Arrivals that are nearer each other than the narrowest window tell nothing more."""


def series(came: DataFrame, who: DataFrame, settings: Settings, partitions: int) -> DataFrame:
    """SERIES of ARRIVALS, for those of PUBLISHERS that are judged and have instants enough."""
    skipped = who.where(~f.col("judged") & (f.col("arrivals") >= settings.least))
    rows = came.select(unit_id().alias("unit"), publisher_id().alias("id"), f.col("time_us")).join(
        f.broadcast(skipped.select("id")), "id", "left_anti"
    )
    least, gap = settings.least, settings.widest_us

    def gather(table: pa.Table) -> Iterator[pa.Table]:
        return _gathered(table, least, gap)

    return by_partition(rows.repartition(partitions, "id"), gather, SERIES)


def _gathered(table: pa.Table, least: int, gap_us: int) -> Iterator[pa.Table]:
    identity, time, unit = (numbers(table, name) for name in ("id", "time_us", "unit"))
    order = np.lexsort((time, identity))
    identity, time, unit = identity[order], time[order], unit[order]
    begins = np.ones(time.size, dtype=bool)
    begins[1:] = np.diff(identity) != 0
    step = np.diff(time, prepend=time[:1])
    # Thinned on a fixed grid: a dense stretch keeps an arrival in each millisecond.
    grid = time // _FINEST_US
    kept = begins | (np.diff(grid, prepend=grid[:1]) != 0)
    owner = np.cumsum(begins) - 1
    runs = np.bincount(owner, begins | (step > gap_us)).astype(np.int32)
    heads = np.flatnonzero(begins)
    enough = runs >= least
    kept &= enough[owner]
    sizes = np.bincount(owner[kept], minlength=heads.size)[enough]
    if enough.any():
        yield pa.table(
            {
                "unit": unit[heads][enough],
                "id": identity[heads][enough],
                "instants": runs[enough],
                "times": pack(time[kept], sizes),
            }
        )
