"""The gateway's own connections to nsqd, on which batches go out and answers come back."""

import contextlib
import itertools
import logging
import socket
from collections import deque
from collections.abc import Callable, Iterable

from srtm.gateway.batch import Batch
from srtm.gateway.reactor import BROKEN, READABLE, WRITABLE, Reactor
from srtm.host.clock import monotonic_ns
from srtm.nsq.connection import PLAIN, Connection, Features, Refused
from srtm.nsq.errors import ProtocolError, is_fatal
from srtm.nsq.frames import ERROR, OK_FRAME, FrameError

_IDENTITY = {
    "client_id": "srtm-gateway",
    "hostname": "srtm-gateway",
    "user_agent": "srtm/gateway",
    "heartbeat_interval": 2000,
    "feature_negotiation": True,
}
_GRACE_NS = 100_000_000
"""An nsqd that dies closes its connections one by one. What has not been sent yet goes by another
one only when it is clear that there is one, or its outcome would be unknown for nothing."""
_READ_BYTES = 64 * 1024
_MAX_FRAME = 64 * 1024  # answers are short; a longer one is no nsqd

log = logging.getLogger("srtm.gateway")


class NsqdAddress:
    """Where nsqd listens: host:port or the path of a unix socket. features: TLS and AUTH, where it
    wants them."""

    def __init__(self, address: str, features: Features = PLAIN) -> None:
        self.address = address
        self.features = features
        self._serial = itertools.count()
        self.is_unix = "/" in address

    def connect(self, shown_as: str = "") -> socket.socket:
        """A non-blocking connection, possibly still under way. Raises OSError.

        On a unix socket nsqd would show every client alike; binding to an abstract name first
        makes it log and report `shown_as`, the client's own address.
        """
        if self.is_unix:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.setblocking(False)
            target: str | tuple[str, int] = self.address
            if shown_as:
                with contextlib.suppress(OSError):  # only a name in a table
                    connection.bind(f"\0{shown_as}")
        else:
            host, _, port = self.address.rpartition(":")
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            connection = socket.socket(family, socket.SOCK_STREAM)
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            target = (host.strip("[]"), int(port))
        try:
            connection.connect(target)
        except BlockingIOError:
            if self.is_unix:  # the listener's queue is full: there is no "under way" here
                connection.close()
                raise ConnectionRefusedError(f"{self.address} takes no connections") from None
        except OSError:
            connection.close()
            raise
        return connection


