"""A non-blocking connection of a run: what publishers and consumers share."""

import socket
from collections import Counter
from select import EPOLLIN, EPOLLOUT, epoll

from srtm.nsq.layers.layer import Layer


class Link:
    """Writes at once, keeps what the socket does not take, and is closed once.

    errors: error frames of the whole run, by code
    layer:  TLS or compression, of a `LayeredSocket`
    """

    __slots__ = ("_epoll", "_unsent", "closed", "errors", "layer", "sock")

    def __init__(self, sock: socket.socket, poller: epoll, errors: "Counter[str]") -> None:
        sock.setblocking(False)
        self.sock = sock
        self.layer: Layer | None = getattr(sock, "layer", None)
        self.errors = errors
        self.closed = False
        self._epoll = poller
        self._unsent = bytearray()
        poller.register(sock, EPOLLIN)

    def on_ready(self) -> None:
        """Called when epoll reports this connection."""
        raise NotImplementedError

    def write(self, data: bytes) -> None:
        """Write, or keep what the socket does not take. Never closes: when the other side is gone,
        what it said before is still to be read."""
        if self.layer is not None:
            data = self.layer.encode(data)
        if self._unsent:
            self._unsent += data
            return
        try:
            sent = self.sock.send(data)
        except OSError:
            sent = 0
        if sent < len(data):
            self._unsent += data[sent:]
            self._epoll.modify(self.sock, EPOLLIN | EPOLLOUT)

    def write_rest(self) -> None:
        """What an earlier write left over."""
        if not self._unsent:
            return
        try:
            del self._unsent[: self.sock.send(self._unsent)]
        except OSError:
            return
        if not self._unsent:
            self._epoll.modify(self.sock, EPOLLIN)

    def decoded(self, data: bytes) -> bytes:
        """What came, of a link with a layer. Raises LayerError."""
        assert self.layer is not None
        plain = self.layer.decode(data)
        while self.layer.more:
            plain += self.layer.decode(b"")
        return plain

    def count_error(self, data: bytes) -> None:
        """Count an error frame by its code."""
        self.errors[data.decode("ascii", "backslashreplace").partition(" ")[0]] += 1

    def reconnect(self, sock: socket.socket) -> None:
        """Go on with another connection; what the old one had not taken is lost."""
        self.close()
        sock.setblocking(False)
        self.sock = sock
        self.layer = getattr(sock, "layer", None)
        self.closed = False
        self._unsent.clear()
        self._epoll.register(sock, EPOLLIN)

    def close(self) -> None:
        """The other side is gone, or the run is over."""
        if not self.closed:
            self.closed = True
            self._epoll.unregister(self.sock)
            self.sock.close()
