"""What nsqd sends: frames of [size][type][data], and messages inside them. No I/O."""

import struct
from typing import NamedTuple

RESPONSE, ERROR, MESSAGE = 0, 1, 2
HEARTBEAT_DATA = b"_heartbeat_"

_HEADER = struct.Struct(">iI")
_MESSAGE = struct.Struct(">qH16s")


def build_frame(kind: int, data: bytes) -> bytes:
    return _HEADER.pack(len(data) + 4, kind) + data


OK_FRAME = build_frame(RESPONSE, b"OK")
HEARTBEAT_FRAME = build_frame(RESPONSE, HEARTBEAT_DATA)


class Frame(NamedTuple):
    kind: int
    data: bytes


class Message(NamedTuple):
    """A delivered message; `timestamp_ns` is nsqd's wall-clock time of receipt."""

    timestamp_ns: int
    attempts: int
    id: bytes
    body: bytes


class FrameError(Exception):
    """Bytes that cannot be frames: not an nsqd, or a stream out of step."""


def parse_message(data: bytes) -> Message:
    """The message in the data of a MESSAGE frame. Raises FrameError."""
    if len(data) < _MESSAGE.size:
        raise FrameError(f"message frame of {len(data)} bytes is shorter than a message header")
    timestamp_ns, attempts, message_id = _MESSAGE.unpack_from(data)
    return Message(timestamp_ns, attempts, message_id, data[_MESSAGE.size :])


class FrameReader:
    """Bytes in at any cut, whole frames out; holds at most one frame of `max_size` bytes."""

    __slots__ = ("_max_size", "_need", "_tail")

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._tail = bytearray()
        self._need = 8

    def feed(self, data: bytes) -> list[Frame]:
        """Raises FrameError on a size that no nsqd would send; the stream is lost then."""
        raw, ends = self.feed_raw(data)
        frames = []
        start = 0
        for end in ends:
            frames.append(Frame(raw[start + 7], raw[start + 8 : end]))
            start = end
        return frames

    def feed_raw(self, data: bytes) -> tuple[bytes, list[int]]:
        """The bytes of all frames that are whole now, and where each one ends."""
        tail = self._tail
        if tail:
            tail += data
            if len(tail) < self._need:
                return b"", []
            data = bytes(tail)
            tail.clear()
        ends: list[int] = []
        position, length = 0, len(data)
        unpack = _HEADER.unpack_from
        self._need = 8
        while position + 8 <= length:
            size, kind = unpack(data, position)
            if not 4 <= size <= self._max_size or kind > MESSAGE:
                self._check(size, kind)
            end = position + 4 + size
            if end > length:
                self._need = 4 + size
                break
            ends.append(end)
            position = end
        if position < length:
            tail += data[position:]
            data = data[:position]
        return data, ends

    def end_of_first(self, data: bytes) -> int:
        """Where the first frame of `data` ends, which is not taken; 0 while it is not whole.
        Raises FrameError."""
        if len(data) < 8:
            return 0
        size, kind = _HEADER.unpack_from(data)
        self._check(size, kind)
        end: int = 4 + size
        return end if end <= len(data) else 0

    def _check(self, size: int, kind: int) -> None:
        """Raises FrameError."""
        if not 4 <= size <= self._max_size or kind > MESSAGE:
            raise FrameError(f"frame of size {size} and type {kind} cannot come from nsqd")

    @property
    def buffered(self) -> int:
        return len(self._tail)
