"""The format of an admission log. No I/O, no clock.

A file is a row of blocks, each with its size and a checksum, so that every whole block of a log
that was cut off can be read. The first one is a HEADER. Numbers are little-endian. Times are
monotonic nanoseconds of the host, except where wall clock is said.

| block      | payload |
|------------|---------|
| HEADER     | JSON: `version`, `broker`, `boot` (id of the running machine), `process`, `file`  |
| WORD       | a topic's number in this file, its limit from a time on, its name                 |
| ADMISSIONS | who got tokens when: columns of instants, rows of what does not fit into them     |
| BEAT       | everything decided until this time is above; the wall clock's offset and error    |
| DROPPED    | messages that were admitted in a span of time and are not in the log              |
| END        | the gateway has stopped; without it the log was cut, or is still written          |

A file stands alone: it tells again what it needs of those before it.
"""

import json
import struct
import sys
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import repeat, starmap
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from srtm.host.files import json_of

VERSION = 1
MAX_BLOCK_BYTES = 64 << 20
"""of a payload; a reader believes no larger one"""

_FRAME = struct.Struct("<IIB")  # bytes of the payload, CRC-32 of kind and payload, kind
_WORD = struct.Struct("<IqBddddQ")
_ADMISSIONS = struct.Struct("<qII")
_BEAT = struct.Struct("<qqqQ")
_DROPPED = struct.Struct("<qqQ")
_INSTANT_BYTES = 8  # 4 of the time since the block's base, 2 of the topic's number, 2 of the count
_WIDE_ROW = struct.Struct("<IqdI")
_WIDE = np.dtype([("number", "<u4"), ("first", "<i8"), ("step", "<f8"), ("count", "<u4")])


class Kind(IntEnum):
    """The kind of a block."""

    HEADER = 1
    WORD = 2
    ADMISSIONS = 3
    BEAT = 4
    DROPPED = 5
    END = 6


_KINDS = frozenset(map(int, Kind))


class Rule(IntEnum):
    """Whose limit a topic has."""

    NONE = 0  # no limit: everything passes
    OWN = 1  # of the gateway's options, state file or admin socket
    SHARE = 2  # of a Load Distributor
    SHUT = 3  # it has a contract, and no share of it here
    FLOOR = 4  # of a Load Distributor: no more of it than is left without contact


class Word(NamedTuple):
    """A topic's limit on one broker.

    rate, burst:             in force there; 0 where there is none
    whole_rate, whole_burst: of the whole contract, as a Load Distributor told it; 0: it told none
    epoch:                   of the newest that it told
    """

    rule: Rule
    rate: float = 0.0
    burst: float = 0.0
    whole_rate: float = 0.0
    whole_burst: float = 0.0
    epoch: int = 0


class Beat(NamedTuple):
    """offset_ns: wall clock minus monotonic; error_ns: of the wall clock, as the kernel says;
    dropped: messages, since the process began."""

    until: int
    offset_ns: int
    error_ns: int
    dropped: int


@dataclass(frozen=True)
class Admissions:
    """The admissions of one block: message k of row i got its token at firsts[i] + k * steps[i];
    shape (n,)."""

    numbers: NDArray[np.int64]
    firsts: NDArray[np.int64]
    steps: NDArray[np.float64]
    counts: NDArray[np.int64]


def frame(kind: Kind, payload: bytes) -> bytes:
    return _FRAME.pack(len(payload), _checksum(kind, payload), kind) + payload


def header(broker: str, boot: str, process: str, file: int) -> bytes:
    said = {"version": VERSION, "broker": broker, "boot": boot, "process": process, "file": file}
    return frame(Kind.HEADER, json.dumps(said).encode())


def word(number: int, at: int, name: bytes, said: Word) -> bytes:
    return frame(Kind.WORD, _WORD.pack(number, at, *said) + name)


def beat(said: Beat) -> bytes:
    return frame(Kind.BEAT, _BEAT.pack(*said))


def dropped(since: int, until: int, messages: int) -> bytes:
    return frame(Kind.DROPPED, _DROPPED.pack(since, until, messages))


