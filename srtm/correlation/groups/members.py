"""Groups of publishers from the edges between them; periodic ones that may be clocks which agree by
chance are given up.

Publishers with equal periods whose clocks differ too little for the trace to show it are told apart
by phase alone. How many agree by chance is seen in the trace: pairs with a lag other than 0 that
never changes are such clocks, and as many as lie beside 0 lie at 0. With lambda of them for each
publisher, judged * P(Poisson(lambda) >= k - 1) groups of k come by chance. A size is kept from
which on these are at most 5 % of the groups that were found.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from scipy.special import gammainc

from srtm.correlation.arrow import by_partition, numbers
from srtm.correlation.groups.clusters import Edges, clusters
from srtm.correlation.groups.instants import Floats, Integers, split
from srtm.correlation.groups.settings import Settings
from srtm.correlation.schema import columns

MEMBERS = columns(
    "unit bigint, group bigint, id bigint, size bigint, lift double, q double, "
    "coincidences bigint, share double, beat boolean"
)
"""One row for each member, with its group's figures. group: the least id in it; lift: of all its
edges, coincidences over expected; q: its highest; coincidences, share: of its median edge;
beat: are most of its edges periodic?"""

_LEAST_EXPECTED = 1e-9


def members(edges: DataFrame, components: DataFrame, settings: Settings, parts: int) -> DataFrame:
    """MEMBERS by EDGES that are edges, and the COMPONENTS of these."""
    labels = components.select(f.col("id").alias("a"), "component")
    rows = edges.where("edge").join(labels, "a").repartition(parts, "component")
    return by_partition(rows, partial(_grouped, settings=settings), MEMBERS)


def _grouped(table: pa.Table, settings: Settings) -> Iterator[pa.Table]:
    component = numbers(table, "component")
    order = np.argsort(component, kind="stable")
    a, b, unit = (numbers(table, name) for name in ("a", "b", "unit"))
    beat = table.column("beat").to_numpy()
    p = numbers(table, "p")
    lag, lag_error = numbers(table, "lag_us"), numbers(table, "lag_error_us")
    travel, travel_error = numbers(table, "travel_us"), numbers(table, "travel_error_us")
    found: list[tuple[Integers, Integers]] = []
    for rows in split(component, order):
        known, number = np.unique(np.concatenate([a[rows], b[rows]]), return_inverse=True)
        inside = Edges(
            left=number[: rows.size],
            right=number[rows.size :],
            weight=-np.log10(p[rows]),
            steady=beat[rows],
            lag=lag[rows],
            lag_error=lag_error[rows],
            travel=travel[rows],
            travel_error=travel_error[rows],
        )
        for group in clusters(known.size, inside, settings):
            place = np.zeros(known.size, dtype=bool)
            place[group] = True
            found.append((known[group], rows[place[inside.left] & place[inside.right]]))
    if found:
        yield _table(table, unit, beat, found)


def _table(
    table: pa.Table, unit: Integers, beat: Integers, found: list[tuple[Integers, Integers]]
) -> pa.Table:
    expected, coincidences = numbers(table, "expected"), numbers(table, "coincidences")
    q, share = numbers(table, "q"), numbers(table, "share")
    sizes = np.array([ids.size for ids, _ in found])

    def each(values: list[object]) -> pa.Array:
        return np.repeat(np.array(values), sizes)

    return pa.table(
        {
            "unit": each([unit[rows[0]] for _, rows in found]),
            "group": each([ids.min() for ids, _ in found]),
            "id": np.concatenate([ids for ids, _ in found]),
            "size": each([ids.size for ids, _ in found]),
            "lift": each(
                [
                    coincidences[rows].sum() / max(expected[rows].sum(), _LEAST_EXPECTED)
                    for _, rows in found
                ]
            ),
            "q": each([q[rows].max() for _, rows in found]),
            "coincidences": each([int(np.median(coincidences[rows])) for _, rows in found]),
            "share": each([float(np.median(share[rows])) for _, rows in found]),
            "beat": each([bool(beat[rows].mean() >= 0.5) for _, rows in found]),
        }
    )


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
