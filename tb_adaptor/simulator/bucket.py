"""One broker's bucket over given arrivals, exact in time, by whole stretches between rescales.

The level V is tokens where it is positive, and less the messages that wait where it is negative. It
rises by r to at most b. A batch of n goes when all its tokens are there, or when the bucket is full
where n > b, which leaves a debt; in a share of a contract (`owes` is False) such a batch waits for
all of it. Who waits is served in order, so a batch that lacks x tokens goes
once r has brought x, whatever comes behind it. Growing adds no tokens, shrinking cuts them.
"""

import numpy as np

from srtm.limits.queueing import Floats
from tb_adaptor.share import Part
from tb_adaptor.window import levels_after

_NO_RATE = 1e-12
"""messages/s: of a broker whose share another one has for a moment"""
_SLACK = 1e-9
"""messages; less is rounding"""


class Bucket:
    """times: seconds, sorted, shape (n,); counts: messages of each batch. It starts full at 0."""

    def __init__(self, part: Part, times: Floats, counts: Floats, owes: bool = True) -> None:
        self.part = part
        self.owes = owes
        self._times = times
        self._counts = counts
        self._next = 0
        self._at = 0.0
        self._level = part.burst
        self._brought = 0.0  # by r since 0, whatever overflowed
        self._first = 0  # of the batches that wait; they are those up to _next
        self._target = np.zeros(times.size)  # what r must have brought for the debt to be paid
        self.left = np.full(times.size, np.inf)  # when each went
        self.most_waiting = 0.0  # since somebody last asked

    @property
    def waiting(self) -> float:
        """Messages without a token, as of the last advance."""
        return float(self._counts[self._first : self._next].sum())

    @property
    def head(self) -> int:
        """Messages of the batch that waits first; 0: none does."""
        return int(self._counts[self._first]) if self._first < self._next else 0

    @property
    def level(self) -> float:
        """Tokens, less those that wait and the debt, as of the last advance."""
        return self._level

    @property
    def debt(self) -> float:
        """Tokens that a batch bigger than b has left to be paid."""
        return max(0.0, -self._level - self.waiting)

    @property
    def is_stuck(self) -> bool:
        """Is there something, waiting or to come, that never goes by this share?"""
        left = self._counts[self._first :]
        if not left.size or not self.part.rate:
            return left.size > 0
        return not self.owes and float(left.max()) > self.part.burst + _SLACK

    def arrivals(self, since: int) -> tuple[Floats, Floats]:
        """The arrivals that have come, from the batch `since` on."""
        return self._times[since : self._next], self._counts[since : self._next]

    @property
    def arrived(self) -> int:
        return self._next

    def advance(self, until: float) -> None:
        """Take all that comes until then, that instant included."""
        rate, burst = self.part
        end = int(np.searchsorted(self._times, until, side="right"))
        if self._is_held:
            self._hold(until, end)
            return
        times, counts = self._times[self._next : end], self._counts[self._next : end]
        level = self._level
        if times.size:
            after = levels_after(level, self.part, self._at, times, counts)
            self._target[self._next : end] = self._brought + rate * (times - self._at) - after
            self.most_waiting = max(self.most_waiting, float(-after.min()))
            level = float(after[-1]) + rate * (until - float(times[-1]))
        else:
            level += rate * (until - self._at)
        self._next = end
        self._serve(until)
        self._level = min(burst, level)
        if self._is_held:
            self._level = level
            self._cut(burst)
        self._brought += rate * (until - self._at)
        self._at = until
        self.most_waiting = max(self.most_waiting, self.waiting)

    @property
    def _is_held(self) -> bool:
        """Does the first that waits not go by this share?"""
        over = not self.owes and self.head > self.part.burst + _SLACK
        return self.head > 0 and (over or not self.part.rate)

    def _hold(self, until: float, end: int) -> None:
        """The first that waits cannot go, and nobody behind it does: the bucket fills, and holds no
        more than b. Batches up to `end` come meanwhile."""
        rate, burst = self.part
        brought = rate * (until - self._at)
        tokens = self._level + self.waiting + brought
        self._target[self._first : self._next] += max(0.0, tokens - burst)
        tokens = min(tokens, burst)
        self._brought += brought
        ahead = self.waiting + np.cumsum(self._counts[self._next : end])
        self._target[self._next : end] = self._brought - tokens + ahead
        self._next, self._at = end, until
        self._level = tokens - self.waiting
        self.most_waiting = max(self.most_waiting, self.waiting)

    def _serve(self, until: float) -> None:
        first, end = self._first, self._next
        if first == end:
            return
        rate, burst = self.part
        times, counts = self._times[first:end], self._counts[first:end]
        needed = self._target[first:end] - np.maximum(counts - burst, 0.0)
        if not self.owes:
            needed = np.where(counts > burst + _SLACK, np.inf, needed)
        needed = np.maximum.accumulate(needed)
        brought_at_arrival = self._brought + rate * np.maximum(times - self._at, 0.0)
        lacks = needed - brought_at_arrival
        ready = self._at + (needed - self._brought) / max(rate, _NO_RATE)
        went = np.maximum(ready, np.maximum(times, self._at))
        went = np.where((lacks <= _SLACK) & (times >= self._at), times, went)
        gone = int(np.searchsorted(went, until + _SLACK, side="right"))
        self.left[first : first + gone] = went[:gone]
        self._first += gone

    def rescale(self, part: Part, at: float, owes: bool = True) -> None:
        self.advance(at)
        self.part, self.owes = part, owes
        self._cut(part.burst)

    def _cut(self, burst: float) -> None:
        """Tokens that do not fit are lost to those who wait."""
        lost = max(0.0, self._level + self.waiting - burst)
        self._level -= lost
        self._target[self._first : self._next] += lost

    def finish(self) -> None:
        """Advance until the last batch has gone, at the share in force."""
        if self._next < self._times.size:
            self.advance(float(self._times[-1]))
        if self._first < self._next:
            lacking = float(self._target[self._first : self._next].max()) - self._brought
            self.advance(self._at + max(0.0, lacking) / self.part.rate + 1.0)
