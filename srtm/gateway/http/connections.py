"""HTTP connections: bounded in number, and in the time for which each keeps the gateway waiting.

When all are in use the one that has been idle, or has kept us waiting for the rest of its request,
the longest makes room for a new one; then one that does not read its answer. One whose request is
being served stays, and so does one whose request has come and is yet to be read. The time for a
head, for each MiB of a body and for an answer to be read on is bounded; that between requests is
not, as at nsqd. A connection counts from before its TLS handshake on, and is the first to make room
while we wait for the client in it.
"""

import asyncio
import select
import socket
import ssl
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.httputil import (
    HTTPConnection,
    HTTPHeaders,
    HTTPMessageDelegate,
    RequestStartLine,
    ResponseStartLine,
)
from tornado.iostream import IOStream

from srtm.gateway.host import Host
from srtm.gateway.http.secure import Coming, secure_stream
from srtm.gateway.http.stream import BAD, Stream, last_word
from srtm.gateway.listening import shown
from srtm.nsq.commands import MAGIC_V2

MAX_HEADER_BYTES = 64 * 1024
"""nsqd's is 1 MiB; with each packet a head is searched from its beginning for its end."""
_BUFFER_BYTES = 2 * MAX_HEADER_BYTES
_BEING_ANSWERED = 16
"""Connections over the bound while no other can make room: most are about to be free again."""
_ACCEPTS = 8
"""Connections accepted in one turn, at 0.1 ms each."""
_LOOKED_AT = 64
"""Connections for one that makes room. In a burst the next ones may all be still unread."""
_MIB = 1024 * 1024


def _keeps_waiting(stream: IOStream) -> bool:
    """Does the client keep us waiting? Not where it is we who have yet to read what it sent. One
    that has left, of which tornado has yet to tell, can make room."""
    if stream.closed():
        return True
    poll = select.poll()
    poll.register(stream.fileno(), select.POLLIN | select.POLLRDHUP)
    return all(event != select.POLLIN for _, event in poll.poll(0))


_LATE = last_word("408 Request Timeout")
_TLS_HERE = last_word("400 Bad Request", "Client sent a TLS handshake to a port of plain HTTP.\n")
_TLS_HANDSHAKE = b"\x16\x03"


