"""The r-b curve of each publisher, group, topic or broker: with rate r, the burst b that it needs
so that nobody waits for a token (Cruz 1991: the smallest b with arrivals <= b + r t over any
interval of t seconds, both its ends included).

A stretch of arrivals is summed up for one r by four figures, and two stretches that follow each
other are put together by these alone, exactly and in any order (it is a monoid over max and +):

    messages
    most:   of arrivals - r t, over any interval within it
    before: over those that begin with its first arrival
    after:  over those that end with its last
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from srtm.correlation.slices import NS, Floats, Stretches, column, sliced, texts, together

BY = {
    "publisher": ("topic", "publisher"),
    "group": ("topic", "group"),
    "topic": ("topic",),
    "broker": ("topic", "broker"),
}
MULTIPLES = (1.01, 1.05, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
"""of a key's own rate. At the rate itself b would grow with the length of the trace."""

_FIGURES = ("most", "before", "after")


def rates(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Columns: keys, messages, seconds, rate (messages/s: those after the first run over the time
    since; 0 where there is one instant only)."""
    found = rows.groupBy(*keys).agg(
        F.sum("messages").alias("messages"),
        F.min("time").alias("first"),
        ((F.max("time") - F.min("time")) / NS).alias("seconds"),
        F.min_by("messages", "time").alias("at_first"),
    )
    rate = (F.col("messages") - F.col("at_first")) / F.col("seconds")
    return found.select(
        *keys,
        "messages",
        "seconds",
        F.when(F.col("seconds") > 0, rate).otherwise(F.lit(0.0)).alias("rate"),
    )


def envelopes(
    rows: DataFrame,
    keys: Sequence[str],
    multiples: Sequence[float] = MULTIPLES,
    rows_per_slice: int | None = None,
) -> DataFrame:
    """Columns: keys, messages, seconds, multiple, rate (multiple times the key's own, messages/s),
    burst (messages)."""
    own = rates(rows, keys)
    parts = sliced(rows, *([rows_per_slice] if rows_per_slice else []))
    found = blocks(parts.join(own.select(*keys, "rate"), list(keys)), keys, multiples)
    whole = found.repartition(*keys).sortWithinPartitions(*keys, "first", "last")
    curves = whole.mapInArrow(
        partial(_curves, keys=keys, multiples=multiples),
        f"{texts(keys)}, multiple double, rate double, burst double",
    )
    return own.drop("rate").join(curves, list(keys))


def blocks(rows: DataFrame, keys: Sequence[str], multiples: Sequence[float]) -> DataFrame:
    """Stretches of one key within one slice, with their figures for each multiple of `rate`.
    rows: with slice and rate. Columns: keys, slice, rate, first, last, messages and _FIGURES."""
    schema = f"{texts(keys)}, slice long, rate double, first long, last long, messages long"
    figures = ", ".join(f"{each} array<double>" for each in _FIGURES)
    return together(rows.select(*keys, "slice", "time", "messages", "rate"), keys).mapInArrow(
        partial(_blocks, keys=keys, multiples=multiples), f"{schema}, {figures}"
    )


def _blocks(
    batches: Iterator[pa.RecordBatch], keys: Sequence[str], multiples: Sequence[float]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.num_rows:
            yield _block(batch, keys, multiples)


def _block(
    batch: pa.RecordBatch, keys: Sequence[str], multiples: Sequence[float]
) -> pa.RecordBatch:
    of = Stretches.of(batch, keys)
    after = of.before + of.messages
    end = np.append(of.begin[1:], batch.num_rows) - 1
    rate = column(batch, "rate", np.float64)
    figures = np.empty((len(_FIGURES), of.begin.size, len(multiples)))
    for place, multiple in enumerate(multiples):
        drained = multiple * rate * of.seconds
        low = pd.Series(of.before - drained)
        least = low.groupby(of.number, sort=False).cummin().to_numpy()
        high = after - drained
        figures[0, :, place] = np.maximum.reduceat(high - least, of.begin)
        figures[1, :, place] = np.maximum.reduceat(high, of.begin)
        figures[2, :, place] = high[end] - least[end]
    kept = batch.take(pa.array(of.begin)).select([*keys, "slice", "rate"])
    numbers = (of.time[of.begin], of.time[end], after[end])
    return pa.RecordBatch.from_arrays(
        [*kept.columns, *map(pa.array, numbers), *map(_lists, figures)],
        names=[*kept.schema.names, "first", "last", "messages", *_FIGURES],
    )


def _lists(values: Floats) -> pa.ListArray:
    offsets = np.arange(0, values.size + 1, values.shape[1], dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values.ravel()))


@dataclass(slots=True)
class Stretch:
    """Times are ns, figures of shape (multiples,)."""

    first: int
    last: int
    messages: int
    most: Floats
    before: Floats
    after: Floats

    def then(self, other: "Stretch", rates: Floats) -> "Stretch":
        """This stretch together with what follows it. rates: messages/s, shape (multiples,)."""
        gap = rates * ((other.first - self.last) / NS)
        to_first = rates * ((other.first - self.first) / NS)
        to_last = rates * ((other.last - self.last) / NS)
        return Stretch(
            self.first,
            other.last,
            self.messages + other.messages,
            np.maximum(np.maximum(self.most, other.most), self.after - gap + other.before),
            np.maximum(self.before, self.messages - to_first + other.before),
            np.maximum(other.after, other.messages - to_last + self.after),
        )


def stretches(batch: pa.RecordBatch) -> list[Stretch]:
    """The stretch of each block."""
    rows = batch.num_rows
    figures = [
        batch.column(each).flatten().to_numpy(zero_copy_only=False).reshape(rows, -1)
        for each in _FIGURES
    ]
    numbers = [batch.column(each).to_pylist() for each in ("first", "last", "messages")]
    return [
        Stretch(first, last, messages, *(each[row] for each in figures))
        for row, (first, last, messages) in enumerate(zip(*numbers, strict=True))
    ]


def keys_of(batch: pa.RecordBatch, keys: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The key of each row."""
    return zip(*(batch.column(each).to_pylist() for each in keys), strict=True)


def _curves(
    batches: Iterator[pa.RecordBatch], keys: Sequence[str], multiples: Sequence[float]
) -> Iterator[pa.RecordBatch]:
    """Blocks come by key, in order of time."""
    held: tuple[tuple[str, ...], Floats, Stretch] | None = None
    for batch in batches:
        done = []
        own = column(batch, "rate", np.float64)
        both = zip(keys_of(batch, keys), stretches(batch), strict=True)
        for row, (key, stretch) in enumerate(both):
            if held is not None and held[0] == key:
                held = key, held[1], held[2].then(stretch, held[1])
                continue
            if held is not None:
                done.append(held)
            held = key, own[row] * np.array(multiples), stretch
        if done:
            yield _curve(done, keys, multiples)
    if held is not None:
        yield _curve([held], keys, multiples)


def _curve(
    done: list[tuple[tuple[str, ...], Floats, Stretch]],
    keys: Sequence[str],
    multiples: Sequence[float],
) -> pa.RecordBatch:
    """A row for each key and multiple."""
    names = zip(*(key for key, _, _ in done for _ in multiples), strict=True)
    figures = [
        np.tile(np.array(multiples), len(done)),
        np.concatenate([rate for _, rate, _ in done]),
        np.concatenate([stretch.most for _, _, stretch in done]),
    ]
    return pa.RecordBatch.from_arrays(
        [*(pa.array(each, pa.string()) for each in names), *map(pa.array, figures)],
        names=[*keys, "multiple", "rate", "burst"],
    )
