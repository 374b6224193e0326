"""Who came, how often, and who can be judged at all."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import (
    BooleanType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from srtm.correlation.groups.settings import Settings

ARRIVALS = StructType(
    [
        StructField("topic", StringType(), False),
        StructField("window", LongType(), False),
        StructField("publisher", StringType(), False),
        StructField("broker", StringType(), False),
        StructField("time_us", LongType(), False),
    ]
)
"""window: number of the stretch of time that is judged by itself; 0 where all is one."""

PUBLISHERS = StructType(
    [
        StructField("topic", StringType(), False),
        StructField("window", LongType(), False),
        StructField("publisher", StringType(), False),
        StructField("id", LongType(), False),
        StructField("arrivals", LongType(), False),
        StructField("first_us", LongType(), False),
        StructField("last_us", LongType(), False),
        StructField("judged", BooleanType(), False),
    ]
)
"""id: a hash of topic, window and publisher (two of 10^6 share one with probability 3e-8)"""

UNITS = StructType(
    [
        StructField("topic", StringType(), False),
        StructField("window", LongType(), False),
        StructField("unit", LongType(), False),
        StructField("publishers", LongType(), False),
        StructField("judged", LongType(), False),
        StructField("arrivals", LongType(), False),
        StructField("seconds", DoubleType(), False),
    ]
)
"""A unit is a topic in a window: pairs are looked for within units. publishers: all that came;
judged, arrivals, seconds: of those that can be judged."""

BUSIEST_PER_SECOND = 100.0
"""Above it the arrivals of a publisher make one endless instant; it is in no group. So is one that
sends half of everything, and its arrivals are never gathered in one place."""


def arrivals(trace: DataFrame, window_us: int = 0) -> DataFrame:
    """ARRIVALS of a trace, whatever became of them; window_us: 0: all of it is one window."""
    time_us = f.expr("time div 1000")
    window = f.floor(time_us / window_us) if window_us > 0 else f.lit(0)
    return trace.select(
        "topic",
        window.cast("long").alias("window"),
        "publisher",
        "broker",
        time_us.alias("time_us"),
    )


def publisher_id() -> Column:
    return f.xxhash64("topic", "window", "publisher")


def unit_id() -> Column:
    return f.xxhash64("topic", "window")


def publishers(came: DataFrame, settings: Settings) -> DataFrame:
    """PUBLISHERS of ARRIVALS."""
    rate = f.col("arrivals") / ((f.col("last_us") - f.col("first_us")) / 1e6)
    return (
        came.groupBy("topic", "window", "publisher")
        .agg(
            f.count("*").alias("arrivals"),
            f.min("time_us").alias("first_us"),
            f.max("time_us").alias("last_us"),
        )
        .withColumn("id", publisher_id())
        .withColumn(
            "judged",
            (f.col("arrivals") >= settings.least)
            & (f.col("last_us") > f.col("first_us"))
            & (rate <= BUSIEST_PER_SECOND),
        )
        .select(*PUBLISHERS.fieldNames())
    )


def units(who: DataFrame) -> DataFrame:
    """UNITS of PUBLISHERS."""
    judged = f.col("judged")
    span = f.max(f.when(judged, f.col("last_us"))) - f.min(f.when(judged, f.col("first_us")))
    return (
        who.groupBy("topic", "window")
        .agg(
            f.count("*").alias("publishers"),
            f.count_if(judged).alias("judged"),
            f.coalesce(f.sum(f.when(judged, f.col("arrivals"))), f.lit(0)).alias("arrivals"),
            f.coalesce(span / 1e6, f.lit(0.0)).alias("seconds"),
        )
        .withColumn("unit", unit_id())
        .select(*UNITS.fieldNames())
    )
