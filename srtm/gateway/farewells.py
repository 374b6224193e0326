"""The end of connections whose clients may still send.

A socket that is closed answers what still comes with a reset, and a client that is told so while
it writes never reads the error frame that says why. So our side is shut first, and what comes is
dropped until the client ends its own.
"""

import socket
from functools import partial

from srtm.gateway.reactor import READABLE, Reactor
from srtm.host.clock import monotonic_ns

_MOST = 32
"""at once, within the descriptors that are spare; one more is closed without ceremony"""
_PATIENCE_NS = 1_000_000_000
_DROPPED_BYTES = 256 * 1024
"""of one client in one turn; the loop has others to serve"""


class Farewells:
    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._open: set[socket.socket] = set()

    def take(self, connection: socket.socket) -> None:
        """Take over a connection: what was written to it reaches its client, and then it is
        closed."""
        if len(self._open) >= _MOST:
            connection.close()
            return
        try:
            connection.shutdown(socket.SHUT_WR)
        except OSError:  # the client is gone
            connection.close()
            return
        self._open.add(connection)
        self._drop(connection)
        if connection not in self._open:  # it had ended its side
            return
        end = partial(self._end, connection)
        self._reactor.watch(connection.fileno(), partial(self._drop, connection), READABLE, end)
        self._reactor.call_at(monotonic_ns() + _PATIENCE_NS, lambda _: end())

    def _drop(self, connection: socket.socket, _mask: int = 0) -> None:
        try:
            if connection.recv(_DROPPED_BYTES):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._end(connection)

    def _end(self, connection: socket.socket) -> None:
        if connection in self._open:
            self._open.discard(connection)
            self._reactor.forget(connection.fileno())
            connection.close()

    def close(self) -> None:
        """Close the connections that are left: they wait no longer."""
        for connection in list(self._open):
            self._end(connection)
