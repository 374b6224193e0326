"""The contract of a timestamp source: how a connection is read, and what is known of the source.

A source gives each connection a `Reader`, and each read comes in pieces, one for each arrival time:
`[(bytes, stamp)]`. Most reads are one piece. A message arrives with its last byte, so whoever feeds
a parser piece by piece knows the time of each message.

Stamps are monotonic nanoseconds, and along one connection they never go back: or a publisher's
messages would be sorted out of the order in which it sent them.
"""

import socket

READ_BYTES = 64 * 1024
"""One read of one connection: 32 segments of loopback, so that no publisher starves the others."""

Pieces = list[tuple[bytes, int]]


class Reader:
    """Reads one connection, without blocking when the socket is set so.

    more: the last read may have left something in the socket
    """

    more: bool

    def read(self) -> Pieces:
        """What there is, in order; [] at the end of the stream. Raises what recv raises."""
        raise NotImplementedError

    def close(self) -> None:
        """The connection is closed."""


class StampSource:
    """Where arrival times come from.

    name:     ebpf, sockopt or clock
    reason:   why a better one is not in use; empty where it is the best, or was asked for
    in_order: do stamps tell which of two messages came first, whichever was read first?
    degraded_bytes: read with a stamp of a worse source, since start
    """

    name: str
    in_order: bool

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        self.degraded_bytes = 0

    @property
    def lost_records(self) -> int:
        """Segments that came too fast to be recorded, since start."""
        return 0

    def prepare(self, listener: socket.socket) -> None:
        """Called for a bound socket before it listens. Raises OSError."""

    def reader(self, connection: socket.socket) -> Reader:
        """The reader of a connection that has just been accepted."""
        raise NotImplementedError

    def tick(self) -> None:
        """Called once a second, also when nothing is read."""

    def close(self) -> None:
        """No more is read; what the source has in the kernel is gone."""
