"""Groups from window to window: what appeared and what ended."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from srtm.correlation.groups.evidence import GROUPS
from srtm.correlation.schema import columns

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
