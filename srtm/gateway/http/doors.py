"""The HTTP door, and the admin socket where one is asked for."""

import contextlib
import os
import socket
from collections.abc import Awaitable, Callable
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
from tornado.netutil import bind_sockets, bind_unix_socket

from srtm.address import Address, cannot_listen
from srtm.errors import UnavailableError
from srtm.gateway.host import Host
from srtm.gateway.http.admin import admin_application
from srtm.gateway.http.door import door_application
from srtm.gateway.tcp_door import MAX_HTTP_CONNECTIONS, shown

_IDLE_SECONDS = 60
_MAX_HEADER_BYTES = 16 * 1024
_BEING_ANSWERED = 16
"""Connections over the bound while no other can make room: most are about to be free again."""


class _BoundedServer(HTTPServer):
    """Takes so many connections and no more. When they are all in use, the one that has been idle,
    or has kept us waiting for the rest of its request, the longest makes room for a new one: who
    sends half requests holds up nobody. One whose request is being served stays."""

    def initialize(self, *args: Any, **kwargs: Any) -> None:
        self._open: set[IOStream] = set()
        self._unasked: dict[IOStream, None] = {}  # no whole request has come; oldest first
        super().initialize(*args, **kwargs)

    def handle_stream(self, stream: IOStream, address: tuple[Any, ...]) -> None:
        if len(self._open) >= MAX_HTTP_CONNECTIONS:
            slow = next(iter(self._unasked), None)
            if slow is not None:
                self._forget(slow)
                slow.close()
            elif len(self._open) >= MAX_HTTP_CONNECTIONS + _BEING_ANSWERED:
                stream.close()
                return
        self._open.add(stream)
        self._unasked[stream] = None
        super().handle_stream(stream, address)

    def start_request(self, server_conn: Any, request_conn: HTTPConnection) -> HTTPMessageDelegate:
        """The connection is new, or has had its answer: its next request is awaited."""
        stream = server_conn.stream
        self._unasked.pop(stream, None)
        if stream in self._open:
            self._unasked[stream] = None
        delegate = super().start_request(server_conn, request_conn)
        return _Whole(delegate, lambda: self._unasked.pop(stream, None))

    def on_close(self, server_conn: Any) -> None:
        self._forget(server_conn.stream)
        super().on_close(server_conn)

    def _forget(self, stream: IOStream) -> None:
        self._open.discard(stream)
        self._unasked.pop(stream, None)


class _Whole(HTTPMessageDelegate):
    """Tells when a request has come whole."""

    def __init__(self, delegate: HTTPMessageDelegate, whole: Callable[[], object]) -> None:
        self._delegate = delegate
        self._whole = whole

    def headers_received(
        self, start_line: RequestStartLine | ResponseStartLine, headers: HTTPHeaders
    ) -> Awaitable[None] | None:
        return self._delegate.headers_received(start_line, headers)

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        return self._delegate.data_received(chunk)

    def finish(self) -> None:
        self._whole()
        self._delegate.finish()

    def on_connection_close(self) -> None:
        self._delegate.on_connection_close()


class HttpDoors:
    """The HTTP door, and the admin socket where one is asked for."""

    def __init__(self, gateway: Host) -> None:
        self._servers: list[HTTPServer] = []
        self._admin_socket = ""  # once it is ours
        options = gateway.options
        server = _BoundedServer(
            door_application(gateway),
            max_body_size=gateway.limits.max_body_size,
            max_buffer_size=gateway.limits.max_body_size + 64 * 1024,
            max_header_size=_MAX_HEADER_BYTES,
            idle_connection_timeout=_IDLE_SECONDS,
            body_timeout=_IDLE_SECONDS,
        )
        host, port = Address.parse(options.http_address, lowest=0)
        try:
            listeners = bind_sockets(port, host)
        except OSError as error:
            raise cannot_listen(f"--http-address {options.http_address}", error) from None
        server.add_sockets(listeners)
        self._servers.append(server)
        self.address = shown(listeners[0])
        if options.admin_socket:
            self._open_admin(gateway, options.admin_socket)

    def _open_admin(self, gateway: Host, path: str) -> None:
        admin = HTTPServer(admin_application(gateway), max_body_size=64 * 1024)
        try:
            if _is_served(path):
                raise ValueError("another gateway answers there")
            admin.add_socket(bind_unix_socket(path, mode=0o600))
        except (OSError, ValueError) as error:
            raise UnavailableError(f"--admin-socket {path}: {error}") from None
        self._servers.append(admin)
        self._admin_socket = path

    def close(self) -> None:
        for server in self._servers:
            server.stop()
        if self._admin_socket:
            with contextlib.suppress(OSError):
                os.unlink(self._admin_socket)


def _is_served(path: str) -> bool:
    """Does somebody listen on this unix socket? A stale one may be replaced."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
        return True