class Upstream:
    """One connection to nsqd. nsqd runs its commands in order, so answers are matched by order.
    on_identified: told when nsqd has answered its IDENTIFY"""

    def __init__(
        self,
        reactor: "Reactor",
        address: NsqdAddress,
        on_lost: Callable[["Upstream"], None],
        on_identified: Callable[["Upstream"], None],
    ) -> None:
        self._reactor = reactor
        self._on_lost = on_lost
        self._on_identified = on_identified
        self._out = bytearray()
        self._v2 = Connection(self._out.extend, _IDENTITY, _MAX_FRAME, address.features)
        self._v2.write = self._write
        self._is_plain = self._v2.is_plain
        self.identified = False
        self.on_idle: Callable[[], None] | None = None
        """Called when the last thing asked is answered, where somebody waits for this one."""
        self.in_flight: deque[Batch] = deque()
        self.closed = False
        self.failed = False  # ended by an error that nsqd answered with: it is there
        self.last_read = self._began_at = monotonic_ns()
        self._socket = address.connect()
        self._fd = self._socket.fileno()
        self._send = self._socket.send
        reactor.watch(self._fd, self._on_event, READABLE | WRITABLE, self._end)

    def publish(self, batch: "Batch") -> None:
        self.in_flight.append(batch)
        if self._is_plain:
            self._write(batch.payload)
        else:
            self._v2.send(batch.payload)

    def _write(self, data: bytes) -> None:
        if self._out:
            self._out += data
            return
        try:
            sent = self._send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            # Told at the next wake-up, not in the middle of a topic's decision.
            self._reactor.change(self._fd, READABLE | WRITABLE)
            self._out += data
            return
        if sent < len(data):
            self._out += memoryview(data)[sent:]
            self._reactor.change(self._fd, READABLE | WRITABLE)

    def _on_event(self, mask: int) -> None:
        if mask & READABLE:
            try:
                data = self._socket.recv(_READ_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                self.close(str(error))
                return
            if not data:
                self.close("nsqd closed the connection")
                return
            self.last_read = now = monotonic_ns()
            if data == OK_FRAME and self.identified:
                batch = self.in_flight.popleft()
                batch.topic.acknowledged(batch, now)
            else:
                self._answers(data, now)
            if self.on_idle is not None and not self.in_flight:
                self.on_idle()
        elif mask & BROKEN:
            self.close("nsqd closed the connection")
        if mask & WRITABLE and not self.closed:
            self._flush()

    def _flush(self) -> None:
        if self._out:
            try:
                sent = self._send(self._out)
            except BlockingIOError:
                return
            except OSError as error:
                self.close(str(error))
                return
            del self._out[:sent]
        if not self._out:
            self._reactor.change(self._fd, READABLE)

    def _answers(self, data: bytes, now: int) -> None:
        try:
            frames = self._v2.receive(data)
        except (FrameError, Refused) as error:
            self.close(str(error))
            return
        if self._v2.identified and not self.identified:
            self.identified = True
            self._on_identified(self)
        for kind, content in frames:
            if self.closed:
                return
            if not self.in_flight:
                self.close("nsqd answered what was not asked")
            elif kind == ERROR:
                self._failed(content.decode(errors="replace"))
            else:
                batch = self.in_flight.popleft()
                batch.topic.acknowledged(batch, now)

    def _failed(self, text: str) -> None:
        code, _, sentence = text.partition(" ")
        log.warning("nsqd refused a batch: %s", text)
        batch = self.in_flight.popleft()
        error = ProtocolError(code, sentence)
        if is_fatal(text):
            # nsqd ends the connection here: what is behind did not run and goes out again.
            behind, self.in_flight = self.in_flight, deque()
            self.failed = True
            self.close(text)
            for other in reversed(behind):
                other.topic.not_run(other)
            batch.topic.failed(batch, error)
            _pump_all([batch, *behind])
        else:
            batch.topic.failed(batch, error)
            _pump_all([batch])

    @property
    def heard_at(self) -> int:
        """0 while nsqd has not said anything."""
        return self.last_read if self.identified else 0

    @property
    def is_there(self) -> bool:
        """Has nsqd not closed it, as far as the kernel has heard?"""
        try:
            return not self.closed and bool(self._socket.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def is_silent(self, before: int) -> bool:
        """Has it owed an answer, and said nothing, since before `before`?"""
        if not self.identified:
            return self._began_at < before
        return bool(self.in_flight) and max(self.in_flight[0].written_at, self.last_read) < before

    def _end(self) -> None:
        self.close("a fault of the gateway")

    def close(self, why: str) -> None:
        """What is in flight has an unknown outcome then."""
        if self.closed:
            return
        self.closed = True
        log.debug("connection to nsqd ended: %s", why)
        self._reactor.forget(self._fd)
        self._socket.close()
        lost, self.in_flight = self.in_flight, deque()
        self._on_lost(self)
        for batch in lost:
            batch.topic.lost(batch)
        if lost:
            self._reactor.call_at(monotonic_ns() + _GRACE_NS, lambda _now: _pump_all(lost))


def _pump_all(batches: "Iterable[Batch]") -> None:
    """Their topics have room in flight again."""
    now = monotonic_ns()
    for topic in dict.fromkeys(batch.topic for batch in batches):
        topic.pump(now)
