"""Arrivals and admissions of one topic as they happened, for who asks: benchmarks and audits."""

from typing import Any

_MAX_ENTRIES = 500_000  # of each kind, about 50 MB; what comes more is counted as lost
_KEPT_TICKS = 30


class Record:
    """Times are monotonic nanoseconds.

    arrivals:   (stamp, messages), in the order in which they were decided
    admissions: (bucket time of the first, step, messages): the k-th got its token k * step later
    """

    __slots__ = ("_age", "admissions", "arrivals", "lost")

    def __init__(self) -> None:
        self.arrivals: list[tuple[int, int]] = []
        self.admissions: list[tuple[int, float, int]] = []
        self.lost = 0
        self._age = 0

    def take(self) -> dict[str, Any]:
        """What came since the last call."""
        document = {"arrivals": self.arrivals, "admissions": self.admissions, "lost": self.lost}
        self.arrivals, self.admissions, self.lost, self._age = [], [], 0, 0
        return document

    def tick(self) -> bool:
        """Bound the record, once a second; False when nobody has asked for a while."""
        self._age += 1
        for entries in (self.arrivals, self.admissions):
            if len(entries) > _MAX_ENTRIES:
                self.lost += len(entries) - _MAX_ENTRIES
                del entries[_MAX_ENTRIES:]
        return self._age < _KEPT_TICKS
