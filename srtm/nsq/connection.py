"""The client's end of a V2 connection to nsqd or a gateway. No I/O: its owner moves the bytes."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from srtm.nsq.commands import MAGIC_V2, NOP, identify
from srtm.nsq.frames import ERROR, HEARTBEAT_DATA, RESPONSE, Frame, FrameError, FrameReader


class Refused(Exception):
    """The other side does not go on with this connection; the text says why."""


class Connection:
    """A connection that begins with IDENTIFY, takes the answer, and answers heartbeats.

    write:      takes what is to be sent; it may be replaced
    identified: the answer has come, so that commands may be written
    told:       what it said, with feature negotiation: nsqd's limits for this connection
    """

    __slots__ = ("_frames", "identified", "told", "write")

    def __init__(
        self, write: Callable[[bytes], None], identity: Mapping[str, Any], max_frame_bytes: int
    ) -> None:
        """write: is given what the connection begins with. max_frame_bytes: of a longer frame the
        other side is no nsqd."""
        self._frames = FrameReader(max_frame_bytes)
        self.write = write
        self.identified = False
        self.told: dict[str, Any] = {}
        write(MAGIC_V2 + identify(json.dumps(identity, separators=(",", ":")).encode()))

    @property
    def buffered(self) -> int:
        """Bytes of a frame that is not whole yet."""
        return self._frames.buffered

    def receive(self, data: bytes) -> list[Frame]:
        """The answers and messages that are whole now. Raises Refused, FrameError."""
        raw, ends = self.receive_raw(data)
        frames = []
        start = 0
        for end in ends:
            kind, content = raw[start + 7], raw[start + 8 : end]
            if not self.is_heartbeat(kind, content):
                frames.append(Frame(kind, content))
            start = end
        return frames

    def receive_raw(self, data: bytes) -> tuple[bytes, list[int]]:
        """The bytes of the frames that are whole now, heartbeats among them, and where each one
        ends. Raises Refused, FrameError."""
        raw, ends = self._frames.feed_raw(data)
        while ends and not self.identified:
            first = ends[0]
            if not self.is_heartbeat(raw[7], raw[8:first]):
                self._take_answer(raw[7], raw[8:first])
            raw, ends = raw[first:], [end - first for end in ends[1:]]
        return raw, ends

    def is_heartbeat(self, kind: int, content: bytes) -> bool:
        """Was this frame a heartbeat? It is answered then."""
        if kind != RESPONSE or content != HEARTBEAT_DATA:
            return False
        self.write(NOP)
        return True

    def _take_answer(self, kind: int, content: bytes) -> None:
        if kind == ERROR:
            raise Refused(" ".join(content[:300].decode(errors="replace").split()))
        try:
            told = {} if content == b"OK" else json.loads(content)
        except (ValueError, RecursionError):
            told = None
        if kind != RESPONSE or not isinstance(told, dict):
            raise FrameError("its answer to IDENTIFY is not nsqd's")
        self.told = told
        if self.told.get("auth_required"):
            raise Refused("it asks for AUTH, which is not spoken here")
        self.identified = True
