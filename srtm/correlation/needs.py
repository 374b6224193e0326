"""Answers about a trace as plain documents: what the commands print."""

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from srtm.correlation import statistics, what_if
from srtm.correlation.bursts import smallest_bursts, smallest_split_bursts
from srtm.correlation.envelopes import envelopes
from srtm.correlation.slices import texts
from tb_adaptor.share import Part

Document = dict[str, Any]
ONE_BUCKET = "one bucket"


def envelope_document(
    rows: DataFrame, keys: tuple[str, ...], headroom: float, percentile: float, most: int
) -> Document:
    """The envelopes of the `most` keys that need the biggest bursts, and the bursts of topics that
    are split over brokers."""
    needed = smallest_bursts(rows, keys, headroom, percentile)
    chosen = needed.orderBy(F.desc("burst"), F.desc("messages"), *keys).limit(most).collect()
    spark = rows.sparkSession
    names = spark.createDataFrame(
        [tuple(row[key] for key in keys) for row in chosen],
        texts(keys),
    )
    curves: dict[tuple[str, ...], list[Document]] = {}
    if chosen:
        mine = rows.join(F.broadcast(names), list(keys))
        for row in envelopes(mine, keys).orderBy("multiple").collect():
            key = tuple(row[each] for each in keys)
            curves.setdefault(key, []).append({"rate": row["rate"], "burst": row["burst"]})
    return {
        "headroom": headroom,
        "percentile": percentile,
        "keys": list(keys),
        "envelopes": [
            {**row.asDict(), "curve": curves[tuple(row[key] for key in keys)]} for row in chosen
        ],
        "split": [
            row.asDict()
            for row in smallest_split_bursts(rows, headroom, percentile).orderBy("topic").collect()
        ],
    }


def statistics_document(rows: DataFrame, most: int, target_seconds: float | None) -> Document:
    """most: talkers of each topic"""
    topics: dict[str, Document] = {}
    for row in statistics.totals(rows).orderBy("topic").collect():
        topics[row["topic"]] = {
            **row.asDict(),
            "dispersion": {},
            "hours": [0.0] * 24,
            "drift": None,
            "talkers": [],
        }
    for row in statistics.dispersion(rows).collect():
        topics[row["topic"]]["dispersion"] = {
            name.removeprefix("dispersion_"): value
            for name, value in row.asDict().items()
            if name != "topic"
        }
    for row in statistics.hours(rows).collect():
        topics[row["topic"]]["hours"][row["hour"]] = row["share"]
    for row in statistics.drift(rows).collect():
        topics[row["topic"]]["drift"] = row["drift"]
    for row in statistics.talkers(rows, most).orderBy("topic", "place").collect():
        talker = {name: row[name] for name in ("publisher", "messages", "share")}
        topics[row["topic"]]["talkers"].append(talker)
    if target_seconds is not None:
        for row in statistics.late(rows, target_seconds).collect():
            causes = {name: row[name] for name in ("tokens", "rejected", "closed")}
            topics[row["topic"]]["late"] = causes
    return {"topics": list(topics.values())}


def what_if_document(
    rows: DataFrame,
    contracts: Mapping[str, Part],
    placement: Mapping[str, str],
    evenly: bool,
    target_seconds: float | None,
) -> Document:
    """What each topic of `contracts` would wait: in one bucket, at the brokers as traced, and as
    placed."""
    late_us = None if target_seconds is None else round(target_seconds * 1e6)
    known = rows.where(F.col("topic").isin(list(contracts)))
    cases = {"traced": known}
    if placement:
        cases["placed"] = what_if.placed(known, placement)
    documents: dict[str, Document] = {
        topic: {"topic": topic, "contract": contract._asdict(), "cases": {}}
        for topic, contract in contracts.items()
    }
    whole = {topic: {ONE_BUCKET: contract} for topic, contract in contracts.items()}
    found = what_if.waits(known.withColumn("broker", F.lit(ONE_BUCKET)), whole)
    for topic, row in _figures(found, ["topic"], late_us):
        documents[topic]["cases"]["one_bucket"] = row
    for name, each in cases.items():
        split = what_if.shares(contracts, what_if.messages_by_broker(each), evenly)
        found = what_if.waits(each, split)
        for topic, row in _figures(found, ["topic"], late_us):
            documents[topic]["cases"][name] = {**row, "brokers": []}
        for topic, row in _figures(found, ["topic", "broker"], late_us):
            part = split[topic][row["broker"]]
            documents[topic]["cases"][name]["brokers"].append({**row, **part._asdict()})
    return {"topics": list(documents.values())}


def _figures(
    found: DataFrame, keys: list[str], late_us: int | None
) -> Iterator[tuple[str, Document]]:
    """The topic, and the other columns, of each row."""
    # Few rows are left: sorting them in Spark would be one more exchange.
    rows = what_if.figures(found, keys, late_us).collect()
    for row in sorted(rows, key=lambda row: [row[key] for key in keys]):
        document = row.asDict()
        yield document.pop("topic"), document
