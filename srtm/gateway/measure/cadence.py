"""What is handed over a few times a second, and no more often."""

from collections.abc import Callable


class Cadence:
    """Calls `flush(now)`. Times are monotonic nanoseconds."""

    def __init__(
        self,
        period_ns: int,
        call_at: Callable[[int, Callable[[int], None]], None],
        flush: Callable[[int], None],
    ) -> None:
        self.at = 0  # of the last one
        self._period_ns = period_ns
        self._call_at = call_at
        self._flush = flush
        self._armed = False

    def wish(self, now: int) -> None:
        """Ask for a hand-over, as there is something: at once, if the last one was long ago."""
        if now - self.at >= self._period_ns:
            self._flush(now)
        elif not self._armed:
            self._armed = True
            self._call_at(self.at + self._period_ns, self._alarm)

    def _alarm(self, now: int) -> None:
        self._armed = False
        self._flush(now)
