"""False discoveries among all pairs of a unit, by Benjamini and Hochberg (1995)."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.types import DoubleType, StructField, StructType

from srtm.correlation.groups.pairs import PAIRS

DISCOVERIES = StructType([*PAIRS.fields, StructField("q", DoubleType(), False)])
"""q: the rate of false discoveries at which the pair is still found"""

_STEPS = 10
"""p is rounded up to a tenth of a decade: q is too high by a quarter at most, and no p is sorted
among millions."""


def discoveries(pairs: DataFrame, plan: DataFrame) -> DataFrame:
    """DISCOVERIES of PAIRS; plan: with the publishers that were judged in each unit, all of whose
    pairs were tried, candidates or not."""
    step = f.ceil(f.log10("p") * _STEPS).cast("int")
    counts = pairs.groupBy("unit", step.alias("step")).agg(f.count("*").alias("n"))
    up = Window.partitionBy("unit").orderBy("step")
    down = Window.partitionBy("unit").orderBy(f.desc("step"))
    possible = f.col("judged") * (f.col("judged") - 1) / 2
    edge = f.pow(f.lit(10.0), f.col("step") / _STEPS)
    found = (
        counts.join(f.broadcast(plan.select("unit", "judged")), "unit")
        .withColumn("q", f.least(f.lit(1.0), possible * edge / f.sum("n").over(up)))
        .withColumn("q", f.min("q").over(down))
        .select(f.col("unit").alias("unit_"), f.col("step").alias("step_"), "q")
    )
    return pairs.join(
        f.broadcast(found), (f.col("unit") == f.col("unit_")) & (step == f.col("step_"))
    ).select(*DISCOVERIES.fieldNames())
