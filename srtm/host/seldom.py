"""Lines of the log that strangers can cause: they choose how many there are, not how many are
written."""

from collections.abc import Callable

from srtm.host.clock import NS, monotonic_ns


class Seldom:
    """Says when a line may be written again."""

    def __init__(
        self, period_seconds: float, seconds: Callable[[], float] = lambda: monotonic_ns() / NS
    ) -> None:
        """period_seconds: from one line to the next"""
        self._period = period_seconds
        self._seconds = seconds
        self._written_at = -period_seconds
        self._count = 0

    def count(self) -> int:
        """One more cause. For how many the line stands that is written now, this one included; 0:
        none is."""
        self._count += 1
        now = self._seconds()
        if now - self._written_at < self._period:
            return 0
        count, self._count = self._count, 0
        self._written_at = now
        return count
