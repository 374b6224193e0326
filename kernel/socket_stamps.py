"""`sockopt`: SO_TIMESTAMPNS by recvmsg, the kernel's own time of arrival. Needs no privilege.

For TCP it is one time for each read, that of the last segment. It is wall-clock, and converted by
`WallClock`; a stamp that a step of the clock put into the future is taken as now.
"""

import socket
import struct

from kernel.stamps import READ_BYTES, Pieces, Reader, StampSource
from srtm.host.clock import NS, WallClock, monotonic_ns

SO_TIMESTAMPNS = getattr(socket, "SO_TIMESTAMPNS", 35)  # asm-generic/socket.h; not in socket.py
_TIMESPEC = struct.Struct("@ll")
_ANCILLARY_BYTES = socket.CMSG_SPACE(_TIMESPEC.size)


class SocketReader(Reader):
    def __init__(self, connection: socket.socket, wall: WallClock) -> None:
        self.more = False
        self._receive = connection.recvmsg
        self._unpack = _TIMESPEC.unpack
        self._wall = wall
        self._newest = 0

    def read(self) -> Pieces:
        data, ancillary, _, _ = self._receive(READ_BYTES, _ANCILLARY_BYTES)
        stamp = monotonic_ns()
        size = len(data)
        self.more = size == READ_BYTES
        if not size:
            return []
        if ancillary:
            seconds, nanoseconds = self._unpack(ancillary[0][2])
            arrived: int = seconds * NS + nanoseconds - self._wall.offset_ns
            stamp = min(stamp, arrived)
        self._newest = stamp = max(stamp, self._newest)
        return [(data, stamp)]


class SocketStamps(StampSource):
    name = "sockopt"
    in_order = True

    def __init__(self, wall: WallClock, reason: str = "") -> None:
        super().__init__(reason)
        self._wall = wall

    def prepare(self, listener: socket.socket) -> None:
        # Accepted connections inherit it, so that their first segment is stamped as well.
        listener.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)

    def reader(self, connection: socket.socket) -> Reader:
        return SocketReader(connection, self._wall)
