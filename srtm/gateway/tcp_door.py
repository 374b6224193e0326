"""The TCP door: where V2 clients come in."""

import errno
import logging
import socket

from srtm.gateway.client import Client
from srtm.gateway.host import Host
from srtm.gateway.listening import listen, shown
from srtm.gateway.reactor import READABLE
from srtm.host.clock import monotonic_ns

log = logging.getLogger("srtm.gateway")

_ACCEPTS_PER_WAKE = 128
_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class TcpDoor:
    """The TCP listener; while nsqd is away it is closed, so that clients fail over at once."""

    def __init__(self, gateway: Host) -> None:
        self._gateway = gateway
        self._listener: socket.socket | None = None
        self._max_descriptors = gateway.descriptors.tcp
        self._max_connections = gateway.options.max_connections or self._max_descriptors
        self.consumers = 0
        self.address = gateway.options.tcp_address
        self.refused: int = 0

    @property
    def is_open(self) -> bool:
        return self._listener is not None

    def open(self) -> None:
        """Raises UnavailableError where the address is taken."""
        if self._listener is not None:
            return
        listener = listen(self.address, "--tcp-address", self._gateway.stamps.prepare)
        self._gateway.reactor.watch(listener.fileno(), self._accept, end=self.close)
        self._listener = listener
        self.address = shown(listener.getsockname())

    def close(self) -> None:
        """`open` opens it again: the gateway does so once a second while nsqd is there."""
        if self._listener is not None:
            self._gateway.reactor.forget(self._listener.fileno())
            self._listener.close()
            self._listener = None

    @property
    def has_room(self) -> bool:
        """Is there a descriptor for one more client? A consumer has two."""
        return len(self._gateway.clients) + self.consumers < self._max_descriptors

    def try_again(self) -> None:
        """Watch the listener again, once a second: descriptors may be free again."""
        if self._listener is not None:
            self._gateway.reactor.change(self._listener.fileno(), READABLE)

    def _accept(self, _mask: int) -> None:
        gateway = self._gateway
        for _ in range(_ACCEPTS_PER_WAKE):
            if self._listener is None:
                return
            try:
                connection, peer = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _NO_DESCRIPTOR:
                    # It stays readable: asked at each wake-up, it would take all our time.
                    log.warning("new TCP connections cannot be accepted: %s", error.strerror)
                    gateway.reactor.change(self._listener.fileno(), 0)
                return
            if len(gateway.clients) >= self._max_connections or not self.has_room:
                self.refused += 1
                connection.close()
                continue
            try:
                self._take(connection, shown(peer))
            except Exception as error:  # of one connection: the door stays open to the others
                gateway.reactor.fault(error, "a connection was not taken")
                gateway.reactor.forget(connection.fileno())
                connection.close()

    def _take(self, connection: socket.socket, address: str) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client = Client(self._gateway, connection, address)
        self._gateway.clients.add(client)
        try:
            self._gateway.heartbeats.schedule(client, monotonic_ns())
            client.read()  # what it sent already belongs to this wake-up
        except Exception:
            client.close()
            raise
