"""Groups as a person sees them: names, members, figures and instants to look at; and from window to
window, what appeared and what ended."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from srtm.correlation.arrow import by_partition, numbers, unpack
from srtm.correlation.groups.instants import heads
from srtm.correlation.groups.settings import Settings
from srtm.correlation.schema import columns

GROUPS = columns(
    "topic string, window bigint, name string, publishers array<string>, lift double, q double, "
    "coincidences bigint, share double, periodic boolean, instants array<bigint>"
)
"""instants: ns since 1970, when most members came together; the other figures as in MEMBERS"""

_INSTANTS = 5
_EXAMPLES = columns("group bigint, instants array<bigint>")
_LOOKED_AT = 100
"""members of a group by which examples are chosen"""


def groups(
    members: DataFrame, who: DataFrame, series: DataFrame, settings: Settings, parts: int
) -> DataFrame:
    """GROUPS of MEMBERS, PUBLISHERS and SERIES."""
    look = partial(_examples, window_us=settings.widest_us)
    some = members.where(
        f.pmod(f.xxhash64("id"), f.greatest(f.lit(1), f.expr(f"size div {_LOOKED_AT}"))) == 0
    )
    seen = some.select("group", "id").join(series.select("id", "times"), "id")
    examples = by_partition(seen.repartition(parts, "group"), look, _EXAMPLES)
    named = (
        members.join(who.select("topic", "window", "publisher", "id"), "id")
        .groupBy("topic", "window", "group")
        .agg(
            f.sort_array(f.collect_list("publisher")).alias("publishers"),
            *(
                f.first(each).alias(each)
                for each in ("size", "lift", "q", "coincidences", "share", "beat")
            ),
        )
    )
    order = Window.partitionBy("topic", "window").orderBy(f.desc("size"), f.col("publishers")[0])
    return (
        named.join(examples, "group", "left")
        .withColumn("name", f.concat(f.lit("g"), f.row_number().over(order)))
        .withColumn("periodic", f.col("beat"))
        .withColumn("instants", f.coalesce("instants", f.array().cast("array<bigint>")))
        .select(*GROUPS.fieldNames())
    )


def _examples(table: pa.Table, window_us: int) -> Iterator[pa.Table]:
    times, starts = unpack(table, "times")
    group = numbers(table, "group")
    sizes = np.diff(starts)
    of = np.repeat(group, sizes)
    bin_ = times // window_us
    who = np.repeat(np.arange(sizes.size), sizes)
    order = np.lexsort((who, bin_, of))
    of, bin_, who, times = of[order], bin_[order], who[order], times[order]
    slots = heads(of, bin_)
    came = np.bincount(np.cumsum(slots) - 1, heads(of, bin_, who))
    first = np.minimum.reduceat(times, np.flatnonzero(slots))
    of = of[slots]
    best = np.lexsort((first, -came, of))
    ranked = of[best]
    begins = np.flatnonzero(heads(ranked))
    ends = np.append(begins[1:], ranked.size)
    yield pa.table(
        {
            "group": ranked[begins],
            "instants": [
                np.sort(first[best[begin : min(end, begin + _INSTANTS)]]) * 1_000
                for begin, end in zip(begins, ends, strict=True)
            ],
        }
    )


CHANGES = StructType(
    columns("begins bigint").fields
    + GROUPS.fields
    + columns("before string, after string", nullable=True).fields
)
"""begins: of the window, ns since 1970; before, after: the name of the same group in the windows
beside this one: null: it appeared, or ended. In the first and last window of a topic that says
nothing."""

_SAME = 0.5
"""of the members of two groups together (Jaccard) that are in both"""


def changes(groups: DataFrame, window_us: int) -> DataFrame:
    """CHANGES of GROUPS of several windows."""
    members = groups.select("topic", "window", "name", f.explode("publishers").alias("publisher"))
    sizes = groups.select("topic", "window", "name", f.size("publishers").alias("size"))
    earlier = members.withColumn("window", f.col("window") + 1).withColumnRenamed("name", "was")
    was = sizes.withColumn("window", f.col("window") + 1).withColumnsRenamed(
        {"name": "was", "size": "was_size"}
    )
    same = (
        members.join(earlier, ["topic", "window", "publisher"])
        .groupBy("topic", "window", "name", "was")
        .agg(f.count("*").alias("both"))
        .join(sizes, ["topic", "window", "name"])
        .join(was, ["topic", "window", "was"])
        .where(f.col("both") > _SAME * (f.col("size") + f.col("was_size") - f.col("both")))
    )
    before = same.select("topic", "window", "name", f.col("was").alias("before"))
    after = same.select(
        "topic",
        (f.col("window") - 1).alias("window"),
        f.col("was").alias("name"),
        f.col("name").alias("after"),
    )
    key = ["topic", "window", "name"]
    return (
        groups.join(before, key, "left")
        .join(after, key, "left")
        .withColumn("begins", f.col("window") * f.lit(window_us * 1000))
        .select(*CHANGES.fieldNames())
    )
