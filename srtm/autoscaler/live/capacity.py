"""The rate that one consumer can serve, learnt from its rate while it had work. Pure.

A window counts where there was more work at its begin than was served in it: the consumer never
waited for events then. It begins and ends as a commit is seen, so that it holds whole batches,
however long one takes, and old windows fade. A consumer that stood still (paused, frozen) is no
slow one, so a window far longer than those before it counts as a few of them. A consumer that is
never short of time teaches nothing; what it reports itself does (srtm/consumer/capacity.py).
"""

from dataclasses import dataclass

WINDOW_SECONDS = 1.0
"""of a window at least: several batches, as a rule, and then what a commit rounds away is little"""
_FADE = 0.9
"""of older windows, with each new one: a mean over the last ten"""
_LONGEST = 4.0
"""times the mean of the windows before, for which a window counts at most"""


@dataclass(slots=True)
class Capacity:
    """mu: events/s, or bytes/s; None before the first busy window."""

    _served: float = 0.0
    _seconds: float = 0.0
    _windows: float = 0.0
    _committed: float = 0.0
    """as it was seen last"""
    _begin: tuple[float, float, float] | None = None
    _partitions: tuple[int, ...] | None = None

    @property
    def mu(self) -> float | None:
        return self._served / self._seconds if self._served and self._seconds else None

    def see(self, at: float, partitions: tuple[int, ...], committed: float, lag: float) -> None:
        """committed, lag: sums over `partitions`, which are the consumer's now; weighed alike"""
        before, self._committed = self._committed, committed
        if partitions != self._partitions or committed < before:
            self._begin, self._partitions = None, partitions
            return
        if committed == before:  # a batch may be under way
            return
        if self._begin is not None:
            begun, done, waiting = self._begin
            if at - begun < WINDOW_SECONDS:
                return
            if committed - done < waiting:
                self._learn(committed - done, at - begun)
        self._begin = (at, committed, lag)

    def _learn(self, served: float, seconds: float) -> None:
        if self._seconds > _LONGEST * seconds * self._windows:  # it stood still in those before
            self._served = self._seconds = self._windows = 0.0
        if self._windows:
            seconds = min(seconds, _LONGEST * self._seconds / self._windows)
        self._served = _FADE * self._served + served
        self._seconds = _FADE * self._seconds + seconds
        self._windows = _FADE * self._windows + 1
