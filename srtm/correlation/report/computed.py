"""Figures computed from the trace by Spark.

What comes back is bounded by what is shown, not by the trace.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from srtm.correlation import what_if
from srtm.correlation.bursts import HEADROOM, PERCENTILE, smallest_bursts
from srtm.correlation.envelopes import BY, envelopes
from srtm.correlation.needs import ONE_BUCKET, statistics_document
from srtm.correlation.report.shown import Figures, Group, Shown, ShownTopic, Wait
from srtm.correlation.slices import NS
from srtm.correlation.trace import literal
from srtm.text.errors import UsageError
from tb_adaptor.share import Part

_TALKERS = 5
_PART = "\n"
"""which no topic's name has"""
_LONE = 6
"""publishers of no group that are drawn below the others"""
_TICKS = 14
"""of a publisher, about, in the stretch that is drawn"""
_MOST_TICKS = 20_000
_BURST_NS = 80_000_000
"""after the first of a burst, in which it is drawn"""


def computed(trace: DataFrame, shown: Shown) -> dict[str, Figures]:
    """The figures by topic, of those topics that have arrivals in the trace. trace: TRACE."""
    names = [topic.name for topic in shown.topics]
    rows = trace.where(F.col("topic").isin(names))
    found = {
        each["topic"]: Figures(statistics=each)
        for each in statistics_document(rows, _TALKERS, None)["topics"]
    }
    if found:
        members = _members(trace.sparkSession, shown)
        _curves(rows, members, shown, found)
        _waits(rows, members, found)
        _ticks(rows, members, shown, found)
    return found


def _members(spark: SparkSession, shown: Shown) -> DataFrame:
    """Columns: topic, group, publisher, number: of the group; place: in it."""
    groups = spark.read.parquet(literal(shown.folder / "groups.parquet"))
    return groups.select(
        "topic",
        F.col("name").alias("group"),
        F.expr("int(substring(name, 2))").alias("number"),
        F.posexplode("publishers").alias("place", "publisher"),
    )


def _curves(rows: DataFrame, members: DataFrame, shown: Shown, found: dict[str, Figures]) -> None:
    for row in smallest_bursts(rows, BY["topic"], HEADROOM, PERCENTILE).collect():
        if row["rate"] > 0:
            found[row["topic"]].contract = Part(row["rate"], float(row["burst"]))
    for row in envelopes(rows, BY["topic"]).orderBy("multiple").collect():
        found[row["topic"]].curves.setdefault(None, []).append((row["rate"], row["burst"]))
    drawn = [(topic.name, group.name) for topic in shown.topics for group in topic.drawn]
    if drawn:
        few = rows.sparkSession.createDataFrame(drawn, "topic string, group string")
        those = members.join(F.broadcast(few), ["topic", "group"])
        joined = rows.join(those.select("topic", "group", "publisher"), ["topic", "publisher"])
        for row in envelopes(joined, BY["group"]).orderBy("multiple").collect():
            curve = found[row["topic"]].curves.setdefault(row["group"], [])
            curve.append((row["rate"], row["burst"]))


# --- what a placement would cost --------------------------------------------------------------


def _waits(rows: DataFrame, members: DataFrame, found: dict[str, Figures]) -> None:
    """Fill in the token waits of the same arrivals and contract, with publishers on brokers by
    several rules."""
    split: dict[str, Part] = {}
    for name, each in found.items():
        if each.contract is not None:
            traced = int(each.statistics["brokers"])
            each.brokers = min(max(traced, 2), int(each.contract.burst))
            if each.brokers >= 2:
                split[name] = each.contract
    if not split:
        return
    counts = F.create_map(*(F.lit(each) for name in split for each in (name, found[name].brokers)))
    placed = (
        rows.where(F.col("topic").isin(list(split)))
        .join(
            members.select("topic", "publisher", "number", "place"), ["topic", "publisher"], "left"
        )
        .withColumn("brokers", counts[F.col("topic")])
    )
    cases = _cases()
    every = _by_case(placed, cases)
    shares: dict[str, dict[str, Part]] = {}
    for key, messages in what_if.messages_by_broker(every).items():
        with suppress(UsageError):  # a broker would hold less than one message
            shares |= what_if.shares({key: split[key.partition(_PART)[2]]}, {key: messages})
    known = {
        row["topic"]: row
        for row in what_if.figures(what_if.waits(every, shares), ["topic"], None).collect()
    }
    for topic in split:
        for name in cases:
            row = known.get(f"{name}{_PART}{topic}")
            if row is not None:
                found[topic].waits.append(Wait(name, row["mean_ms"], row["p99_ms"]))


