"""Exact percentiles of values that come with counts."""

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

_SLACK = 1e-9
"""of a message: 0.99 * 100 is no more than 99"""


def nearest_rank(
    counted: DataFrame, keys: Sequence[str], value: str, count: str, shares: dict[str, float]
) -> DataFrame:
    """Columns: keys, and one for each of `shares`: the smallest value that at least this share of
    the counts does not exceed. counted: with rows of equal values, perhaps."""
    by_value = counted.groupBy(*keys, value).agg(F.sum(count).alias("_count"))
    up_to = Window.partitionBy(*keys).orderBy(value)
    ranked = by_value.withColumn("_upto", F.sum("_count").over(up_to)).withColumn(
        "_all", F.sum("_count").over(Window.partitionBy(*keys))
    )
    return ranked.groupBy(*keys).agg(
        *(
            F.min(
                F.when(
                    F.col("_upto")
                    >= F.greatest(F.lit(1), F.ceil(F.lit(share) * F.col("_all") - _SLACK)),
                    F.col(value),
                )
            ).alias(name)
            for name, share in shares.items()
        )
    )
