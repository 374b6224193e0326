"""The rate that one consumer can serve, learnt from its rate while it had work. Pure.

A window counts where there was more work at its begin than was served in it: the consumer never
waited for events then. Windows are as long as several batches, so that what a commit rounds away
counts little, and old ones fade. A consumer that is never short of time teaches nothing; what it
reports itself does (srtm/consumer/capacity.py).
"""

from dataclasses import dataclass

WINDOW_SECONDS = 1.0
_FADE = 0.9
"""of older windows, with each new one: a mean over the last ten seconds of work"""


@dataclass(slots=True)
class Capacity:
    """mu: events/s, or bytes/s; None before the first busy window."""

    _served: float = 0.0
    _seconds: float = 0.0
    _begin: tuple[float, float, float] | None = None
    _partitions: tuple[int, ...] = ()

    @property
    def mu(self) -> float | None:
        return self._served / self._seconds if self._served and self._seconds else None

    def see(self, at: float, partitions: tuple[int, ...], committed: float, lag: float) -> None:
        """committed, lag: sums over `partitions`, which are the consumer's now; weighed alike"""
        if self._begin is None or partitions != self._partitions or committed < self._begin[1]:
            self._begin, self._partitions = (at, committed, lag), partitions
            return
        begun, before, waiting = self._begin
        seconds, served = at - begun, committed - before
        if seconds < WINDOW_SECONDS:
            return
        if 0 < served < waiting:
            self._served = _FADE * self._served + served
            self._seconds = _FADE * self._seconds + seconds
        self._begin = (at, committed, lag)
