"""Rows in memory, until their file is written."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from srtm.traces.chunk import NO_WAIT, OUTCOMES, ROW_BYTES, Chunk


class Rows:
    """The rows of one broker."""

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
        """Add a chunk's rows, after `name` has learnt its names."""
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
        """The rows in order of arrival; texts as dictionaries, which are written four times as
        fast."""
        chunks = self._chunks
        time = np.concatenate([each.time for each in chunks])
        order = np.argsort(time, kind="stable")
        pairs = list(zip(chunks, self._bases, strict=True))
        topic = np.concatenate([each.topic + base for each, (base, _) in pairs])[order]
        publisher = np.concatenate([each.publisher + base for each, (_, base) in pairs])[order]
        wait = np.concatenate([each.wait for each in chunks])[order]
        outcome = np.concatenate([each.outcome for each in chunks])[order]
        return pa.table(
            {
                "time": time[order],
                "topic": _texts(topic, self._topics),
                "publisher": _texts(publisher, self._publishers),
                "broker": _texts(np.zeros(time.size, np.int8), [self._broker]),
                "messages": np.concatenate([each.messages for each in chunks])[order],
                "bytes": np.concatenate([each.bytes for each in chunks])[order],
                "wait": pa.array(wait, mask=wait == NO_WAIT),
                "outcome": _texts(outcome, OUTCOMES),
            }
        )


def _texts(numbers: NDArray[Any], names: Sequence[str]) -> pa.DictionaryArray:
    """Names that no number has would stand in the file all the same."""
    used = np.zeros(len(names), bool)
    used[numbers] = True
    places = (np.cumsum(used) - 1).astype(np.int32)
    known = pa.array(names, pa.string()).filter(pa.array(used))
    return pa.DictionaryArray.from_arrays(pa.array(places[numbers]), known)
