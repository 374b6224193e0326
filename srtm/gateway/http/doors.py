"""The HTTP and HTTPS doors, and the admin socket where one is asked for."""

import asyncio
import contextlib
import os
import socket

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_unix_socket

from srtm.gateway.host import Host, Sender
from srtm.gateway.http.admin import admin_application
from srtm.gateway.http.connections import BoundedServer
from srtm.gateway.http.door import door_application
from srtm.gateway.http.waiting import Waiting
from srtm.gateway.listening import listen, shown
from srtm.host.clock import NS, monotonic_ns
from srtm.text.errors import UnavailableError

_PER_OTHER = 16
"""One connection in this many is for /ping, /metrics and the like."""
_FEWEST_ASKING = 8
"""connections for calls that nsqd answers: two kinds that hang leave places for others"""
_PER_TURN = 200
"""connections that are looked at while messages wait: about half a millisecond"""
_KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),  # seconds: those of Go
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15),
)
"""An idle client may stay for ever, unless its host is gone."""


class HttpDoors:
    """The HTTP door, the HTTPS door where there is a certificate, and the admin socket where one is
    asked for.

    address, https_address: where they listen, as host:port; empty without HTTPS
    """

    def __init__(self, gateway: Host) -> None:
        self._admin: HTTPServer | None = None
        self._admin_socket = ""  # once it is ours
        options = gateway.options
        self._timeout_ns = int(options.http_timeout * NS)
        most = gateway.descriptors.http
        others = most // _PER_OTHER + 1
        asking = max(_FEWEST_ASKING, others)
        waiting = Waiting(most - others - asking)
        application = door_application(gateway, waiting, Waiting(asking))
        self._server = BoundedServer(application, most=most, gateway=gateway)
        listener = listen(options.http_address, "--http-address", _keep_alive)
        self._server.listen_on(listener)
        self.address = shown(listener.getsockname())
        self.https_address = ""
        if gateway.tls is not None and options.https_address:
            listener = listen(options.https_address, "--https-address", _keep_alive)
            self._server.listen_on(listener, is_secure=True)
            self.https_address = shown(listener.getsockname())
        if options.admin_socket:
            self._open_admin(gateway, options.admin_socket)

    @property
    def connections(self) -> int:
        return self._server.count

    async def look(self) -> list[Sender]:
        """Once a second: end the connections that are late, and give the others."""
        now = monotonic_ns()
        there: list[Sender] = []
        for number, connection in enumerate(list(self._server.connections.values())):
            if number % _PER_TURN == 0:
                await asyncio.sleep(0)
            if connection.stream.closed():
                continue
            if connection.is_late(now, self._timeout_ns):
                connection.give_up()
            else:
                there.append(connection)
        return there

    def _open_admin(self, gateway: Host, path: str) -> None:
        admin = HTTPServer(admin_application(gateway), max_body_size=64 * 1024)
        try:
            if _is_served(path):
                raise ValueError("another gateway answers there")
            admin.add_socket(bind_unix_socket(path, mode=0o600))
        except (OSError, ValueError) as error:
            raise UnavailableError(f"--admin-socket {path}: {error}") from None
        self._admin = admin
        self._admin_socket = path

    def close(self) -> None:
        self._server.stop()
        if self._admin is not None:
            self._admin.stop()
            with contextlib.suppress(OSError):
                os.unlink(self._admin_socket)


def _keep_alive(listener: socket.socket) -> None:
    """Accepted connections inherit it."""
    for level, option, value in _KEEPALIVE:
        listener.setsockopt(level, option, value)


def _is_served(path: str) -> bool:
    """Does somebody listen on this unix socket? A stale one may be replaced."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
        return True
