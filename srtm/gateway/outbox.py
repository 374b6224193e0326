"""Answers of one wake-up, sent together at its end. A client gets several answers in one piece, and
clients wake up when all are answered, rather than take the gateway's CPU after each send."""

from collections.abc import Callable
from typing import Protocol

from srtm.gateway.sender import send_all
from srtm.nsq.layers.layer import Layer


class Recipient(Protocol):
    """A client."""

    def sent_short(self, data: bytes, sent: int) -> None:
        """Learn that only `sent` bytes of `data` were taken; below zero it is -errno."""

    def close(self) -> None: ...


class Outbox:
    """A client remembers the turn in which it put an answer in, and its slot: while the turn is
    the same, what it writes next joins that answer."""

    def __init__(self, on_fault: Callable[[Exception, str], None]) -> None:
        self._on_fault = on_fault
        self.turn = 1
        self._clients: list[Recipient] = []
        self._fds: list[int] = []
        self._pieces: list[bytes] = []
        self._layers: list[tuple[int, Layer]] = []  # by slot

    def put(self, client: Recipient, fd: int, data: bytes) -> int:
        """Returns its slot."""
        slot = len(self._fds)
        self._clients.append(client)
        self._fds.append(fd)
        self._pieces.append(data)
        return slot

    def put_through(self, client: Recipient, fd: int, data: bytes, layer: Layer) -> int:
        """Like `put`; all that is in the slot at the end goes through `layer` together."""
        slot = self.put(client, fd, data)
        self._layers.append((slot, layer))
        return slot

    def join(self, slot: int, data: bytes) -> None:
        self._pieces[slot] += data

    def take(self, slot: int) -> bytes:
        """What is in it, for a client that cannot wait."""
        data, self._pieces[slot] = self._pieces[slot], b""
        return data

    def flush(self, _now: int, _horizon: int) -> bool:
        """The stage after all that decide."""
        fds = self._fds
        if fds:
            clients, pieces = self._clients, self._pieces
            self._clients, self._fds, self._pieces = [], [], []
            self.turn += 1
            if self._layers:
                self._encode(clients, pieces)
            for slot, sent in send_all(fds, pieces):
                try:
                    clients[slot].sent_short(pieces[slot], sent)
                except Exception as error:
                    self._on_fault(error, "answers could not be kept and the connection is closed")
                    clients[slot].close()
        return False

    def _encode(self, clients: list[Recipient], pieces: list[bytes]) -> None:
        layers, self._layers = self._layers, []
        for slot, layer in layers:
            data, pieces[slot] = pieces[slot], b""
            if data:
                try:
                    pieces[slot] = layer.encode(data)
                except Exception as error:
                    self._on_fault(error, "answers could not be sent and the connection is closed")
                    clients[slot].close()
