"""Which segment brought which byte of a TCP stream, and when. Pure: records in, stamps out.

Offset 0 of a stream is the first byte after the SYN, whatever sequence number that has. The stamp
of a byte is the time at which it and all bytes before it had arrived: a byte that overtook another
cannot be read until the gap is filled, so it has not arrived in the sense of a stream, and stamps
never decrease along one. Of a byte that came several times (retransmits, overlaps) the first time
counts. A byte that no record tells of is UNKNOWN, and only that byte.
"""

from bisect import bisect_right
from collections import deque

from kernel.records import Record

UNKNOWN = -1
"""The stamp of a byte of which no record tells."""

_SEQUENCES = 1 << 32
_BEHIND = 1 << 31  # a distance of this much or more lies before, not ahead (RFC 9293, section 3.4)
_MAX_WINDOW = 1 << 30
"""No TCP window is bigger (RFC 7323, section 2.3): a segment further ahead is none of this stream's
and its receiver drops it."""


class Stream:
    """One connection's bytes from its SYN on. Times are monotonic nanoseconds.

    isn:  sequence number of the SYN
    room: segments kept that have not been taken; what comes past it stays unknown
    """

    __slots__ = ("_early", "_end", "_newest", "_next", "_position", "_runs", "isn", "room")

    def __init__(self, isn: int, room: int) -> None:
        self.isn = isn
        self.room = room
        self._position = 0  # bytes taken
        self._end = 0  # up to here everything has come, as far as records tell
        self._next = (isn + 1) % _SEQUENCES  # the sequence number of byte `_end`
        self._newest = 0  # the stamp of byte `_end` - 1
        self._runs: deque[tuple[int, int]] = deque()  # (end, stamp) of bytes [_position, _end)
        self._early: list[tuple[int, int, int]] = []  # (start, end, time) beyond a gap

    @property
    def known(self) -> int:
        """Bytes, from the next one on, that have a stamp."""
        return self._end - self._position

    def add(self, record: Record) -> None:
        """Take a segment's record; without payload it says nothing."""
        time_ns, seq, length, _, _ = record
        ahead = (seq - self._next) % _SEQUENCES
        if ahead >= _BEHIND:
            length -= _SEQUENCES - ahead
            ahead = 0
        if length <= 0 or len(self._runs) + len(self._early) >= self.room:
            return
        if ahead == 0:
            self._append(self._end + length, time_ns)
            if self._early:
                self._join()
        elif ahead <= _MAX_WINDOW:
            self._keep(self._end + ahead, self._end + ahead + length, time_ns)

    def stop(self) -> None:
        """Trust no later record, and none beyond a gap: their bytes are unknown."""
        self.room = 0
        self._early.clear()

    def cut(self, data: bytes) -> list[tuple[bytes, int]]:
        """The next bytes of the stream, cut where the stamp changes: [(bytes, stamp or UNKNOWN)].
        They are forgotten then."""
        runs = self._runs
        goal = self._position + len(data)
        if runs and runs[0][0] == goal:
            self._position = goal
            return [(data, runs.popleft()[1])]
        pieces: list[tuple[bytes, int]] = []
        start, at = self._position, self._position
        while at < goal:
            if runs:
                end, stamp = runs[0]
                if end <= goal:
                    runs.popleft()
                else:
                    end = goal
            else:
                end, stamp = self._skip(goal), UNKNOWN
            pieces.append((data[at - start : end - start], stamp))
            at = end
        self._position = goal
        return pieces

    def _append(self, end: int, time_ns: int) -> None:
        """Bytes [_end, end) came in order at `time_ns`."""
        runs = self._runs
        if time_ns > self._newest:
            self._newest = time_ns
        elif runs:
            runs.pop()  # no later than the bytes before it: one piece with them
        runs.append((end, self._newest))
        self._next = (self._next + end - self._end) % _SEQUENCES
        self._end = end

    def _join(self) -> None:
        """Segments beyond the gap, once it is filled (or skipped)."""
        early, joined = self._early, 0
        for start, end, time_ns in early:
            if start > self._end:
                break
            joined += 1
            if end > self._end:
                self._append(end, time_ns)
        del early[:joined]

    def _keep(self, start: int, end: int, time_ns: int) -> None:
        """Bytes [start, end) lie beyond a gap. Where two overlap, the one that starts first goes
        first, and none of its bytes are earlier than its own first one: nothing is to be cut."""
        early = self._early
        place = bisect_right(early, start, key=_start)
        if not place or early[place - 1][1] < end:
            early.insert(place, (start, end, time_ns))

    def _skip(self, goal: int) -> int:
        """The gap before the next known byte was read, so its records are lost; where it ends."""
        end = min(goal, self._early[0][0]) if self._early else goal
        self._next = (self._next + end - self._end) % _SEQUENCES
        self._end = end
        self._join()
        return end


def _start(segment: tuple[int, int, int]) -> int:
    return segment[0]