def _cases() -> dict[str, Column]:
    """The rules, and the broker of a publisher by each."""
    by_hash = F.xxhash64("publisher")
    return {
        "one bucket, not split": F.lit(ONE_BUCKET),
        "as traced": F.col("broker"),
        "each group on one broker": _on(F.coalesce("number", by_hash)),
        "publishers at random": _on(by_hash),
        "each group spread": _on(F.coalesce(F.col("number") + F.col("place"), by_hash)),
    }


def _by_case(placed: DataFrame, cases: dict[str, Column]) -> DataFrame:
    """All cases at once, each topic of each under a name of its own: Spark plans for longer than it
    works on a small trace."""
    case = F.array(
        *(F.struct(F.lit(name).alias("case"), each.alias("broker")) for name, each in cases.items())
    )
    return placed.withColumn("case", F.explode(case)).select(
        F.concat("case.case", F.lit(_PART), "topic").alias("topic"),
        F.col("case.broker").alias("broker"),
        "time",
        "messages",
    )


def _on(number: Column) -> Column:
    return F.concat(F.lit("b"), F.pmod(number, F.col("brokers")))


# --- bursts that are drawn --------------------------------------------------------------------


def _ticks(rows: DataFrame, members: DataFrame, shown: Shown, found: dict[str, Figures]) -> None:
    topics = [topic for topic in shown.topics if topic.name in found and topic.drawn]
    if not topics:
        return
    asked = []
    for topic in topics:
        each = found[topic.name]
        each.begins, each.ends = _stretch(topic, each.statistics)
        asked += [
            (topic.name, publisher, each.begins, each.ends, *_burst(group))
            for group in topic.drawn
            for publisher in group.publishers
        ]
    columns = "topic string, publisher string, begins long, ends long, low long, high long"
    spark = rows.sparkSession
    drawn = F.broadcast(spark.createDataFrame(asked, columns))
    time = F.col("time")
    near = time.between(F.col("begins"), F.col("ends")) | time.between(F.col("low"), F.col("high"))
    for row in (
        rows.join(drawn, ["topic", "publisher"])
        .where(near)
        .select("topic", "publisher", "time", "begins", "ends", "low", "high")
        .limit(_MOST_TICKS)
        .collect()
    ):
        each = found[row.topic]
        if row.begins <= row.time <= row.ends:
            each.ticks.setdefault(row.publisher, []).append(row.time)
        if row.low <= row.time <= row.high:
            each.bursts.setdefault(row.publisher, []).append(row.time)
    _lone(rows, members, topics, found)


def _lone(
    rows: DataFrame, members: DataFrame, topics: Sequence[ShownTopic], found: dict[str, Figures]
) -> None:
    """Some publishers of no group, in the same stretch."""
    spark = rows.sparkSession
    stretches = [(topic.name, found[topic.name].begins, found[topic.name].ends) for topic in topics]
    then = F.broadcast(spark.createDataFrame(stretches, "topic string, begins long, ends long"))
    there = rows.join(then, "topic").where(F.col("time").between(F.col("begins"), F.col("ends")))
    alone = there.join(
        members.select("topic", "publisher"), ["topic", "publisher"], "left_anti"
    ).select("topic", "publisher", "time")
    rank = F.dense_rank().over(Window.partitionBy("topic").orderBy(F.xxhash64("publisher")))
    few = alone.withColumn("rank", rank).where(F.col("rank") <= _LONE).limit(_MOST_TICKS)
    for row in few.collect():
        each = found[row.topic]
        if row.publisher not in each.lone:
            each.lone.append(row.publisher)
        each.ticks.setdefault(row.publisher, []).append(row.time)


def _stretch(topic: ShownTopic, statistics: dict[str, Any]) -> tuple[int, int]:
    """Around an instant of the largest group, so long that a publisher has some _TICKS in it."""
    first, last = int(statistics["first"]), int(statistics["last"])
    rate = statistics["messages"] / max(statistics["publishers"], 1) / max(statistics["seconds"], 1)
    length = min(int(_TICKS / max(rate, 1e-9) * NS), last - first)
    middle = next((each for group in topic.groups for each in group.instants), (first + last) // 2)
    begins = max(first, min(middle - length // 2, last - length))
    return begins, begins + length


def _burst(group: Group) -> tuple[int, int]:
    at = group.instants[len(group.instants) // 2] if group.instants else 0
    return at, at + _BURST_NS
