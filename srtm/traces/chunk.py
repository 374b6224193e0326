"""Rows on their way from a gateway to the process that writes them: bytes of a pipe. No I/O.

A chunk is a head, the names that are new, and the columns one after the other. Topics and
publishers are numbers, in the order in which they were named; `anew` forgets all names before.
"""

import json
import struct
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

OUTCOMES = ("admitted", "rejected", "closed")
ADMITTED, REJECTED, CLOSED = range(3)
NO_WAIT = -1
_HEAD = struct.Struct("<?IIq")  # anew, bytes of the names, rows, wall clock minus monotonic
_COLUMNS = (("q", np.int64), ("i", np.int32), ("i", np.int32), ("i", np.int32), ("q", np.int64),
            ("q", np.int64), ("b", np.int8))  # fmt: skip
ROW_BYTES = sum(array(code).itemsize for code, _ in _COLUMNS)
_PREFIX_BYTES = 4
"""that stand before each message in what a gateway counts as its bytes"""


@dataclass(frozen=True, eq=False, slots=True)
class Chunk:
    """topics, publishers: new names. Columns are of shape (n,); time: ns since 1970; bytes: of
    bodies; wait: ns, NO_WAIT where it was not admitted."""

    anew: bool
    topics: list[str]
    publishers: list[str]
    time: NDArray[np.int64]
    topic: NDArray[np.int32]
    publisher: NDArray[np.int32]
    messages: NDArray[np.int32]
    bytes: NDArray[np.int64]
    wait: NDArray[np.int64]
    outcome: NDArray[np.int8]


def build(
    anew: bool,
    offset_ns: int,
    names: tuple[list[str], list[str]],
    columns: tuple[
        Sequence[int], Sequence[int], Sequence[int], Sequence[int], Sequence[int], Sequence[int],
        Sequence[int],
    ],
) -> bytes:  # fmt: skip
    """columns: monotonic stamps, numbers of topics, of publishers, messages, bytes with their
    prefixes, waits, outcomes."""
    named = json.dumps(names).encode() if names[0] or names[1] else b""
    head = _HEAD.pack(anew, len(named), len(columns[0]), offset_ns)
    parts = [
        array(code, column).tobytes() for (code, _), column in zip(_COLUMNS, columns, strict=True)
    ]
    return b"".join((head, named, *parts))


def read(buffer: bytearray) -> Iterator[Chunk]:
    """Take the whole ones off the front of `buffer`."""
    place = 0
    try:
        while len(buffer) - place >= _HEAD.size:
            anew, named_bytes, rows, offset_ns = _HEAD.unpack_from(buffer, place)
            begin = place + _HEAD.size
            end = begin + named_bytes + rows * ROW_BYTES
            if len(buffer) < end:
                return
            named = bytes(buffer[begin : begin + named_bytes])
            yield _chunk(anew, named, bytes(buffer[begin + named_bytes : end]), rows, offset_ns)
            place = end
    finally:
        del buffer[:place]


def _chunk(anew: bool, named: bytes, data: bytes, rows: int, offset_ns: int) -> Chunk:
    topics, publishers = json.loads(named) if named else ([], [])
    columns: list[Any] = []
    place = 0
    for code, kind in _COLUMNS:
        columns.append(np.frombuffer(data, kind, rows, place))
        place += rows * array(code).itemsize
    stamps, topic, publisher, messages, sizes, wait, outcome = columns
    bodies = sizes - _PREFIX_BYTES * messages.astype(np.int64)
    return Chunk(
        anew, topics, publishers, stamps + offset_ns, topic, publisher, messages, bodies, wait,
        outcome,
    )  # fmt: skip
