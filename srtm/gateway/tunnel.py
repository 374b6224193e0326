"""A subscriber's own connection to nsqd: it is relayed both ways, towards nsqd frame by frame.

The client's last IDENTIFY is replayed with features off and its answer swallowed; from SUB on nsqd
beats with the client itself, or it would keep a hung consumer. A PUB on a subscribed connection
does not come here: it takes its token like any other.
"""

import socket
from typing import Protocol

from srtm.gateway.reactor import BROKEN, READABLE, WRITABLE, Reactor
from srtm.gateway.upstream import NsqdAddress
from srtm.host.clock import monotonic_ns
from srtm.nsq.commands import Line, Subscribe, sub
from srtm.nsq.connection import Connection, Refused
from srtm.nsq.errors import is_fatal
from srtm.nsq.frames import (
    ERROR,
    HEARTBEAT_FRAME,
    RESPONSE,
    FrameError,
    build_frame,
)
from srtm.nsq.identify import Identity, replay

_READ_BYTES = 256 * 1024
_IDENTIFY_NS = 10_000_000_000
"""An nsqd that takes connections and says nothing for as long is hung."""
_MAX_FRAME_BYTES = (1 << 31) - 1
"""The biggest frame that nsqd can write: what it may have stored is its own to judge, and changes
with its flags."""
_MIN_MESSAGE_BYTES = 35
"""A message frame with a body of one byte; the usual responses are shorter."""
_CLOSE_WAIT = build_frame(RESPONSE, b"CLOSE_WAIT")
_MAX_BEHIND_BYTES = 1024 * 1024
"""Deliveries that the client has not read yet; past it we stop reading nsqd, whose own RDY count
and timeouts then do their work."""


class Subscriber(Protocol):
    """The client at the other end."""

    address: str
    identity: Identity

    def write(self, data: bytes) -> None: ...
    def pause(self, reason: object) -> None: ...
    def resume(self, reason: object) -> None: ...
    def subscribed(self) -> None: ...
    def unsubscribed(self) -> None: ...
    def ended_by(self, error: bytes) -> None: ...
    def finish(self) -> None: ...
    def close(self) -> None: ...

    @property
    def unread_bytes(self) -> int: ...


class Room(Protocol):
    """Descriptors: a consumer has two."""

    consumers: int

    @property
    def has_room(self) -> bool: ...


class TunnelHost(Protocol):
    """What a tunnel sees of the gateway."""

    reactor: Reactor
    nsqd: NsqdAddress

    @property
    def tcp(self) -> Room: ...

    def consumed(self, name: bytes, raw: bytes, ends: list[int], now: int) -> None: ...


