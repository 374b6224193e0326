"""One broker's bucket over given arrivals, exact in time, by whole stretches between rescales.

The level V is tokens where it is positive, and less the messages that wait where it is negative. It
rises by r to at most b. A batch of n goes when all its tokens are there, or when the bucket is full
where n > b, which leaves a debt. Who waits is served in order, so a batch that lacks x tokens goes
once r has brought x, whatever comes behind it. Growing adds no tokens, shrinking cuts them.
"""

import numpy as np

from srtm.queueing import Floats
from tb_adaptor.share import Part
from tb_adaptor.window import levels_after

_SLACK = 1e-9
"""messages; less is rounding"""


class Bucket:
    """times: seconds, sorted, shape (n,); counts: messages of each batch. It starts full at 0."""

    def __init__(self, part: Part, times: Floats, counts: Floats) -> None:
        self.part = part
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

    def arrivals(self, since: int) -> tuple[Floats, Floats]:
        """Those that have come, from the batch `since` on."""
        return self._times[since : self._next], self._counts[since : self._next]

    @property
    def arrived(self) -> int:
        return self._next

    def advance(self, until: float) -> None:
        """All that comes until then, that instant included."""
        rate, burst = self.part
        end = int(np.searchsorted(self._times, until, side="right"))
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
        self._brought += rate * (until - self._at)
        self._at = until
        self.most_waiting = max(self.most_waiting, self.waiting)

    def _serve(self, until: float) -> None:
        first, end = self._first, self._next
        if first == end:
            return
        rate, burst = self.part
        times, counts = self._times[first:end], self._counts[first:end]
        needed = self._target[first:end] - np.maximum(counts - burst, 0.0)
        needed = np.maximum.accumulate(needed)
        brought_at_arrival = self._brought + rate * np.maximum(times - self._at, 0.0)
        lacks = needed - brought_at_arrival
        went = np.maximum(self._at + (needed - self._brought) / rate, np.maximum(times, self._at))
        went = np.where((lacks <= _SLACK) & (times >= self._at), times, went)
        gone = int(np.searchsorted(went, until, side="right"))
        self.left[first : first + gone] = went[:gone]
        self._first += gone

    def rescale(self, part: Part, at: float) -> None:
        self.advance(at)
        self.part = part
        lost = max(0.0, self._level + self.waiting - part.burst)  # tokens that no longer fit
        self._level -= lost
        self._target[self._first : self._next] += lost

    def finish(self) -> None:
        """Until the last one has gone, at the share in force."""
        if self._next < self._times.size:
            self.advance(float(self._times[-1]))
        if self._first < self._next:
            lacking = float(self._target[self._first : self._next].max()) - self._brought
            self.advance(self._at + max(0.0, lacking) / self.part.rate + 1.0)
