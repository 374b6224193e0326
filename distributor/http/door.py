"""Where connections come in: tornado's HTTP server, with a bound on how many there are."""

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Awaitable, Iterable
from typing import Any

from tornado.http1connection import HTTP1Connection, HTTP1ServerConnection
from tornado.httputil import (
    HTTPConnection,
    HTTPHeaders,
    HTTPMessageDelegate,
    RequestStartLine,
    ResponseStartLine,
)
from tornado.iostream import IOStream
from tornado.web import Application

from distributor.http.connections import Connections, Stream
from srtm.host.certificates import Renewed
from srtm.http.server import PatientServer

log = logging.getLogger("srtm.distributor")

MAX_HEAD_BYTES = 8 * 1024
"""of a request, as with nginx; a watch of many ids names them in its body. tornado looks through
what has come of a head at each packet, and takes 0.5 ms for so much."""
_CHUNK_BYTES = 16 * 1024
"""read at once, so the most that a connection holds beside its head"""
_ANY_BYTES = 1 << 62
"""tornado bounds no body: each handler bounds its own, with a reason in its answer"""
_IDLE_SECONDS = 75.0
"""without a whole head; longer than a scraper of metrics pauses (60 s at most, usually)"""
_BODY_SECONDS = 10.0
"""for a body, and"""
_BODY_BYTES_PER_SECOND = 1024 * 1024
"""for a long one: the longest, 16 MiB, has 26 s, in which 5 Mbit/s bring it"""
_LONGEST_BODY_SECONDS = 30.0
_ACCEPTED_AT_ONCE = 32
"""Then those that came before have a turn: a new connection is not the oldest before it is read."""
_PAUSE_SECONDS = 0.5
"""Seconds in which nothing is accepted where there is no room. The kernel keeps whoever comes
meanwhile; a gateway waits for 2 s."""
_QUIET_SECONDS = 60.0
"""from one line about a lack of room to the next"""
_UNREAD_CHECK_SECONDS = 5.0
_NO_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Door(PatientServer):
    """tornado's own listening stops at no number. With no descriptor left it tries again at once
    and logs a trace each time: 3 MB/s were seen. So this one listens itself."""

    def initialize(  # type: ignore[override]
        self, application: Application, connections: Connections, tls: Renewed | None = None
    ) -> None:
        super().initialize(
            application,
            ssl_options=None if tls is None else tls.context,
            chunk_size=_CHUNK_BYTES,
            max_header_size=MAX_HEAD_BYTES,
            max_body_size=_ANY_BYTES,
            idle_connection_timeout=_IDLE_SECONDS,
            body_timeout=_LONGEST_BODY_SECONDS,  # where its length is not known
        )
        self._open = connections
        self._loop = asyncio.get_running_loop()
        self._listeners: list[socket.socket] = []
        self._said_at = -_QUIET_SECONDS

    def add_sockets(self, sockets: Iterable[socket.socket]) -> None:
        for each in sockets:
            self._listeners.append(each)
            self._loop.add_reader(each, self._accept, each)
        self._check_unread()

    def stop(self) -> None:
        """Listen no more."""
        self._unread_check.cancel()
        for each in self._listeners:
            self._loop.remove_reader(each)
            each.close()
        self._listeners.clear()

    # --- one connection -----------------------------------------------------------------------

    def handle_stream(self, stream: IOStream, address: tuple[Any, ...]) -> None:
        if self._open.open(stream, self._loop.time()):
            self._say("the longest silent connections are closed for new ones")
        super().handle_stream(stream, address)

    def start_request(
        self, server_conn: object, request_conn: HTTPConnection
    ) -> HTTPMessageDelegate:
        assert isinstance(server_conn, HTTP1ServerConnection)
        request = super().start_request(server_conn, request_conn)
        return _Request(request, self._open, server_conn.stream, request_conn)

    def on_close(self, server_conn: object) -> None:
        assert isinstance(server_conn, HTTP1ServerConnection)
        self._open.forget(server_conn.stream)
        super().on_close(server_conn)

    # --- listening ----------------------------------------------------------------------------

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            if self._open.all_busy:
                self._pause(listener, "all connections have requests under way")
                return
            try:
                connection, address = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _NO_FILES:
                    self._open.close_longest()
                    self._pause(listener, os.strerror(error.errno))
                    return
                continue  # whoever came has left already
            self._handle_connection(connection, address)

    def _pause(self, listener: socket.socket, why: str) -> None:
        self._say(f"new connections wait: {why}")
        self._loop.remove_reader(listener)
        self._loop.call_later(_PAUSE_SECONDS, self._resume, listener)

    def _resume(self, listener: socket.socket) -> None:
        if listener in self._listeners:
            self._loop.add_reader(listener, self._accept, listener)

    def _say(self, what: str) -> None:
        """Log a lack of room, but not for each connection: whoever opens thousands does not fill
        the log."""
        now = self._loop.time()
        if now >= self._said_at + _QUIET_SECONDS:
            self._said_at = now
            log.warning(
                "%d of at most %d connections are open, %s; the limit of open files bounds them "
                "(ulimit -Hn)",
                len(self._open),
                self._open.most,
                what,
            )

    def _check_unread(self) -> None:
        self._open.close_unread(self._loop.time())
        self._unread_check = self._loop.call_later(_UNREAD_CHECK_SECONDS, self._check_unread)


class _Request(HTTPMessageDelegate):
    """Tells when a request has come whole; else it is tornado's own."""

    def __init__(
        self,
        request: HTTPMessageDelegate,
        connections: Connections,
        stream: Stream,
        connection: HTTPConnection,
    ) -> None:
        self._request = request
        self._open = connections
        self._stream = stream
        self._connection = connection
        self._has_handler = False

    def headers_received(
        self, start_line: RequestStartLine | ResponseStartLine, headers: HTTPHeaders
    ) -> Awaitable[None] | None:
        length = headers.get("Content-Length", "")
        if length.isdecimal() and len(length) < 12:
            assert isinstance(self._connection, HTTP1Connection)
            seconds = _BODY_SECONDS + int(length) / _BODY_BYTES_PER_SECOND
            self._connection.set_body_timeout(min(seconds, _LONGEST_BODY_SECONDS))
        prepared = self._request.headers_received(start_line, headers)
        self._has_handler = True
        return prepared

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        return self._request.data_received(chunk)

    def finish(self) -> None:
        self._open.work(self._stream)
        self._request.finish()

    def on_connection_close(self) -> None:
        if self._has_handler:  # tornado asks for one that a bad head did not bring about
            self._request.on_connection_close()
