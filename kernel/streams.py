"""The streams of all connections, by key. Pure: records in, streams out.

A connection's SYN and first data come before it is accepted. Until then its stream waits here, and
so do those of connections that never are: the number of both is bounded.
"""

from collections.abc import Iterable

from kernel.records import ACK, RST, SYN, Record
from kernel.segments import Stream

URG = 32

MAX_WAITING = 4096
"""Streams not accepted yet: four times the gateway's backlog. A flood of SYNs pushes the oldest
out, and its connection is one without records."""
WAITING_ROOM = 64
"""Segments kept for each of them; with MAX_WAITING it bounds a flood to some 30 MB."""
ROOM = 4096
"""Segments kept for an accepted connection: more than its receive buffer holds of full ones (6 MB
by default), and a second of a publisher that sends each message alone, 4,000 times a second."""

_SPECIAL = SYN | RST | URG


class Streams:
    """Streams by key (kernel/records.py): claimed once accepted, waiting until then."""

    def __init__(self) -> None:
        self._by_key: dict[bytes, Stream] = {}
        self._waiting: dict[bytes, None] = {}  # in order of their SYNs

    def __len__(self) -> int:
        return len(self._by_key)

    def feed(self, records: Iterable[Record]) -> None:
        """Give each record to its stream; a connection whose SYN was not seen has none."""
        by_key = self._by_key
        for record in records:
            stream = by_key.get(record[3])
            if record[4] & _SPECIAL:
                self._special(record, stream)
            elif stream is not None:
                stream.add(record)

    def claim(self, key: bytes) -> Stream | None:
        """The stream of a connection that has just been accepted; None without its SYN."""
        if key not in self._waiting:
            return None
        del self._waiting[key]
        stream = self._by_key[key]
        if stream.room:
            stream.room = ROOM
        return stream

    def forget(self, key: bytes, stream: Stream) -> None:
        """The connection is closed. A stream that has taken its place stays."""
        if self._by_key.get(key) is stream:
            del self._by_key[key]

    def _special(self, record: Record, stream: Stream | None) -> None:
        _, seq, length, key, flags = record
        if flags & SYN and not flags & (ACK | RST):
            if stream is None or stream.isn != seq:
                stream = self._begin(key, seq)
            if length:  # TCP fast open
                stream.add((record[0], (seq + 1) % (1 << 32), length, key, flags))
        elif stream is not None and (flags & URG or key in self._waiting):
            # Urgent data: the urgent byte is no part of what is read, so offsets shift. A reset
            # before the accept: the next SYN may be accepted before or after what it ended.
            stream.stop()

    def _begin(self, key: bytes, isn: int) -> Stream:
        """A new connection, perhaps on addresses that were used before."""
        waiting = self._waiting
        stream = Stream(isn, WAITING_ROOM)
        if key in waiting:
            # Two were not accepted yet, and nothing tells which of them will be first.
            stream.stop()
            del waiting[key]
        self._by_key[key] = stream
        waiting[key] = None
        if len(waiting) > MAX_WAITING:
            oldest = next(iter(waiting))
            del waiting[oldest], self._by_key[oldest]
        return stream
