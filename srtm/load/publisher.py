"""One publishing connection: sends events, matches answers to commands in their order."""

import socket
from collections import Counter, deque
from select import epoll

from srtm.host.clock import monotonic_ns
from srtm.load.link import Link
from srtm.load.payload import Payload
from srtm.load.record import NOT_YET, REFUSED, Record
from srtm.nsq.commands import NOP
from srtm.nsq.frames import ERROR, HEARTBEAT_DATA, OK_FRAME, FrameError, FrameReader
from srtm.nsq.layers.layer import LayerError

_RUN = 64
_READ_BYTES = _RUN * len(OK_FRAME)
_RUNS = {OK_FRAME * count: count for count in range(1, _RUN + 1)}
"""Reads that hold OKs and nothing else, the common case. A read that begins within a frame is
never one of them, since an OK frame does not repeat inside itself."""


class Publisher(Link):
    """`waiting`: commands without an answer, oldest first.

    refill: closed loop: each answer is followed at once by the next event
    held:   events that are due and wait for a connection to another broker; None: it sends
    """

    __slots__ = ("_payload", "_reader", "_record", "held", "index", "refill", "waiting")

    def __init__(
        self,
        sock: socket.socket,
        index: int,
        payload: Payload,
        record: Record,
        poller: epoll,
        errors: "Counter[str]",
    ) -> None:
        super().__init__(sock, poller, errors)
        self.index = index
        self.waiting: deque[int] = deque()
        self.refill = False
        self.held: list[int] | None = None
        self._payload = payload
        self._record = record
        self._reader = FrameReader(max_size=1 << 20)

    # --- sending ------------------------------------------------------------------------------

    def send_event(self, event: int) -> None:
        """Send one planned event: the short way of `send_events`."""
        if self.closed or self.held is not None:
            self.send_events([event])
            return
        record = self._record
        data = self._payload.event(event, record.intended_ns[event])
        record.sent_ns[event] = monotonic_ns()
        self._expect(event)
        self.write(data)

    def send_events(self, events: list[int]) -> None:
        """Send planned events that are due together, in one write."""
        if self.held is not None:
            self.held += events
            return
        if self.closed:
            return
        record = self._record
        intended_ns, sent_ns, build = record.intended_ns, record.sent_ns, self._payload.event
        data = b"".join([build(event, intended_ns[event]) for event in events])
        now = monotonic_ns()
        for event in events:
            sent_ns[event] = now
            self._expect(event)
        self.write(data)

    def send_now(self, count: int, now: int) -> None:
        """Closed loop: make and send `count` events, intended at `now`."""
        record = self._record
        event = len(record.intended_ns)
        if count == 1:
            record.intended_ns.append(now)
            record.answered_ns.append(NOT_YET)
            record.publisher.append(self.index)
            self.waiting.append(event)
            self.write(self._payload.event(event, now))
            return
        record.intended_ns.extend([now] * count)
        record.answered_ns.extend([NOT_YET] * count)
        record.publisher.extend([self.index] * count)
        self.waiting.extend(range(event, event + count))
        self.write(self._payload.events(event, count, now))

    def _expect(self, event: int) -> None:
        commands = self._record.commands_per_event
        if commands == 1:
            self.waiting.append(event)
        else:
            self.waiting.extend(range(event * commands, (event + 1) * commands))

    # --- moves --------------------------------------------------------------------------------

    def hold(self) -> None:
        """Send nothing more over this connection."""
        if self.held is None:
            self.held = []

    def go_on(self, sock: socket.socket | None = None) -> None:
        """Send what was held, over `sock` where there is one: only once everything before is
        answered, or nobody is there to answer it."""
        if sock is not None:
            self.reconnect(sock)
            self._reader = FrameReader(max_size=1 << 20)
            self.waiting.clear()
        held, self.held = self.held, None
        if held:
            self.send_events(held)

    # --- answers ------------------------------------------------------------------------------

    def on_ready(self) -> None:
        """Take one read; the clock is asked after it, so that no answer precedes its PUB."""
        if self._unsent:
            self.write_rest()
        try:
            data = self.sock.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data and self.layer is not None:
            try:
                data = self.decoded(data)
            except LayerError:
                data = b""
            else:
                if not data:
                    return
        now = monotonic_ns()
        count = _RUNS.get(data)
        if count is None or count > len(self.waiting):
            count = self._read_mixed(data, now)
        else:
            answered_ns, take = self._record.answered_ns, self.waiting.popleft
            for _ in range(count):
                answered_ns[take()] = now
        if count and self.refill:
            self.send_now(count, now)

    def _read_mixed(self, data: bytes, now: int) -> int:
        """Heartbeats, errors, frames in pieces, the end; gives the number of answers."""
        if not data:
            self.close()
            return 0
        answers = 0
        try:
            frames = self._reader.feed(data)
        except FrameError:
            self.errors["not an NSQ frame"] += 1
            self.close()
            return 0
        for frame in frames:
            if frame.data == HEARTBEAT_DATA:
                self.write(NOP)
                continue
            if frame.kind == ERROR:
                self.count_error(frame.data)
            if self.waiting:
                command = self.waiting.popleft()
                self._record.answered_ns[command] = REFUSED if frame.kind == ERROR else now
                answers += 1
            elif frame.kind != ERROR:
                self.errors["an answer to nothing that was sent"] += 1
        return answers
