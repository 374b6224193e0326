"""A trace cut in pieces by key and time, so that whoever sends half of everything hangs no task.

Rows of one key and one slice of time come sorted to one task, as Arrow batches; a batch may end
anywhere within them. What a task finds of a stretch is put together along time by an associative
rule (see `srtm.correlation.envelopes`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

ROWS_PER_SLICE = 500_000
"""of all keys together: a task then holds tens of MB whoever they are of"""
NS = 1e9


def sliced(rows: DataFrame, rows_per_slice: int = ROWS_PER_SLICE) -> DataFrame:
    """The rows with a column `slice`: the number of their slice of time, from 0. All slices are
    equally long."""
    count, first, last = rows.agg(F.count("*"), F.min("time"), F.max("time")).collect()[0]
    slices = max(1, -(-int(count) // rows_per_slice))
    if slices == 1:
        return rows.withColumn("slice", F.lit(0).cast("long"))
    length = (int(last) - int(first)) // slices + 1
    return rows.withColumn("slice", F.floor((F.col("time") - F.lit(int(first))) / length))


def together(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The rows with each key's slices in one task each, in order of time."""
    return rows.repartition(*keys, "slice").sortWithinPartitions(*keys, "slice", "time")


def texts(keys: Sequence[str]) -> str:
    """The columns of keys, in a schema."""
    return ", ".join(f"{each} string" for each in keys)


@dataclass(frozen=True, slots=True)
class Stretches:
    """Rows of one key and slice in a batch, in order of time.

    begin:   the first row of each
    number:  of its stretch, for each row
    time:    ns since 1970, for each row; seconds: since its stretch begins
    messages, before: of each row, and of the rows before it in its stretch
    """

    begin: Integers
    number: Integers
    time: Integers
    seconds: Floats
    messages: Integers
    before: Integers

    @classmethod
    def of(cls, batch: pa.RecordBatch, keys: Sequence[str]) -> "Stretches":
        """batch: of `together`, not empty"""
        rows = batch.num_rows
        changes = np.zeros(rows, bool)
        changes[0] = True
        for name in (*keys, "slice"):
            values = batch.column(name)
            differs = pc.not_equal(values.slice(1), values.slice(0, rows - 1))
            changes[1:] |= differs.to_numpy(zero_copy_only=False)
        begin, number = np.flatnonzero(changes), np.cumsum(changes) - 1
        time = column(batch, "time", np.int64)
        messages = column(batch, "messages", np.int64)
        before = np.cumsum(messages) - messages
        return cls(
            begin,
            number,
            time,
            (time - time[begin][number]) / NS,
            messages,
            before - before[begin][number],
        )


def column(batch: pa.RecordBatch, name: str, kind: type) -> NDArray[Any]:
    found: NDArray[Any] = batch.column(name).to_numpy(zero_copy_only=False)
    return found.astype(kind, copy=False)