def admissions(
    numbers: Sequence[int],
    firsts: Sequence[int],
    counts: Sequence[int],
    ramps: Iterable[tuple[int, int, float, int]],
) -> bytes:
    """Instants as columns: topics' numbers, times, messages; ramps: (number, first, step in ns,
    messages). 0.15 us an instant: arrays of the standard library build faster than numpy's."""
    base = firsts[0] if firsts else 0
    try:
        columns = (
            array("i", [first - base for first in firsts]),
            array("H", numbers),
            array("H", counts),
        )
        rows = b"".join(starmap(_WIDE_ROW.pack, ramps))
    except OverflowError:
        rest = zip(numbers, firsts, repeat(0.0), counts, strict=False)
        return admissions((), (), (), [*rest, *ramps])
    if sys.byteorder == "big":
        for column in columns:
            column.byteswap()
    head = _ADMISSIONS.pack(base, len(firsts), len(rows) // _WIDE_ROW.size)
    return frame(Kind.ADMISSIONS, b"".join((head, *(each.tobytes() for each in columns), rows)))


def end() -> bytes:
    return frame(Kind.END, b"")


def read(data: memoryview) -> Iterator[tuple[Kind, memoryview, int]]:
    """(kind, payload, where the block ends) of each whole block, up to the first that is not. A
    block of a kind that is not known is passed over."""
    place = 0
    while place + _FRAME.size <= len(data):
        size, checksum, kind = _FRAME.unpack_from(data, place)
        stop = place + _FRAME.size + size
        if size > MAX_BLOCK_BYTES or stop > len(data):
            return
        payload = data[place + _FRAME.size : stop]
        if _checksum(kind, payload) != checksum:
            return
        if kind in _KINDS:
            yield Kind(kind), payload, stop
        place = stop


def read_header(payload: memoryview) -> dict[str, Any]:
    """Raises ValueError for that of another format."""
    document = json_of(bytes(payload))
    if not isinstance(document, dict) or document.get("version") != VERSION:
        raise ValueError("another version")
    for key, kind in (("broker", str), ("boot", str), ("process", str), ("file", int)):
        if type(document.get(key)) is not kind:
            raise ValueError(f"no {key}")
    return document


def read_word(payload: memoryview) -> tuple[int, int, bytes, Word]:
    """(number, from when on, name, what). Raises ValueError."""
    number, at, rule, *figures = _unpacked(_WORD, payload[: _WORD.size], "a short word")
    return number, at, bytes(payload[_WORD.size :]), Word(Rule(rule), *figures)


def read_admissions(payload: memoryview) -> Admissions:
    """Raises ValueError."""
    head = payload[: _ADMISSIONS.size]
    base, narrow, wide = _unpacked(_ADMISSIONS, head, "short admissions")
    if len(payload) != _ADMISSIONS.size + narrow * _INSTANT_BYTES + wide * _WIDE.itemsize:
        raise ValueError("admissions of another size")
    place = _ADMISSIONS.size
    since = np.frombuffer(payload, "<i4", narrow, place)
    numbers = np.frombuffer(payload, "<u2", narrow, place + 4 * narrow)
    counts = np.frombuffer(payload, "<u2", narrow, place + 6 * narrow)
    rows = np.frombuffer(payload, _WIDE, wide, place + _INSTANT_BYTES * narrow)
    return Admissions(
        np.concatenate([numbers, rows["number"]]).astype(np.int64),
        np.concatenate([since.astype(np.int64) + base, rows["first"]]),
        np.concatenate([np.zeros(narrow), rows["step"]]),
        np.concatenate([counts, rows["count"]]).astype(np.int64),
    )


def read_beat(payload: memoryview) -> Beat:
    """Raises ValueError."""
    return Beat(*_unpacked(_BEAT, payload, "a short beat"))


def read_dropped(payload: memoryview) -> tuple[int, int, int]:
    """(since, until, messages). Raises ValueError."""
    since, until, messages = _unpacked(_DROPPED, payload, "a short record of what was dropped")
    return since, until, messages


def _unpacked(layout: struct.Struct, payload: memoryview, fault: str) -> tuple[Any, ...]:
    try:
        return layout.unpack(payload)
    except struct.error:
        raise ValueError(fault) from None


def _checksum(kind: int, payload: bytes | memoryview) -> int:
    return zlib.crc32(payload, kind)