class Tunnel:
    __slots__ = (
        "_client",
        "_gateway",
        "_out",
        "_reading",
        "_socket",
        "_v2",
        "answered",
        "awaits_close",
        "channel",
        "closed",
        "topic",
    )

    def __init__(self, gateway: TunnelHost, client: Subscriber, subscribe: Subscribe) -> None:
        self._gateway = gateway
        self._client = client
        self.topic = subscribe.topic
        self.channel = subscribe.channel
        self.answered = False  # nsqd's answer to SUB has come
        self.awaits_close = False  # its answer to CLS has not
        self.closed = False
        self._reading = True
        self._out = bytearray()
        identity = replay(client.identity, client.address.rpartition(":")[0].strip("[]"))
        features = gateway.nsqd.features
        self._v2 = Connection(self._out.extend, identity, _MAX_FRAME_BYTES, features)
        self._v2.send(sub(subscribe.topic, subscribe.channel))
        self._socket: socket.socket | None = None

    @property
    def local_name(self) -> tuple[object, ...] | None:
        """The name of the tunnel's socket, as nsqd sees it by TCP; None while there is none."""
        if self._socket is None or self._gateway.nsqd.is_unix:
            return None
        try:
            return tuple(self._socket.getsockname())
        except OSError:  # closed
            return None

    def start(self) -> None:
        """Connect, once everything that came before SUB is answered."""
        if self._socket is not None or self.closed:
            return
        try:
            if not self._gateway.tcp.has_room:
                raise OSError("no descriptor is left for it")
            self._socket = self._gateway.nsqd.connect(shown_as=self._client.address)
        except OSError:
            self._client.close()
            return
        self._gateway.tcp.consumers += 1
        events = READABLE | WRITABLE
        self._gateway.reactor.watch(
            self._socket.fileno(), self._on_event, events, self._client.close
        )
        until = monotonic_ns() + _IDENTIFY_NS
        self._gateway.reactor.call_at(until, lambda _now: self._expect_answer())

    def _expect_answer(self) -> None:
        """nsqd had the time that it has to answer IDENTIFY."""
        if not self.closed and not self._v2.identified:
            self._client.close()

    def forward(self, line: Line) -> None:
        """A command of the client, as it stands; nothing once nsqd has ended the connection."""
        if self.closed:
            return
        self.awaits_close = self.awaits_close or line.name == b"CLS"
        waits = bool(self._out)
        self._v2.send(line.raw)
        if self._socket is not None and not waits:
            self._flush()
        if len(self._out) > _MAX_BEHIND_BYTES:
            self._client.pause(self)

    def _on_event(self, mask: int) -> None:
        assert self._socket is not None
        if mask & READABLE:
            try:
                data = self._socket.recv(_READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._ended()
                return
            self._relay(data)
        elif mask & BROKEN:
            self._ended()
            return
        if mask & WRITABLE and not self.closed:
            self._flush()

    def _relay(self, data: bytes) -> None:
        waits = bool(self._out)
        try:
            raw, ends = self._v2.receive_raw(data)
            if self._out and not waits:  # the handshake's, and what waited for its end
                self._flush()
        except Refused as error:
            self._client.write(build_frame(ERROR, str(error).encode()))
            self._ended()
            return
        except FrameError:
            self._ended()
            return
        if not ends:
            return
        fatal = _fatal_at(raw, ends)
        self._client.write(raw if fatal < 0 else raw[:fatal])
        if not self.answered and not self.closed and _is_subscribed(raw, ends):
            self.answered = True
            self._client.subscribed()
        if self.awaits_close and _has(raw, ends, _CLOSE_WAIT):
            self.awaits_close = False
            self._client.subscribed()
        if fatal >= 0 and self.answered:
            self._client.ended_by(raw[fatal:])
        elif fatal >= 0:
            self._client.write(raw[fatal:])
        if len(raw) >= _MIN_MESSAGE_BYTES:
            self._gateway.consumed(self.topic, raw, ends, monotonic_ns())
        if self._client.unread_bytes > _MAX_BEHIND_BYTES and not self.closed:
            self._reading = False
            self._watch()

    def _flush(self) -> None:
        assert self._socket is not None
        if self._out:
            try:
                sent = self._socket.send(self._out)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._out.clear()  # what nsqd said before it ended is still to be read
                sent = 0
            del self._out[:sent]
        self._watch()
        if not self._out:
            self._client.resume(self)

    def client_drained(self) -> None:
        if not self._reading and not self.closed:
            self._reading = True
            self._watch()

    def _watch(self) -> None:
        assert self._socket is not None
        events = (READABLE if self._reading else 0) | (WRITABLE if self._out else 0)
        self._gateway.reactor.change(self._socket.fileno(), events)

    def _ended(self) -> None:
        """nsqd closed this connection: so do we, once the client has read what came before."""
        self.close()
        if self.answered:
            self._client.finish()
        else:
            self._client.unsubscribed()

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self.awaits_close = False
        if self._socket is not None:
            self._gateway.reactor.forget(self._socket.fileno())
            self._gateway.tcp.consumers -= 1
            self._socket.close()


def _fatal_at(raw: bytes, ends: list[int]) -> int:
    """Where the error is that ends the connection: the last thing that nsqd says. -1: nowhere."""
    start = ends[-2] if len(ends) > 1 else 0
    if raw[start + 7] != ERROR or not is_fatal(raw[start + 8 :].decode(errors="replace")):
        return -1
    return start


def _has(raw: bytes, ends: list[int], frame: bytes) -> bool:
    start = 0
    for end in ends:
        if raw[start:end] == frame:
            return True
        start = end
    return False


def _is_subscribed(raw: bytes, ends: list[int]) -> bool:
    """Is the first frame that is no heartbeat SUB's OK? An error's connection ends next."""
    start = 0
    for end in ends:
        if raw[start:end] != HEARTBEAT_FRAME:
            return raw[start + 7] != ERROR
        start = end
    return False
