"""Timestamp sources. Each gives a reader for one connection: `read() -> (data, stamp)`.

`sockopt`  SO_TIMESTAMPNS by recvmsg: the kernel's own time of arrival, for TCP that of the last
           segment of the read; needs no privilege
`clock`    the time of the read itself

Stamps are monotonic nanoseconds. The kernel's are wall-clock and converted by `WallClock`; a stamp
that a step of the clock put into the future is taken as now.
"""

import socket
import struct
from collections.abc import Callable
from typing import Protocol

from srtm.clock import NS, WallClock, monotonic_ns

READ_BYTES = 64 * 1024
"""One read of one connection: 32 segments of loopback, so that no publisher starves the others."""

_SO_TIMESTAMPNS = getattr(socket, "SO_TIMESTAMPNS", 35)  # asm-generic/socket.h; not in socket.py
_TIMESPEC = struct.Struct("@ll")
_ANCILLARY_BYTES = socket.CMSG_SPACE(_TIMESPEC.size)

Read = Callable[[], tuple[bytes, int]]


class StampSource(Protocol):
    """Where arrival times come from."""

    name: str
    in_order: bool
    """Do stamps tell which of two messages came first, whichever was read first?"""

    def prepare(self, listener: socket.socket) -> None:
        """Called once for a listening socket, before it takes connections."""

    def reader(self, connection: socket.socket) -> Read:
        """A function that reads `connection` once. It raises what recv raises."""


class SocketStamps:
    """Kernel arrival times by SO_TIMESTAMPNS, without privileges."""

    name = "sockopt"
    in_order = True

    def __init__(self, wall: WallClock) -> None:
        self._wall = wall

    def prepare(self, listener: socket.socket) -> None:
        # Accepted connections inherit it, so that their first segment is stamped as well.
        listener.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)

    def reader(self, connection: socket.socket) -> Read:
        receive, unpack = connection.recvmsg, _TIMESPEC.unpack
        wall, now_ns = self._wall, monotonic_ns

        def read() -> tuple[bytes, int]:
            data, ancillary, _, _ = receive(READ_BYTES, _ANCILLARY_BYTES)
            now = now_ns()
            if not ancillary:
                return data, now
            seconds, nanoseconds = unpack(ancillary[0][2])
            stamp: int = seconds * NS + nanoseconds - wall.offset_ns
            return data, stamp if stamp < now else now

        return read


class ClockStamps:
    """The time of the read: always there, late whenever the process is."""

    name = "clock"
    in_order = False

    def prepare(self, listener: socket.socket) -> None:
        pass

    def reader(self, connection: socket.socket) -> Read:
        receive, now_ns = connection.recv, monotonic_ns

        def read() -> tuple[bytes, int]:
            return receive(READ_BYTES), now_ns()

        return read


def best_source(wall: WallClock, forced: str | None = None) -> StampSource:
    """The best source that works here, or the one that was asked for."""
    return ClockStamps() if forced == "clock" else SocketStamps(wall)
