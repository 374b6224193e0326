"""Big bodies under way to one topic: they count in the topic's bound before they are read.

A body bigger than one read is asked for as soon as its size is known. While the topic has room it
comes; else its reader waits, unread, and is let in when there is room, in the order of asking. So
the bytes of a topic stay within its bound (and one body more) however many connections they are
spread over. A body that dawdles loses its place, or a few clients with half bodies would keep all
others out; what has come of it counts in --max-partial-bytes alone.
"""

from typing import Protocol

from srtm.gateway.backlogs import Backlogs

_SLOW_NS = 10_000_000_000
"""The time in which a body has to come: the largest by default, 5 MiB, at 4 Mbit/s."""


class Reader(Protocol):
    """Whose body it is."""

    def resume(self, reason: object) -> None:
        """The body may be read."""


class Bodies:
    """Times are monotonic nanoseconds."""

    __slots__ = ("_backlogs", "_coming", "_coming_bytes", "_waiting", "most_bytes")

    def __init__(self, most_bytes: int, backlogs: Backlogs) -> None:
        self.most_bytes = most_bytes
        self._backlogs = backlogs
        self._coming: dict[
            Reader, tuple[int, int]
        ] = {}  # its bytes and its beginning, oldest first
        self._coming_bytes = 0
        self._waiting: dict[Reader, int] = {}  # its bytes, in order of asking

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def begin(self, reader: Reader, size: int, backlog_bytes: int, now: int) -> bool:
        """May it come now? `backlog_bytes` are those of the topic that have come."""
        self._drop_slow(now)
        if self._waiting or not self._has_room(backlog_bytes, size):
            return False
        self._coming[reader] = size, now
        self._coming_bytes += size
        return True

    def wait(self, reader: Reader, size: int) -> None:
        """The reader is told when its body may come: by `resume`, with this object as the
        reason."""
        self._waiting[reader] = size

    def end(self, reader: Reader) -> None:
        """The body has come whole, or never will."""
        self._waiting.pop(reader, None)
        size, _ = self._coming.pop(reader, (0, 0))
        self._coming_bytes -= size

    def let_in(self, backlog_bytes: int, now: int) -> None:
        """Let bodies in that wait: there may be room."""
        self._drop_slow(now)
        while self._waiting:
            reader, size = next(iter(self._waiting.items()))
            if not self._has_room(backlog_bytes, size):
                return
            del self._waiting[reader]
            self._coming[reader] = size, now
            self._coming_bytes += size
            reader.resume(self)

    def next_at(self, now: int) -> int:
        """When there may be room though nothing ends."""
        oldest = next(iter(self._coming.values()), (0, now))
        return oldest[1] + _SLOW_NS

    def _has_room(self, backlog_bytes: int, size: int) -> bool:
        held = backlog_bytes + self._coming_bytes
        return held < self.most_bytes and not self._backlogs.is_full_for(held + size)

    def _drop_slow(self, now: int) -> None:
        while self._coming:
            reader, (size, began_at) = next(iter(self._coming.items()))
            if began_at + _SLOW_NS > now:
                return
            del self._coming[reader]
            self._coming_bytes -= size
