"""HTTP connections: bounded in number, and in the time for which each keeps the gateway waiting.

When all are in use the one that has been idle, or has kept us waiting for the rest of its request,
the longest makes room for a new one; then one that does not read its answer. One whose request is
being served stays, and so does one whose request has come and is yet to be read. The time for a
head, for each MiB of a body and for an answer to be read on is bounded; that between requests is
not, as at nsqd.
"""

import contextlib
import select
import socket
from asyncio import Future
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
from tornado.iostream import IOStream, UnsatisfiableReadError

from srtm.gateway.farewells import Farewells
from srtm.nsq.commands import MAGIC_V2

MAX_HEADER_BYTES = 64 * 1024
"""nsqd's is 1 MiB; with each packet a head is searched from its beginning for its end."""
_BUFFER_BYTES = 2 * MAX_HEADER_BYTES
_BEING_ANSWERED = 16
"""Connections over the bound while no other can make room: most are about to be free again."""
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


def _last_word(status: str) -> bytes:
    """The last answer to a client whose request is late, too long or no HTTP, as Go writes it."""
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close"
        f"\r\n\r\n{status}"
    ).encode()


_LATE = _last_word("408 Request Timeout")
_TOO_LONG = _last_word("431 Request Header Fields Too Large")
_BAD = _last_word("400 Bad Request")
_TORNADOS_BAD = b"HTTP/1.1 400 Bad Request\r\n\r\n"


class Stream(IOStream):
    """Ends so that its client reads the last word, also while it still sends."""

    farewells: Farewells

    def write(self, data: bytes | memoryview) -> Future[None]:
        if data == _TORNADOS_BAD:
            self.say_last(_BAD)
            data = b""
        return super().write(data)

    def close(self, exc_info: Any = False) -> None:
        if isinstance(exc_info, UnsatisfiableReadError):
            self.say_last(_TOO_LONG)
        super().close(exc_info)

    def say_last(self, word: bytes) -> None:
        with contextlib.suppress(OSError):
            self.socket.send(word)
            self.farewells.take(self.socket.dup())


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
    def speaks_v2(self) -> bool:
        return self.awaits == "head" and self.stream._read_buffer.startswith(MAGIC_V2)

    def close(self) -> None:
        self.stream.close()

    def is_late(self, now: int, most_ns: int) -> bool:
        """Has there been no progress for `most_ns`, though some was owed? None is to come where the
        other side speaks V2: it has taken this for a TCP port."""
        if self.speaks_v2:
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
            self.stream.say_last(_BAD if self.speaks_v2 else _LATE)
        self.close()


class BoundedServer(HTTPServer):
    """See the module."""

    def initialize(  # type: ignore[override]
        self, application: Any, most: int, farewells: Farewells
    ) -> None:
        self._most = most
        self._farewells = farewells
        self.connections: dict[Stream, Connection] = {}
        self._unasked: dict[Stream, None] = {}  # no whole request has come; oldest first
        super().initialize(
            application,
            max_body_size=0,  # `Handler.prepare` says for each request
            max_header_size=MAX_HEADER_BYTES,
        )
        self.conn_params.header_timeout = None  # tornado's own counts from the last answer on

    def _handle_connection(self, connection: socket.socket, address: Any) -> None:
        stream = Stream(connection, max_buffer_size=_BUFFER_BYTES)
        stream.farewells = self._farewells
        self.handle_stream(stream, address)

    def handle_stream(self, stream: IOStream, address: tuple[Any, ...]) -> None:
        assert isinstance(stream, Stream)
        if len(self.connections) >= self._most and not self._make_room():
            stream.close()
            return
        self.connections[stream] = Connection(stream)
        self._unasked[stream] = None
        super().handle_stream(stream, address)

    def _make_room(self) -> bool:
        slow = next(filter(_keeps_waiting, islice(self._unasked, _LOOKED_AT)), None)
        if slow is None:
            unread = (each.stream for each in self.connections.values() if each.is_unread)
            slow = next(unread, None)
        if slow is not None:
            self._forget(slow)
            slow.close()
        return len(self.connections) < self._most + _BEING_ANSWERED

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
