"""A trace through other buckets: another placement, split or contract, before anybody is moved.

Each message meets the bucket of its broker as a single one, in order of arrival; buckets start
full. All that arrived counts, whatever became of it. One task for each topic and broker.
"""

import csv
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from srtm.correlation.ranks import nearest_rank
from srtm.correlation.slices import NS
from srtm.host.files import open_rows
from srtm.limits.queueing import token_waits
from srtm.text.errors import UsageError
from tb_adaptor.share import Part, divide, even

_WAITS = "topic string, broker string, wait bigint, count bigint"
_COLUMNS = ["publisher", "broker"]


def placed(rows: DataFrame, placement: Mapping[str, str]) -> DataFrame:
    """The trace as if these publishers sent to these brokers; the others stay where they were."""
    if not placement:
        return rows
    spark = rows.sparkSession
    there = spark.createDataFrame(list(placement.items()), "publisher string, _there string")
    moved = rows.join(F.broadcast(there), "publisher", "left")
    return moved.withColumn("broker", F.coalesce("_there", "broker")).select(*rows.columns)


def messages_by_broker(rows: DataFrame) -> dict[str, dict[str, int]]:
    """The messages of each topic by broker: there are only as many counts as a deployment has, so
    they are collected."""
    counted = rows.groupBy("topic", "broker").agg(F.sum("messages").alias("messages"))
    found: dict[str, dict[str, int]] = {}
    for row in counted.orderBy("topic", "broker").collect():
        found.setdefault(row["topic"], {})[row["broker"]] = row["messages"]
    return found


def shares(
    contracts: Mapping[str, Part], messages: Mapping[str, Mapping[str, int]], evenly: bool = False
) -> dict[str, dict[str, Part]]:
    """Each topic's contract divided over its brokers, in proportion to what they get, or evenly.
    Raises UsageError where a bucket would hold less than one message."""
    found = {}
    for topic, contract in contracts.items():
        here = {broker: float(count) for broker, count in messages[topic].items()}
        try:
            found[topic] = even(contract, list(here)) if evenly else divide(contract, here, here)
        except ValueError as error:
            raise UsageError(
                f"topic {topic}: {error}; use fewer brokers or a larger --burst"
            ) from None
    return found


def waits(rows: DataFrame, split: Mapping[str, Mapping[str, Part]]) -> DataFrame:
    """Token waits of messages, in us, rounded. Columns: topic, broker, wait, count. Topics and
    brokers without a share are left out."""
    spark = rows.sparkSession
    buckets = spark.createDataFrame(
        [
            (topic, broker, float(part.rate), float(part.burst))
            for topic, parts in split.items()
            for broker, part in parts.items()
        ],
        "topic string, broker string, rate double, burst double",
    )
    columns = rows.select("topic", "broker", "time", "messages")
    met = columns.join(F.broadcast(buckets), ["topic", "broker"])
    return met.groupBy("topic", "broker").applyInArrow(_one_bucket, _WAITS)


def _one_bucket(table: pa.Table) -> pa.Table:
    time = table.column("time").to_numpy()
    order = np.argsort(time, kind="stable")
    seconds = (time[order] - time[order[0]]) / NS
    messages = table.column("messages").to_numpy()[order]
    rate, burst = (table.column(name)[0].as_py() for name in ("rate", "burst"))
    found = token_waits(np.repeat(seconds, messages), rate, burst)
    wait, count = np.unique(np.rint(found * 1e6).astype(np.int64), return_counts=True)
    first = pa.array(np.zeros(wait.size, np.int64))
    return pa.table(
        {
            "topic": table.column("topic").take(first),
            "broker": table.column("broker").take(first),
            "wait": wait,
            "count": count.astype(np.int64),
        }
    )


def figures(found: DataFrame, keys: list[str], late_us: int | None) -> DataFrame:
    """Figures of `waits`, by topic and broker or by topic: messages, mean, p50, p99 and worst in
    ms, and the share that waits longer than late_us (null without)."""
    summed = found.groupBy(*keys).agg(
        F.sum("count").alias("messages"),
        (F.sum(F.col("wait") * F.col("count")) / F.sum("count") / 1e3).alias("mean_ms"),
        (F.max("wait") / 1e3).alias("worst_ms"),
        (
            F.sum(F.when(F.col("wait") > late_us, F.col("count")).otherwise(0)) / F.sum("count")
            if late_us is not None
            else F.lit(None).cast("double")
        ).alias("late_share"),
    )
    ranks = nearest_rank(found, keys, "wait", "count", {"p50": 0.5, "p99": 0.99})
    return summed.join(ranks, keys).select(
        *keys,
        "messages",
        "mean_ms",
        (F.col("p50") / 1e3).alias("p50_ms"),
        (F.col("p99") / 1e3).alias("p99_ms"),
        "worst_ms",
        "late_share",
    )


def read_placement(path: Path) -> dict[str, str]:
    """A CSV file with the columns publisher and broker. Raises UsageError with the line."""
    found: dict[str, str] = {}
    try:
        with open_rows(path) as file:
            rows = csv.reader(file)
            header = [each.strip() for each in next(rows, [])]
            if header != _COLUMNS:
                shown = ", ".join(header) or "missing"
                raise UsageError(
                    f"{path}: line 1: the columns are {shown}; write {','.join(_COLUMNS)}"
                )
            for row in rows:
                if not row:
                    continue
                where = f"{path}: line {rows.line_num}"
                if len(row) != len(_COLUMNS) or not all(each.strip() for each in row):
                    raise UsageError(f"{where}: write a publisher and its broker")
                publisher, broker = (each.strip() for each in row)
                if found.setdefault(publisher, broker) != broker:
                    raise UsageError(f"{where}: {publisher} has a broker already")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path}: no CSV file: {error}") from None
    return found
