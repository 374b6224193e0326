"""Rows in memory, until their file is written."""

import numpy as np
import pyarrow as pa

from srtm.traces.chunk import NO_WAIT, ROW_BYTES, Chunk
from srtm.traces.schema import OUTCOMES, SCHEMA


class Rows:
    """Of one broker."""

    def __init__(self, broker: str) -> None:
        self._broker = broker
        self._chunks: list[Chunk] = []
        # Names by number; those before the bases were forgotten, and rows in hand still use them.
        self._topics: list[str] = []
        self._publishers: list[str] = []
        self._topic_base = self._publisher_base = 0
        self._bases: list[tuple[int, int]] = []  # of each chunk
        self.count = 0
        self.messages = 0

    @property
    def nbytes(self) -> int:
        return self.count * ROW_BYTES

    def name(self, chunk: Chunk) -> None:
        """Learn its names, whether its rows are kept or not."""
        if chunk.anew:
            self._topic_base, self._publisher_base = len(self._topics), len(self._publishers)
        self._topics += chunk.topics
        self._publishers += chunk.publishers

    def add(self, chunk: Chunk) -> None:
        """After `name`."""
        self._chunks.append(chunk)
        self._bases.append((self._topic_base, self._publisher_base))
        self.count += chunk.time.size
        self.messages += int(chunk.messages.sum())

    def clear(self) -> None:
        """They are in a file."""
        self._chunks, self._bases = [], []
        self.count = self.messages = 0
        del self._topics[: self._topic_base], self._publishers[: self._publisher_base]
        self._topic_base = self._publisher_base = 0

    def table(self) -> pa.Table:
        """In order of arrival."""
        chunks = self._chunks
        time = np.concatenate([each.time for each in chunks])
        topic = np.concatenate(
            [each.topic + base for each, (base, _) in zip(chunks, self._bases, strict=True)]
        )
        publisher = np.concatenate(
            [each.publisher + base for each, (_, base) in zip(chunks, self._bases, strict=True)]
        )
        wait = np.concatenate([each.wait for each in chunks])
        outcome = np.concatenate([each.outcome for each in chunks])
        table = pa.Table.from_arrays(
            [
                pa.array(time),
                pa.array(self._topics, pa.string()).take(pa.array(topic)),
                pa.array(self._publishers, pa.string()).take(pa.array(publisher)),
                pa.repeat(pa.scalar(self._broker, pa.string()), len(time)),
                pa.array(np.concatenate([each.messages for each in chunks])),
                pa.array(np.concatenate([each.bytes for each in chunks])),
                pa.array(wait, mask=wait == NO_WAIT),
                pa.array(OUTCOMES, pa.string()).take(pa.array(outcome)),
            ],
            schema=SCHEMA,
        )
        return table.take(pa.array(np.argsort(time, kind="stable")))