class Connection:
    """One client's: where its request is, and since when there was no progress."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.requests = 0
        self.head_bytes = 0  # of the request that is being served
        self.body_bytes = 0
        self.awaits: str = "head"  # or "body", or "" while it is served
        self._progress: object = None
        self._since = 0

    @property
    def partial_bytes(self) -> int:
        """The bytes of a request that has not come whole, and of an answer that was not read."""
        unsent = len(self.stream._write_buffer or b"")
        return self.stream._read_buffer_size + self.head_bytes + unsent

    @property
    def is_unread(self) -> bool:
        """Does its answer wait for it?"""
        return not self.awaits and self.stream.writing()

    @property
    def mistake(self) -> bytes:
        """The last word to a client that speaks no HTTP, as it has taken this for another port."""
        begins = self.stream._read_buffer.startswith
        if self.awaits != "head":
            return b""
        return BAD if begins(MAGIC_V2) else _TLS_HERE if begins(_TLS_HANDSHAKE) else b""

    def close(self) -> None:
        self.stream.close()

    def is_late(self, now: int, most_ns: int) -> bool:
        """Has there been no progress for `most_ns`, though some was owed? None is to come where the
        other side speaks no HTTP."""
        if self.mistake:
            return True
        progress: object = None
        if self.is_unread:
            progress = self.stream._total_write_done_index
        elif self.awaits == "body":
            progress = self.requests, self.body_bytes // _MIB
        elif self.awaits and self.stream._read_buffer_size:
            progress = self.requests
        if progress is None or progress != self._progress:
            self._progress = progress
            self._since = now
        return progress is not None and now - self._since > most_ns

    def give_up(self) -> None:
        """End a connection that is late, and tell its client, unless that is the one who does not
        read."""
        if self.awaits:
            self.stream.say_last(self.mistake or _LATE)
        self.close()


class BoundedServer(HTTPServer):
    """See the module."""

    def initialize(self, application: Any, most: int, gateway: Host) -> None:  # type: ignore[override]
        self._most = most
        self._gateway = gateway
        self.connections: dict[Stream, Connection] = {}
        self._coming: dict[Coming, Any] = {}  # their addresses; oldest first
        self._listeners: list[socket.socket] = []
        self._unasked: dict[Stream, None] = {}  # no whole request has come; oldest first
        super().initialize(
            application,
            max_body_size=0,  # `Handler.prepare` says for each request
            max_header_size=MAX_HEADER_BYTES,
        )
        self.conn_params.header_timeout = None  # tornado's own counts from the last answer on

    def _handle_connection(self, connection: socket.socket, address: Any) -> None:
        self._handle(Stream(connection, max_buffer_size=_BUFFER_BYTES), address)

    def listen_on(self, listener: socket.socket, is_secure: bool = False) -> None:
        """is_secure: its clients begin with a TLS handshake"""
        take = self._take_secure if is_secure else self._handle_connection
        asyncio.get_running_loop().add_reader(listener, self._accept, listener, take)
        self._listeners.append(listener)

    def _accept(self, listener: socket.socket, take: Callable[[socket.socket, Any], None]) -> None:
        for _ in range(_ACCEPTS):
            try:
                connection, address = listener.accept()
            except OSError:  # there is none, or it has gone again
                return
            connection.setblocking(False)
            take(connection, address)

    def _take_secure(self, connection: socket.socket, address: Any) -> None:
        if not self._has_room():
            connection.close()
            return
        coming = Coming(self._gateway, connection, shown(address), self._secured, self._coming.pop)
        self._coming[coming] = address

    def _secured(self, coming: Coming, connection: ssl.SSLSocket) -> None:
        address = self._coming.pop(coming)
        self._handle(secure_stream(connection, max_buffer_size=_BUFFER_BYTES), address)

    def _handle(self, stream: Stream, address: Any) -> None:
        stream.farewells = self._gateway.farewells
        self.handle_stream(stream, address)

    @property
    def count(self) -> int:
        """All connections, those included whose handshake is under way."""
        return len(self.connections) + len(self._coming)

    def stop(self) -> None:
        super().stop()
        for listener in self._listeners:
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()
        for coming in list(self._coming):
            coming.close()

    def handle_stream(self, stream: IOStream, address: tuple[Any, ...]) -> None:
        assert isinstance(stream, Stream)
        if not self._has_room():
            stream.close()
            return
        self.connections[stream] = Connection(stream)
        self._unasked[stream] = None
        super().handle_stream(stream, address)

    def _has_room(self) -> bool:
        return self.count < self._most or self._make_room()

    def _make_room(self) -> bool:
        for coming in islice(self._coming, _LOOKED_AT):
            if not coming.awaits_us:
                coming.close()
                return True
        slow = next(filter(_keeps_waiting, islice(self._unasked, _LOOKED_AT)), None)
        if slow is None:
            unread = (each.stream for each in self.connections.values() if each.is_unread)
            slow = next(unread, None)
        if slow is not None:
            self._forget(slow)
            slow.close()
        return self.count < self._most + _BEING_ANSWERED

    def start_request(self, server_conn: Any, request_conn: HTTPConnection) -> HTTPMessageDelegate:
        """The connection is new, or has had its answer: its next request is awaited."""
        stream = server_conn.stream
        delegate = super().start_request(server_conn, request_conn)
        connection = self.connections.get(stream)
        if connection is None:  # it had to make room
            return delegate
        connection.requests += 1
        connection.awaits = "head"
        connection.head_bytes = 0
        self._unasked.pop(stream, None)
        self._unasked[stream] = None
        return _Coming(delegate, connection, lambda: self._unasked.pop(stream, None))

    def on_close(self, server_conn: Any) -> None:
        self._forget(server_conn.stream)
        super().on_close(server_conn)

    def _forget(self, stream: Stream) -> None:
        self.connections.pop(stream, None)
        self._unasked.pop(stream, None)


class _Coming(HTTPMessageDelegate):
    """Tells a connection how far its request is."""

    def __init__(
        self,
        delegate: HTTPMessageDelegate,
        connection: Connection,
        whole: Callable[[], object],
    ) -> None:
        self._delegate = delegate
        self._connection = connection
        self._whole = whole

    def headers_received(
        self, start_line: RequestStartLine | ResponseStartLine, headers: HTTPHeaders
    ) -> Awaitable[None] | None:
        self._connection.awaits = "body"
        self._connection.body_bytes = 0
        lines = sum(len(name) + len(value) for name, value in headers.get_all())
        self._connection.head_bytes = sum(map(len, map(str, start_line))) + lines
        return self._delegate.headers_received(start_line, headers)

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        self._connection.body_bytes += len(chunk)
        return self._delegate.data_received(chunk)

    def finish(self) -> None:
        self._connection.awaits = ""
        self._whole()
        self._delegate.finish()

    def on_connection_close(self) -> None:
        self._delegate.on_connection_close()
