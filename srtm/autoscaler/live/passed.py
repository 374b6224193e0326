"""How many records a range of a partition's offsets has, by what consumers commit. Pure.

Markers of transactions, records of aborted ones and compacted ones have offsets, and are no events.
Consumers of our own commit the number of records beside the offset; of a range that is not passed
yet the density is that of the latest commits, and of groups that tell nothing an offset is a
record.
"""

import statistics
from bisect import bisect_right
from collections import deque

_MOST = 512
"""points that are kept: commits of several readings"""
_RATIOS = 9
"""Their median: a few commits are enough to see a topic of small transactions or a compacted one,
and one aborted transaction says nothing of what comes next."""


class Passed:
    __slots__ = ("_offsets", "_ratios", "_records")

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._records: list[int] = []
        self._ratios: deque[float] = deque(maxlen=_RATIOS)

    @property
    def counts(self) -> bool:
        """Does who commits tell the number of records?"""
        return bool(self._offsets)

    def see(self, before: int | None, offset: int, records: int | None) -> None:
        """`records` of the partition are done up to `offset`; None: who commits does not count.
        before: what was committed last, by whoever it was."""
        if self._offsets and (records is None or offset < self._offsets[-1]):
            self._offsets.clear()
            self._records.clear()
        if records is None:
            return
        if not self._offsets and before is not None and records <= offset - before:
            self._offsets.append(before)  # it has begun to count there
            self._records.append(0)
        if self._offsets:
            passed, done = offset - self._offsets[-1], records - self._records[-1]
            if not passed and not done:
                return
            if not 0 <= done <= passed:  # another's count
                self._offsets.clear()
                self._records.clear()
            elif done:
                self._ratios.append(done / passed)
        self._offsets.append(offset)
        self._records.append(records)
        if len(self._offsets) > _MOST:
            del self._offsets[: _MOST // 2], self._records[: _MOST // 2]

    def between(self, low: float, high: float) -> float:
        """Records from `low` on and before `high`."""
        return max(self._at(high) - self._at(low), 0.0)

    def _at(self, offset: float) -> float:
        if not self._offsets:
            return offset
        index = bisect_right(self._offsets, offset)
        if not index:
            return self._records[0] - (self._offsets[0] - offset) * self._density
        begin, done = self._offsets[index - 1], self._records[index - 1]
        if index == len(self._offsets):
            return done + (offset - begin) * self._density
        share = (offset - begin) / (self._offsets[index] - begin)
        return done + share * (self._records[index] - done)

    @property
    def _density(self) -> float:
        return statistics.median(self._ratios) if self._ratios else 1.0
