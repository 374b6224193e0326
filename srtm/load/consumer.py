"""One consuming connection: takes messages as fast as they come and says when they came."""

import socket
from collections import Counter
from select import epoll

import numpy as np

from srtm.host.clock import monotonic_ns
from srtm.load.link import Link
from srtm.load.payload import FrameLayout
from srtm.load.record import Received
from srtm.load.settings import MAX_MESSAGE_BYTES
from srtm.nsq.commands import NOP, fin
from srtm.nsq.frames import (
    ERROR,
    HEARTBEAT_DATA,
    MESSAGE,
    FrameError,
    FrameReader,
    parse_message,
)
from srtm.nsq.layers.layer import LayerError

MAX_IN_FLIGHT = 2500
"""RDY: nsqd's default --max-rdy-count."""

_READ_BYTES = 256 * 1024  # at most so much shares one time of receipt
_LARGEST_FRAME_BYTES = MAX_MESSAGE_BYTES + 1024  # a message of any run, its header, an error
_MANY = 16
"""Messages in a read from which numpy is quicker than a loop: they were equal at 14, and at 100
numpy took 56 ns a message, the loop 234 ns."""

_FIN = np.dtype([("word", "S4"), ("id", "S16"), ("end", "S1")])


class Consumer(Link):
    """Reads into one buffer; frames of this run, all of one size, are taken without parsing."""

    __slots__ = (
        "_buffer",
        "_fins",
        "_frames",
        "_have",
        "_layout",
        "_received",
        "_view",
        "foreign",
    )

    def __init__(
        self,
        sock: socket.socket,
        layout: FrameLayout,
        received: Received,
        poller: epoll,
        errors: "Counter[str]",
    ) -> None:
        super().__init__(sock, poller, errors)
        self.foreign = 0
        """Messages that another run left in the channel."""
        whole = (_LARGEST_FRAME_BYTES + _READ_BYTES) // layout.frame_bytes + 1
        self._buffer = bytearray(whole * layout.frame_bytes)
        self._view = memoryview(self._buffer)
        self._frames = np.frombuffer(self._buffer, layout.dtype)
        self._fins = np.zeros(whole, _FIN)
        self._fins["word"], self._fins["end"] = b"FIN ", b"\n"
        self._have = 0
        self._layout = layout
        self._received = received

    def on_ready(self) -> None:
        """Take one read: record its messages, FIN them together."""
        self.write_rest()
        if self.layer is not None:
            self._read_layered()
            return
        have = self._have
        try:
            count = self.sock.recv_into(self._view[have : have + _READ_BYTES])
        except BlockingIOError:
            return
        except OSError:
            count = 0
        if not count:
            self.close()
            return
        self._take(have + count, monotonic_ns())

    def _read_layered(self) -> None:
        """Take one read through TLS or compression, which may hold more than one of the buffer."""
        try:
            data = self.sock.recv(_READ_BYTES)
            plain = self.decoded(data) if data else b""
        except BlockingIOError:
            return
        except (OSError, LayerError):
            data = plain = b""
        if not data:
            self.close()
            return
        now = monotonic_ns()
        for start in range(0, len(plain), _READ_BYTES):
            part = plain[start : start + _READ_BYTES]
            self._view[self._have : self._have + len(part)] = part
            self._take(self._have + len(part), now)

    def _take(self, rest: int, now: int) -> None:
        """Take the messages that are whole in the first `rest` bytes of the buffer."""
        size = self._layout.frame_bytes
        whole = rest // size
        if whole and (self._take_few(whole, now) if whole < _MANY else self._take_many(whole, now)):
            rest = self._keep(rest, rest - whole * size)
        if rest >= size or (rest >= 8 and not self._begins_with_ours()):
            rest = self._keep(rest, self._take_any(rest, now))
        self._have = rest

    def _begins_with_ours(self) -> bool:
        return int.from_bytes(self._view[:8], "big") == self._layout.head

    def _keep(self, have: int, rest: int) -> int:
        """Move the last `rest` of `have` bytes to the front of the buffer."""
        if rest:
            self._view[:rest] = self._view[have - rest : have]
        return rest

    def _take_few(self, count: int, now: int) -> bool:
        """Take whole frames from the front; False, and nothing done, unless all are ours."""
        layout, buffer, size = self._layout, self._buffer, self._layout.frame_bytes
        unpack, ours = layout.struct.unpack_from, (layout.head, layout.tag)
        fins, sequences = [], []
        for position in range(0, count * size, size):
            head, message_id, tag, sequence = unpack(buffer, position)
            if (head, tag) != ours:
                return False
            fins.append(fin(message_id))
            sequences.append(sequence)
        received = self._received
        received.sequences.fromlist(sequences)
        received.read_counts.append(count)
        received.read_at_ns.append(now)
        self.write(fins[0] if count == 1 else b"".join(fins))
        return True

    def _take_many(self, count: int, now: int) -> bool:
        """Take whole frames as `_take_few` does, many at once."""
        layout, frames = self._layout, self._frames[:count]
        if not ((frames["head"] == layout.head) & (frames["tag"] == layout.tag)).all():
            return False
        received = self._received
        received.sequences.frombytes(frames["sequence"].astype(np.int64).tobytes())
        received.read_counts.append(count)
        received.read_at_ns.append(now)
        fins = self._fins[:count]
        fins["id"] = frames["id"]
        self.write(fins.tobytes())
        return True

    def _take_any(self, have: int, now: int) -> int:
        """Frames of every kind from the front of the buffer; the bytes that remain."""
        reader = FrameReader(_LARGEST_FRAME_BYTES)
        replies = []
        try:
            for frame in reader.feed(bytes(self._view[:have])):
                if frame.kind == MESSAGE:
                    message = parse_message(frame.data)
                    replies.append(fin(message.id))
                    self._take_body(message.body, now)
                elif frame.kind == ERROR:
                    self.count_error(frame.data)
                elif frame.data == HEARTBEAT_DATA:
                    replies.append(NOP)
        except FrameError:
            self.errors["not an NSQ frame"] += 1
            self.close()
            return 0
        if replies:
            self.write(b"".join(replies))
        return reader.buffered

    def _take_body(self, body: bytes, now: int) -> None:
        sequence = self._layout.sequence(body)
        if sequence is None:
            self.foreign += 1
            return
        self._received.sequences.append(sequence)
        self._received.read_counts.append(1)
        self._received.read_at_ns.append(now)
