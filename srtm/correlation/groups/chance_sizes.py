"""Periodic groups that may be clocks which agree by chance are given up.

Publishers with equal periods whose clocks differ too little for the trace to show it are told apart
by phase alone. How many agree by chance is seen in the trace: pairs with a lag other than 0 that
never changes are such clocks, and as many as lie beside 0 lie at 0. With lambda of them for each
publisher, judged * P(Poisson(lambda) >= k - 1) groups of k come by chance. A size is kept from
which on these are at most 5 % of the groups that were found.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from scipy.special import gammainc

from srtm.correlation.arrow import by_partition, numbers
from srtm.correlation.groups.instants import Floats, Integers
from srtm.correlation.schema import columns

LEAST = columns("unit bigint, least bigint")
"""least: members that a periodic group has to have"""

_RATE = 0.05


def not_by_chance(members: DataFrame, edges: DataFrame, plan: DataFrame) -> DataFrame:
    """MEMBERS without the periodic groups that are too small for their unit."""
    sizes = (
        members.where(f.col("beat") & (f.col("id") == f.col("group")))
        .groupBy("unit", "size")
        .agg(f.count("*").alias("groups"))
    )
    chance = edges.where("by_chance > 0").groupBy("unit").agg(f.sum("by_chance").alias("chance"))
    rows = (
        sizes.join(plan.select("unit", "judged"), "unit")
        .join(chance, "unit", "left")
        .select(
            "unit", "size", "groups", "judged", f.coalesce("chance", f.lit(0.0)).alias("chance")
        )
    )
    least = by_partition(rows.repartition("unit"), _least, LEAST)
    return (
        members.join(f.broadcast(least), "unit", "left")
        .where(~f.col("beat") | (f.col("size") >= f.col("least")))
        .drop("least")
    )


def _least(table: pa.Table) -> Iterator[pa.Table]:
    unit, size, groups = (numbers(table, name) for name in ("unit", "size", "groups"))
    judged, chance = numbers(table, "judged"), numbers(table, "chance")
    known = np.unique(unit)
    least = [
        least_size(size[unit == each], groups[unit == each], *_first(judged, chance, unit == each))
        for each in known
    ]
    yield pa.table({"unit": known, "least": np.array(least, np.int64)})


def _first(judged: Integers, chance: Floats, where: Integers) -> tuple[int, float]:
    return int(judged[where][0]), float(chance[where][0])


def least_size(sizes: Integers, groups: Integers, judged: int, chance: float) -> int:
    """sizes, groups: groups that were found of each size; chance: pairs that agree by chance."""
    mean = 2 * chance / max(judged, 1)
    largest = int(sizes.max(initial=1))
    for size in range(2, largest + 1):
        expected = judged * float(gammainc(size - 1, mean)) if mean > 0 else 0.0
        if expected <= _RATE * groups[sizes >= size].sum():
            return size
    return largest + 1
