"""A whole partition of a frame as numpy arrays, and back: what Arrow carries without a copy."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

Columns = dict[str, NDArray[Any]]
"""Arrays by name of the column, all of one length; of type object where numpy has no type for
it."""

_ROWS = 100_000
"""of a batch that goes back to the JVM"""


def by_partition(
    frame: DataFrame, step: Callable[[pa.Table], Iterable[pa.Table]], schema: StructType
) -> DataFrame:
    """`step` is given each partition as one table, none where it is empty. So partitions have to
    be of a bounded size."""

    def apply(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        kept = [batch for batch in batches if batch.num_rows]
        if kept:
            for table in step(pa.Table.from_batches(kept).combine_chunks()):
                yield from table.to_batches(max_chunksize=_ROWS)

    return frame.mapInArrow(apply, schema)


def numbers(table: pa.Table, name: str) -> NDArray[Any]:
    """A column without nulls."""
    column = table.column(name)
    if not column.num_chunks:
        return np.empty(0, column.type.to_pandas_dtype())
    found: NDArray[Any] = column.to_numpy()
    return found


def pack(values: NDArray[Any], sizes: NDArray[np.int64]) -> pa.Array:
    """A binary column whose n-th row has the bytes of the next sizes[n] values."""
    width = values.dtype.itemsize
    offsets = np.concatenate([[0], np.cumsum(sizes) * width]).astype(np.int64)
    data = pa.py_buffer(np.ascontiguousarray(values).tobytes())
    large = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), sizes.size, [None, pa.py_buffer(offsets.tobytes()), data]
    )
    return large.cast(pa.binary())


def unpack(table: pa.Table, name: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The int64 of all rows of a binary column, one behind the other, and where each row begins,
    with the end."""
    chunks, sizes = [], []
    for chunk in table.column(name).chunks:
        kind = np.int64 if pa.types.is_large_binary(chunk.type) else np.int32
        offsets = np.frombuffer(chunk.buffers()[1], kind)[chunk.offset :][: len(chunk) + 1]
        data = chunk.buffers()[2]
        if data is not None:
            chunks.append(np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]])
        sizes.append(np.diff(offsets.astype(np.int64)) // 8)
    starts = np.concatenate([[0], np.cumsum(np.concatenate(sizes))]) if sizes else np.zeros(1)
    flat = np.concatenate(chunks) if chunks else np.empty(0, np.uint8)
    return flat.view(np.int64), starts.astype(np.int64)
