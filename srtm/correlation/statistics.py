"""What each topic's traffic is like: rates, burstiness over five scales of time, the shape of its
day, its drift, who sends most, and why messages are late. Built-in functions of Spark only.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from srtm.correlation.slices import NS

SCALES_MS = (1, 10, 100, 1_000, 10_000)
"""of the index of dispersion. Each is a whole number of the one before."""
_HOUR_NS = 3600 * NS
_PARTS = 100
"""of a trace, over which its rate is followed"""
_MS = 1_000_000


def totals(rows: DataFrame) -> DataFrame:
    """Columns: topic, publishers, brokers, messages, bytes, first, last (ns since 1970), seconds,
    rate (messages/s over that time; 0 where there is one instant only)."""
    found = rows.groupBy("topic").agg(
        F.count_distinct("publisher").alias("publishers"),
        F.count_distinct("broker").alias("brokers"),
        F.sum("messages").alias("messages"),
        F.sum("bytes").alias("bytes"),
        F.min("time").alias("first"),
        F.max("time").alias("last"),
    )
    timed = found.withColumn("seconds", (F.col("last") - F.col("first")) / NS)
    rate = F.when(F.col("seconds") > 0, F.col("messages") / F.col("seconds")).otherwise(0.0)
    return timed.withColumn("rate", rate)


def dispersion(rows: DataFrame, scales_ms: Sequence[int] = SCALES_MS) -> DataFrame:
    """The variance of the messages in a window over their mean, for windows of these lengths, empty
    ones included: 1 for Poisson arrivals, 0 for a clock. The last window, which is not whole, is
    left out. Columns: topic, and `dispersion_SCALEms` for each; null below two windows."""
    ends = rows.groupBy("topic").agg(F.min("time").alias("first"), F.max("time").alias("last"))
    smallest = scales_ms[0]
    counted = (
        rows.join(F.broadcast(ends), "topic")
        .withColumn("window", F.floor((F.col("time") - F.col("first")) / (smallest * _MS)))
        .groupBy("topic", "first", "last", "window")
        .agg(F.sum("messages").alias("messages"))
    )
    scale = F.explode(F.array(*map(F.lit, scales_ms)).cast("array<bigint>")).alias("scale")
    windows = F.floor((F.col("last") - F.col("first")) / (F.col("scale") * _MS))
    by_scale = (
        counted.select("*", scale)
        .withColumn("window", F.floor(F.col("window") / (F.col("scale") / smallest)))
        .withColumn("windows", windows)
        .where(F.col("window") < F.col("windows"))
        .groupBy("topic", "scale", "windows", "window")
        .agg(F.sum("messages").alias("messages"))
        .groupBy("topic", "scale", "windows")
        .agg(
            F.sum("messages").alias("n"),
            F.sum(F.pow(F.col("messages"), F.lit(2))).alias("nn"),
        )
    )
    mean = F.col("n") / F.col("windows")
    index = (F.col("nn") / F.col("windows") - mean * mean) / mean
    indices = by_scale.where(F.col("windows") >= 2).select("topic", "scale", index.alias("index"))
    columns = [
        F.max(F.when(F.col("scale") == each, F.col("index"))).alias(f"dispersion_{each}ms")
        for each in scales_ms
    ]
    return ends.select("topic").join(indices, "topic", "left").groupBy("topic").agg(*columns)


def hours(rows: DataFrame) -> DataFrame:
    """The shape of the day, UTC. Columns: topic, hour (0 to 23), messages, share of the topic's."""
    hour = F.pmod(F.floor(F.col("time") / _HOUR_NS), F.lit(24)).cast("int")
    by_hour = rows.groupBy("topic", hour.alias("hour")).agg(F.sum("messages").alias("messages"))
    all_of = F.sum("messages").over(Window.partitionBy("topic"))
    return by_hour.withColumn("share", F.col("messages") / all_of)


def drift(rows: DataFrame) -> DataFrame:
    """Columns: topic, drift: by how much of its mean the rate grows in an hour, by least squares
    over a hundred equal parts of the trace. Topics of one instant are left out."""
    ends = rows.groupBy("topic").agg(F.min("time").alias("first"), F.max("time").alias("last"))
    length = (F.col("last") - F.col("first") + 1) / _PARTS
    part = F.floor((F.col("time") - F.col("first")) / length)
    counted = (
        rows.join(F.broadcast(ends), "topic")
        .groupBy("topic", part.alias("part"))
        .agg(F.sum("messages").alias("messages"))
    )
    every = ends.where(F.col("last") > F.col("first")).withColumn(
        "part", F.explode(F.sequence(F.lit(0), F.lit(_PARTS - 1)).cast("array<bigint>"))
    )
    filled = every.join(counted, ["topic", "part"], "left").fillna(0, ["messages"])
    slope = F.regr_slope(F.col("messages").cast("double"), F.col("part").cast("double"))
    hours_of_part = F.first(length) / _HOUR_NS
    return filled.groupBy("topic").agg((slope / F.avg("messages") / hours_of_part).alias("drift"))


def talkers(rows: DataFrame, most: int) -> DataFrame:
    """Who sends most. Columns: topic, place (from 1), publisher, messages, share of the topic's."""
    counted = rows.groupBy("topic", "publisher").agg(F.sum("messages").alias("messages"))
    topic = Window.partitionBy("topic")
    place = F.row_number().over(topic.orderBy(F.desc("messages"), "publisher"))
    return (
        counted.withColumn("share", F.col("messages") / F.sum("messages").over(topic))
        .withColumn("place", place)
        .where(F.col("place") <= most)
        .select("topic", "place", "publisher", "messages", "share")
    )


def late(rows: DataFrame, target_seconds: float) -> DataFrame:
    """Shares of a topic's messages, by cause. `tokens`: the wait for tokens alone is longer than
    the target; a row counts as its last message does, which waits longest.
    Columns: topic, tokens, rejected, closed."""
    messages = F.sum("messages")
    waited = F.col("wait") > round(target_seconds * NS)

    def share(condition: Column) -> Column:
        return F.sum(F.when(condition, F.col("messages")).otherwise(0)) / messages

    return rows.groupBy("topic").agg(
        share(waited).alias("tokens"),
        *(share(F.col("outcome") == each).alias(each) for each in ("rejected", "closed")),
    )
