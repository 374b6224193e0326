"""The messages of a run: [tag 8][sequence 8][intended ns 8][padding], big-endian.

The tag is 4 fixed bytes and the run's id, so that a consumer knows its own messages; the intended
time is of CLOCK_MONOTONIC.
"""

import struct

import numpy as np

from srtm.load.settings import MIN_MESSAGE_BYTES
from srtm.nsq.commands import message, mpub, pub
from srtm.nsq.frames import MESSAGE

_MAGIC = int.from_bytes(b"SRTM", "big") << 32
_NSQ_HEADER_BYTES = 26  # time 8, attempts 2, id 16
_STAMP = struct.Struct(">qq")


class Payload:
    """Commands of one run, built from a template: an event is `batch` messages of one instant."""

    __slots__ = ("_batch", "_head", "_joint", "_mpub", "_tail", "_topic", "message_bytes", "tag")

    def __init__(
        self, topic: str, message_bytes: int, run_id: int, batch: int = 1, as_mpub: bool = False
    ) -> None:
        self.tag = _MAGIC | run_id
        self.message_bytes = message_bytes
        self._topic = topic.encode()
        self._batch = batch
        self._mpub = as_mpub
        body = self.tag.to_bytes(8, "big") + bytes(16) + b"." * (message_bytes - MIN_MESSAGE_BYTES)
        template = message(body) if as_mpub else pub(self._topic, body)
        stamp_at = len(template) - message_bytes + 8
        self._head, self._tail = template[:stamp_at], template[stamp_at + _STAMP.size :]
        self._joint = self._tail + self._head

    def event(self, number: int, intended_ns: int) -> bytes:
        """All bytes of one event; its messages have the numbers from number * batch on."""
        if self._batch == 1 and not self._mpub:
            return self._head + _STAMP.pack(number, intended_ns) + self._tail
        return self.events(number, 1, intended_ns)

    def events(self, first: int, count: int, intended_ns: int) -> bytes:
        """The bytes of `count` events of one intended time, from number `first` on."""
        if self._mpub and count > 1:
            return b"".join([self.events(first + i, 1, intended_ns) for i in range(count)])
        pack, batch = _STAMP.pack, self._batch
        numbers = range(first * batch, (first + count) * batch)
        stamps = self._joint.join([pack(number, intended_ns) for number in numbers])
        content = self._head + stamps + self._tail
        return mpub(self._topic, [content], batch) if self._mpub else content

    def frame_layout(self) -> "FrameLayout":
        return FrameLayout(self.tag, self.message_bytes)


class FrameLayout:
    """How a delivered message of this run lies in a consumer's stream: all have one size."""

    __slots__ = ("dtype", "frame_bytes", "head", "struct", "tag")

    def __init__(self, tag: int, message_bytes: int) -> None:
        self.tag = tag
        self.frame_bytes = 8 + _NSQ_HEADER_BYTES + message_bytes
        self.head = (self.frame_bytes - 4) << 32 | MESSAGE
        self.struct = struct.Struct(">Q10x16sQq")  # the same four fields, for few frames
        self.dtype = np.dtype(
            {
                "names": ["head", "id", "tag", "sequence"],
                "formats": [">u8", "S16", ">u8", ">i8"],
                "offsets": [0, 18, 34, 42],
                "itemsize": self.frame_bytes,
            }
        )

    def sequence(self, body: bytes) -> int | None:
        """The number of a message of this run; None for another's."""
        if len(body) < MIN_MESSAGE_BYTES or int.from_bytes(body[:8], "big") != self.tag:
            return None
        return int.from_bytes(body[8:16], "big")
