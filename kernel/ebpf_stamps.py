"""`ebpf`: the time at which each segment reached this host, as the program in kernel/ recorded it.

A record is there before the bytes of its segment can be read, so the ring is looked into only when
something is readable of which nothing is known yet: once for all connections of a wake-up, in most
cases. What is known is then read by a plain recv, one byte more than it is, so that a short read
still means that the socket is empty. Bytes without a record (the ring was full, or the connection
is older than the program) get the socket's stamp (`sockopt`) where the kernel gives one, else the
time of the read; they are counted.
"""

import socket
from collections.abc import Iterable
from typing import Protocol

from kernel.records import Record, key_of
from kernel.segments import UNKNOWN, Stream
from kernel.socket_stamps import SocketReader, SocketStamps
from kernel.stamps import READ_BYTES, Pieces, Reader, StampSource
from kernel.streams import Streams
from srtm.host.clock import WallClock, monotonic_ns


class Program(Protocol):
    """The program in the kernel (kernel/ebpf.py)."""

    @property
    def lost(self) -> int:
        """Segments for whose records the ring had no room."""

    def add_port(self, port: int) -> None:
        """Record the segments to this local TCP port."""

    def drain(self) -> Iterable[Record]:
        """All records that are there."""

    def close(self) -> None: ...


class SegmentReader(Reader):
    """A connection that the program has seen from its SYN on."""

    def __init__(
        self, source: "EbpfStamps", connection: socket.socket, key: bytes, stream: Stream
    ) -> None:
        self.more = False
        self._receive = connection.recv
        self._socket = SocketReader(connection, source.wall)
        self._source = source
        self._key = key
        self._stream = stream
        self._newest = 0

    def read(self) -> Pieces:
        stream = self._stream
        known = stream.known
        if not known:
            self._source.drain()
            known = stream.known
        if not known:
            return self._read_unknown(b"")
        asked = known + 1 if known < READ_BYTES else READ_BYTES
        data = self._receive(asked)
        size = len(data)
        self.more = size == asked
        if size > known:
            self._source.drain()
            if size > stream.known:
                return self._read_unknown(data)
        if not size:
            return []
        pieces = stream.cut(data)
        if pieces[0][1] < self._newest:
            return self._settle(pieces, self._newest)
        return pieces

    def _read_unknown(self, data: bytes) -> Pieces:
        """`data` has been read and is not all known, and what follows is not known either."""
        fallback = 0
        try:
            for more, stamp in self._socket.read():
                data, fallback = data + more, stamp
            self.more = self._socket.more
        except BlockingIOError:
            if not data:
                raise
            self.more = False
        if not data:
            return []
        if self._stream.known < len(data):
            self._source.drain()
        return self._settle(self._stream.cut(data), fallback or monotonic_ns())

    def _settle(self, pieces: Pieces, fallback: int) -> Pieces:
        """Give UNKNOWN pieces a stamp: `fallback`, or that of the known piece behind them, if it
        is earlier. No piece is earlier than the one before."""
        settled: Pieces = []
        for data, stamp in reversed(pieces):
            if stamp == UNKNOWN:
                stamp = fallback
                self._source.degraded_bytes += len(data)
            else:
                fallback = min(fallback, stamp)
            settled.append((data, stamp))
        settled.reverse()
        for number, (data, stamp) in enumerate(settled):
            self._newest = max(self._newest, stamp)
            settled[number] = data, self._newest
        return settled

    def close(self) -> None:
        self._source.forget(self._key, self._stream)


class UnseenReader(Reader):
    """A connection without a SYN on record: every byte of it is degraded."""

    def __init__(self, source: "EbpfStamps", connection: socket.socket) -> None:
        self.more = False
        self._source = source
        self._socket = SocketReader(connection, source.wall)

    def read(self) -> Pieces:
        pieces = self._socket.read()
        self.more = self._socket.more
        for data, _ in pieces:
            self._source.degraded_bytes += len(data)
        return pieces


class EbpfStamps(StampSource):
    name = "ebpf"
    in_order = True

    def __init__(self, program: Program, wall: WallClock) -> None:
        super().__init__()
        self.wall = wall
        self._program = program
        self.streams = Streams()
        self._fallback = SocketStamps(wall)

    @property
    def lost_records(self) -> int:
        return self._program.lost

    def prepare(self, listener: socket.socket) -> None:
        self._fallback.prepare(listener)
        self._program.add_port(listener.getsockname()[1])

    def reader(self, connection: socket.socket) -> Reader:
        try:
            key = key_of(connection.getpeername(), connection.getsockname())
        except OSError:  # reset already
            return UnseenReader(self, connection)
        stream = self.streams.claim(key)
        if stream is None:
            self.drain()
            stream = self.streams.claim(key)
        if stream is None:
            return UnseenReader(self, connection)
        return SegmentReader(self, connection, key, stream)

    def drain(self) -> None:
        """Take what the program has recorded."""
        self.streams.feed(self._program.drain())

    def forget(self, key: bytes, stream: Stream) -> None:
        """The connection of this stream is closed."""
        self.streams.forget(key, stream)

    def tick(self) -> None:
        self.drain()  # or the ring would fill while nobody is read

    def close(self) -> None:
        self._program.close()
