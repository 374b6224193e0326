"""The smallest burst with which no message waits for a token at a percentile: for each key, or for
a topic that is split over brokers.

A message finds U unfinished messages in a queue that serves r a second; with a burst of U + 1 it
has its token at once (see `limits.queueing`). U at the beginning of a slice is what the slices
before it have left (`after` of `srtm.correlation.envelopes`), so all slices are worked on at once.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from srtm.correlation.envelopes import Stretch, blocks, keys_of, rates, stretches
from srtm.correlation.ranks import nearest_rank
from srtm.correlation.slices import NS, Floats, Stretches, column, sliced, texts, together

HEADROOM = 1.1
PERCENTILE = 0.99
_SLACK = 1e-6
"""messages; a smaller lack of tokens is rounding, of times in ns and sums of a slice"""


def smallest_bursts(
    rows: DataFrame,
    keys: Sequence[str],
    headroom: float = HEADROOM,
    percentile: float = PERCENTILE,
    rows_per_slice: int | None = None,
) -> DataFrame:
    """Columns: keys, messages, rate (headroom times the key's own, messages/s), burst (whole
    messages)."""
    own = rates(rows, keys).withColumn("rate", F.col("rate") * headroom)
    weighted = rows.join(own.select(*keys, "rate"), list(keys)).withColumn("part", F.lit(1.0))
    found = nearest_rank(
        needed(weighted, keys, keys, rows_per_slice), keys, "burst", "count", {"burst": percentile}
    )
    return own.select(*keys, "messages", "rate").join(found, list(keys))


def smallest_split_bursts(
    rows: DataFrame,
    headroom: float = HEADROOM,
    percentile: float = PERCENTILE,
    rows_per_slice: int | None = None,
) -> DataFrame:
    """The smallest bursts of topics whose rate and burst are divided over their brokers in
    proportion to messages. Columns: topic, brokers, messages, rate and burst of the whole topic."""
    topics = rates(rows, ["topic"]).withColumn("rate", F.col("rate") * headroom)
    shares = (
        rows.groupBy("topic", "broker")
        .agg(F.sum("messages").alias("mine"))
        .join(topics.select("topic", "messages", "rate"), "topic")
        .withColumn("part", F.col("mine") / F.col("messages"))
        .select("topic", "broker", "part", (F.col("rate") * F.col("part")).alias("rate"))
    )
    weighted = rows.join(shares, ["topic", "broker"])
    counted = needed(weighted, ["topic", "broker"], ["topic"], rows_per_slice)
    found = nearest_rank(counted, ["topic"], "burst", "count", {"burst": percentile})
    brokers = shares.groupBy("topic").agg(F.count("*").alias("brokers"))
    return (
        topics.select("topic", "messages", "rate")
        .join(brokers, "topic")
        .join(found, "topic")
        .select("topic", "brokers", "messages", "rate", "burst")
    )


def needed(
    rows: DataFrame,
    keys: Sequence[str],
    shown: Sequence[str],
    rows_per_slice: int | None = None,
) -> DataFrame:
    """How many messages need which burst. rows: with `rate`, of the bucket of each key, and `part`,
    of the whole burst that it has. Columns: shown, burst, count."""
    parts = sliced(rows, *([rows_per_slice] if rows_per_slice else []))
    found = blocks(parts, keys, (1.0,))
    in_order = found.repartition(*keys).sortWithinPartitions(*keys, "first", "last")
    left = in_order.mapInArrow(
        partial(_left, keys=keys), f"{texts(keys)}, slice long, unfinished double"
    )
    columns = parts.select(*keys, "slice", "time", "messages", "rate", "part")
    begun = columns.join(left, [*keys, "slice"])
    return together(begun, keys).mapInArrow(
        partial(_needed, keys=keys, shown=shown), f"{texts(shown)}, burst long, count long"
    )


def _left(batches: Iterator[pa.RecordBatch], keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """What each slice of a key begins with. Blocks come by key, in order of time."""
    key: tuple[str, ...] | None = None
    number = -1
    so_far: Stretch | None = None
    for batch in batches:
        taken: list[int] = []
        unfinished: list[float] = []
        numbers = batch.column("slice").to_pylist()
        own = column(batch, "rate", np.float64)
        both = zip(keys_of(batch, keys), stretches(batch), strict=True)
        for row, (mine, stretch) in enumerate(both):
            rate = own[row : row + 1]
            if mine != key:
                key, so_far, number = mine, None, -1
            if numbers[row] != number:
                number = numbers[row]
                taken.append(row)
                unfinished.append(_unfinished(so_far, stretch, rate))
            so_far = stretch if so_far is None else so_far.then(stretch, rate)
        kept = batch.take(pa.array(taken, pa.int64())).select([*keys, "slice"])
        yield pa.RecordBatch.from_arrays(
            [*kept.columns, pa.array(unfinished, pa.float64())],
            names=[*kept.schema.names, "unfinished"],
        )


def _unfinished(before: Stretch | None, stretch: Stretch, rate: Floats) -> float:
    """What its first message finds."""
    if before is None:
        return 0.0
    return max(0.0, float(before.after[0] - rate[0] * (stretch.first - before.last) / NS))


def _needed(
    batches: Iterator[pa.RecordBatch], keys: Sequence[str], shown: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Rows come by key and slice, in order of time."""
    names = [*keys, "slice"]
    last: tuple[list[object], int, float] | None = None  # where the batch before ended
    for batch in batches:
        if not batch.num_rows:
            continue
        of = Stretches.of(batch, keys)
        rate = column(batch, "rate", np.float64)
        unfinished = column(batch, "unfinished", np.float64)[of.begin].copy()
        if last is not None and last[0] == _values(batch, names, 0):
            unfinished[0] = max(0.0, last[2] - rate[0] * (int(of.time[0]) - last[1]) / NS)
        found = _found(of, rate, unfinished)
        last = (
            _values(batch, names, -1),
            int(of.time[-1]),
            float(found[-1] + of.messages[-1]),
        )
        yield _counted(batch, shown, of, found)


def _values(batch: pa.RecordBatch, names: Sequence[str], row: int) -> list[object]:
    return [batch.column(name)[row].as_py() for name in names]


def _found(of: Stretches, rate: Floats, unfinished: Floats) -> Floats:
    """U that the first message of each row finds. unfinished: at the beginning of each stretch."""
    low = of.before - rate * of.seconds
    least = pd.Series(low).groupby(of.number, sort=False).cummin().to_numpy()
    found: Floats = np.maximum(low - least, np.maximum(low + unfinished[of.number], 0.0))
    return found


def _counted(
    batch: pa.RecordBatch, shown: Sequence[str], of: Stretches, found: Floats
) -> pa.RecordBatch:
    part = np.repeat(column(batch, "part", np.float64), of.messages)
    ends = np.cumsum(of.messages)
    place = np.arange(ends[-1]) - np.repeat(ends - of.messages, of.messages) + 1
    needed = np.ceil((np.repeat(found, of.messages) + place - _SLACK) / part)
    key = np.repeat(of.number, of.messages)
    pairs = pd.DataFrame({"key": key, "burst": np.maximum(needed, 1).astype(np.int64)})
    counts = pairs.groupby(["key", "burst"], sort=False).size().reset_index(name="count")
    rows = pa.array(of.begin[counts["key"].to_numpy()])
    return pa.RecordBatch.from_arrays(
        [
            *batch.select(list(shown)).take(rows).columns,
            *(pa.array(counts[name].to_numpy()) for name in ("burst", "count")),
        ],
        names=[*shown, "burst", "count"],
    )
