"""tornado's HTTP server, patient with who is silent and not with who trickles: a connection may be
idle between requests, but once a request has begun, its head comes whole within seconds. So does a
TLS handshake from the moment of the connection."""

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any

from tornado.http1connection import HTTP1ServerConnection
from tornado.httpserver import HTTPServer
from tornado.httputil import (
    HTTPConnection,
    HTTPHeaders,
    HTTPMessageDelegate,
    RequestStartLine,
    ResponseStartLine,
)
from tornado.iostream import IOStream, SSLIOStream

from srtm.host.certificates import Renewed
from srtm.host.seldom import Seldom

HANDSHAKE_SECONDS = 5.0
"""from the connection to the end of its TLS handshake, as with nsqd"""
HEAD_SECONDS = 10.0
"""from a request's first byte to the end of its head; a head is a few KiB"""
_HANDSHAKE = b"\x16"
"""the first byte of a TLS handshake; no method of HTTP begins with it"""
_CHECK_SECONDS = 1.0
_QUIET_SECONDS = 60.0
"""from one line about a failed handshake to the next: strangers choose how many there are"""


class Heads:
    """Which connections wait for a head, and since when for the rest of one. Times are monotonic
    seconds."""

    def __init__(self) -> None:
        self._since: dict[IOStream, float | None] = {}

    def __len__(self) -> int:
        return len(self._since)

    def wait(self, stream: IOStream) -> None:
        """Note that a connection waits for the next request, of which there is no byte yet."""
        self._since[stream] = None

    def forget(self, stream: IOStream) -> None:
        """Its head has come whole, or it is closed."""
        self._since.pop(stream, None)

    def close_late(self, now: float) -> None:
        for stream, since in list(self._since.items()):
            is_greeting = isinstance(stream, SSLIOStream) and stream._ssl_accepting
            # tornado takes a head out of the buffer whole
            if not is_greeting and not stream._read_buffer_size:
                self._since[stream] = None
            elif not is_greeting and stream._read_buffer[:1] == _HANDSHAKE:
                self.forget(stream)  # it would wait for an answer in TLS until it gives up
                stream.close()
            elif since is None:
                self._since[stream] = now
            elif now - since >= (HANDSHAKE_SECONDS if is_greeting else HEAD_SECONDS):
                self.forget(stream)
                stream.close()


class PatientServer(HTTPServer):
    def initialize(self, *arguments: Any, **named: Any) -> None:
        super().initialize(*arguments, **named)
        self._heads = Heads()
        self._checks = False
        if self.ssl_options is not None:
            _HANDSHAKES.begin()

    def renew(self, tls: Renewed) -> None:
        """Show who comes from now on the certificate that stands in the files by now."""
        if tls.look():
            self.ssl_options = tls.context

    def start_request(
        self, server_conn: object, request_conn: HTTPConnection
    ) -> HTTPMessageDelegate:
        assert isinstance(server_conn, HTTP1ServerConnection)
        self._heads.wait(server_conn.stream)
        if not self._checks:
            self._checks = True
            asyncio.get_running_loop().call_later(_CHECK_SECONDS, self._check)
        request = super().start_request(server_conn, request_conn)
        return _Request(request, self._heads, server_conn.stream)

    def on_close(self, server_conn: object) -> None:
        assert isinstance(server_conn, HTTP1ServerConnection)
        self._heads.forget(server_conn.stream)
        super().on_close(server_conn)

    def _check(self) -> None:
        """Close the late connections, once a second while any waits for a head."""
        loop = asyncio.get_running_loop()
        self._heads.close_late(loop.time())
        self._checks = len(self._heads) > 0
        if self._checks:
            loop.call_later(_CHECK_SECONDS, self._check)


class _Request(HTTPMessageDelegate):
    """tornado's own; it tells when a head has come whole."""

    def __init__(self, request: HTTPMessageDelegate, heads: Heads, stream: IOStream) -> None:
        self._heads = heads
        self._stream = stream
        self.data_received = request.data_received  # type: ignore[method-assign]
        self.finish = request.finish  # type: ignore[method-assign]
        self.on_connection_close = request.on_connection_close  # type: ignore[method-assign]
        self._headers_received = request.headers_received

    def headers_received(
        self, start_line: RequestStartLine | ResponseStartLine, headers: HTTPHeaders
    ) -> Awaitable[None] | None:
        self._heads.forget(self._stream)
        return self._headers_received(start_line, headers)


class _FailedHandshakes(logging.Filter):
    """Lets one line in a minute through of those that tornado logs for each failed handshake."""

    def __init__(self) -> None:
        super().__init__()
        self._lines = Seldom(_QUIET_SECONDS)

    def begin(self) -> None:
        logging.getLogger("tornado.general").addFilter(self)  # once, however often it is called

    def filter(self, record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith("SSL Error") or self._lines.count() > 0


_HANDSHAKES = _FailedHandshakes()
