"""`clock`: the time of the read. Always there, and late whenever the process is."""

import socket

from kernel.stamps import READ_BYTES, Pieces, Reader, StampSource
from srtm.host.clock import monotonic_ns


class ClockReader(Reader):
    def __init__(self, connection: socket.socket) -> None:
        self.more = False
        self._receive = connection.recv

    def read(self) -> Pieces:
        data = self._receive(READ_BYTES)
        size = len(data)
        self.more = size == READ_BYTES
        return [(data, monotonic_ns())] if size else []


class ClockStamps(StampSource):
    name = "clock"
    in_order = False

    def reader(self, connection: socket.socket) -> Reader:
        return ClockReader(connection)
