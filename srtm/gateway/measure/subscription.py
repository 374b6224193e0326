"""The consumer of the probe's own topic: always ready, and it FINs at once."""

from collections.abc import Callable

from srtm.gateway.reactor import BROKEN, READABLE, WRITABLE, Reactor
from srtm.gateway.upstream import NsqdAddress
from srtm.host.clock import monotonic_ns
from srtm.nsq.commands import fin, rdy, sub
from srtm.nsq.connection import Connection, Refused
from srtm.nsq.frames import ERROR, MESSAGE, FrameError, parse_message

_READ_BYTES = 256 * 1024
_IDENTITY = {
    "client_id": "srtm-probe",
    "hostname": "srtm-gateway",
    "user_agent": "srtm/probe",
    "feature_negotiation": True,
    "output_buffer_size": -1,
}


class Subscription:
    """One connection. `closed` when either side has ended it.

    on_message: is told each body, and the monotonic nanoseconds at which it was read
    """

    def __init__(
        self,
        reactor: Reactor,
        address: NsqdAddress,
        topic: bytes,
        channel: bytes,
        most: int,
        on_message: Callable[[bytes, int], None],
    ) -> None:
        """most: messages under way to it at once. Raises OSError."""
        self.is_ready = False
        """nsqd has answered SUB, so the topic is there."""
        self.closed = False
        self._reactor = reactor
        self._on_message = on_message
        self._out = bytearray()
        self._v2 = Connection(self._out.extend, _IDENTITY, (1 << 31) - 1, address.features)
        self._v2.send(sub(topic, channel) + rdy(most))
        self._socket = address.connect()
        self._events = READABLE | WRITABLE
        reactor.watch(self._socket.fileno(), self._on_event, self._events, self.close)

    def _write(self) -> None:
        try:
            sent = self._socket.send(self._out)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.close()
            return
        del self._out[:sent]
        events = READABLE | WRITABLE if self._out else READABLE
        if events != self._events:
            self._events = events
            self._reactor.change(self._socket.fileno(), events)

    def _on_event(self, mask: int) -> None:
        if mask & READABLE:
            self._read()
        elif mask & BROKEN:
            self.close()
        if self._out and not self.closed:
            self._write()

    def _read(self) -> None:
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        try:
            self._take(data, monotonic_ns())
        except (FrameError, Refused):
            self.close()

    def _take(self, data: bytes, now: int) -> None:
        """Raises FrameError, Refused."""
        for kind, content in self._v2.receive(data):
            if kind == ERROR:
                raise Refused(content.decode(errors="replace"))
            if kind == MESSAGE:
                message = parse_message(content)
                self._v2.send(fin(message.id))
                self._on_message(message.body, now)
            else:
                self.is_ready = True

    def close(self) -> None:
        if not self.closed:
            self.closed, self.is_ready = True, False
            self._reactor.forget(self._socket.fileno())
            self._socket.close()
