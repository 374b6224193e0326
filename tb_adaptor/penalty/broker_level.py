"""One broker's level over time, from its reports: its tokens less its messages without one.

A level is exact in each report. Between two it follows from the arrivals, r_l and b_l, where it
ends as reported. Where it does not, what the bucket was brought (the level plus all arrivals) still
never falls, rises by r_l at most, and is known at both ends. Where the share changed, tokens may
have been cut, and only the rise is bounded. The times of arrivals and reports may be wrong by the
error of the broker's clock, so a moment is given the worst of what that allows.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from srtm.limits.queueing import Floats
from tb_adaptor.penalty.host import LONG_SECONDS
from tb_adaptor.penalty.host_clock import SLOT_SECONDS
from tb_adaptor.share import Part
from tb_adaptor.window import levels_after

Bools = NDArray[np.bool_]

NO_FLOATS: Floats = np.empty(0)
ROUNDING = 1e-6
"""tokens"""
_READ_LATE_SECONDS = 0.05
"""An arrival may be told so much later than a report that was made after it."""
_NOTHING = Part(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Reading:
    """A broker's report. Times are seconds, not of its own clock.

    at:      when it was made
    level:   tokens (less than 0: a debt) less messages without one
    part:    its share
    times, counts: arrivals since the report before, shape (n,)
    largest: messages of the largest batch among them
    error:   by how much all these times may be wrong
    stood:   all reports since the one before told that the bucket was full, none of them late
    """

    at: float
    level: float
    part: Part
    times: Floats
    counts: Floats
    largest: float
    error: float
    stood: bool = False


@dataclass(slots=True)
class _Stretch:
    """From one report of a broker to the next, or to a later one while its bucket stays full and
    nothing comes. What its bucket was brought is its level plus all arrivals until then.

    start, end: seconds; brought: in tokens, at both; rate: r_l, or the more of two
    cut:   its share changed, so tokens may have been taken away
    exact: the bucket did as one of that share does
    owes:  a debt may be paid off: its level is below 0 though nobody waits
    at, high, full: seconds of the start and of each arrival, and what was brought by then: at most,
           and at most until the next one; shape (n,)
    """

    start: float
    end: float
    brought: tuple[float, float]
    rate: float
    error: float
    cut: bool
    exact: bool
    owes: bool
    at: Floats
    high: Floats
    full: Floats

    def bounds(self, times: Floats) -> tuple[Floats, Floats]:
        """The least and the most that was brought until then."""
        before = np.maximum(np.searchsorted(self.at, times, side="right") - 1, 0)
        passed = np.maximum(times - self.at[before], 0.0)
        high = np.minimum(self.full[before], self.high[before] + self.rate * passed)
        if self.exact:
            return high, high
        first, last = self.brought
        low = last - self.rate * np.maximum(self.end - times, 0.0)
        return np.maximum(low, first), np.minimum(high, last)

    @property
    def extremes(self) -> tuple[float, float]:
        """Where tokens may have been taken away at any moment."""
        first, last = self.brought
        risen = self.rate * (self.end - self.start)
        return last - risen, first + risen


@dataclass(slots=True)
class BrokerLevel:
    """at, level, part, error: of the last report; came: messages until then, since the first
    largest: batch that may wait, or may have left a debt, until so much was brought: paid
    times, counts: arrivals that matter still, sorted; before: messages that came before these
    """

    at: float | None = None
    level: float = 0.0
    part: Part = _NOTHING
    error: float = 0.0
    came: float = 0.0
    largest: float = 1.0
    paid: float = 0.0
    stretches: list[_Stretch] = field(default_factory=list)
    times: Floats = field(default_factory=lambda: NO_FLOATS)
    counts: Floats = field(default_factory=lambda: NO_FLOATS)
    before: float = 0.0

    @property
    def margin(self) -> float:
        """By how many seconds times may be wrong."""
        return max(each.error for each in self.stretches)

    @property
    def began(self) -> float:
        return self.stretches[0].start + self.margin

    @property
    def until(self) -> float:
        """Until when all is told."""
        return self.stretches[-1].end - max(_READ_LATE_SECONDS, self.margin)

    def add(self, reading: Reading) -> None:
        at = reading.at
        if self.at is not None:
            at = max(at, self.at)
            if self._stays_full(at, reading):
                self.stretches[-1].end, self.at = at, at
                self.stretches[-1].error = max(self.error, reading.error)
                self.error = reading.error
                return
            came = self.came + float(reading.counts.sum())
            if reading.largest > 1:
                self.largest, self.paid = max(self.largest, reading.largest), came
            self.stretches.append(self._stretch(self.at, at, reading))
            if reading.times.size:
                self._keep(reading)
            self.came = came
            if reading.level + came >= self.paid:
                self.largest = 1.0
        self.at, self.level, self.part, self.error = at, reading.level, reading.part, reading.error

    def _stays_full(self, at: float, reading: Reading) -> bool:
        """Is all as it was through the whole last stretch?"""
        if reading.times.size or not self.stretches or self.at is None:
            return False
        last, full = self.stretches[-1], self.part.burst
        return (
            reading.level == self.level == full
            and reading.part == self.part
            and last.exact
            and last.brought == (full + self.came, full + self.came)
            and (reading.stood or at - self.at <= LONG_SECONDS)
            and not last.owes
        )

    def _stretch(self, start: float, end: float, reading: Reading) -> _Stretch:
        part = Part(
            max(self.part.rate, reading.part.rate), max(self.part.burst, reading.part.burst)
        )
        at, came, level = np.array([start]), np.array([self.came]), np.array([self.level])
        if reading.times.size:
            order = np.argsort(reading.times, kind="stable")
            times, counts = np.maximum(reading.times[order], start), reading.counts[order]
            at, came = np.append(at, times), np.append(came, self.came + np.cumsum(counts))
            level = np.append(level, levels_after(self.level, part, start, times, counts))
        high, full = came + level, came + part.burst
        brought = self.level + self.came, reading.level + float(came[-1])
        reached = min(float(full[-1]), float(high[-1]) + part.rate * max(0.0, end - float(at[-1])))
        error = max(self.error, reading.error)
        cut = (
            part != self.part
            or part != reading.part
            or brought[1] < brought[0] - ROUNDING
            or (end - start > LONG_SECONDS and not reading.stood)
        )
        near = 2 * part.rate * SLOT_SECONDS + ROUNDING
        exact = not cut and abs(reached - brought[1]) <= near
        # What waited at first may have been a batch of any size.
        unpaid = brought[0] < self.paid and self.largest > min(self.part.burst, reading.part.burst)
        owes = brought[0] < 0 or unpaid
        return _Stretch(start, end, brought, part.rate, error, cut, exact, owes, at, high, full)

    def _keep(self, reading: Reading) -> None:
        times, counts = np.append(self.times, reading.times), np.append(self.counts, reading.counts)
        order = np.argsort(times, kind="stable")
        self.times, self.counts = times[order], counts[order]

    @property
    def has_waited(self) -> bool:
        """May a message have waited since what is kept begins? None did where there were tokens
        from the start for all that came."""
        return any(each.cut or each.brought[0] < self.came for each in self.stretches)

    def levels(self, edges: Floats) -> tuple[Floats, Floats, Floats]:
        """From each edge to the next, the least and the most that its level can have been, and the
        most, or 0, by which messages can be said to wait."""
        first, last = edges[:-1] - self.margin, edges[1:] + self.margin
        low, high = self._brought(first)[0], self._brought(last)[1]
        owes = np.zeros(low.size, np.bool_)
        for each in self.stretches:
            here = (first < each.end) & (last > each.start)
            owes[here] |= each.owes
            if each.cut:
                least, most = each.extremes
                low[here] = np.minimum(low[here], least)
                high[here] = np.maximum(high[here], most)
        low, high = low - self._came(last), high - self._came(first)
        return low, high, np.where(owes, 0.0, high)

    def _brought(self, times: Floats) -> tuple[Floats, Floats]:
        """The least and the most until then, but for tokens that may have been taken away."""
        places = np.searchsorted([each.end for each in self.stretches[:-1]], times, side="right")
        low, high = np.empty(times.size), np.empty(times.size)
        for place, each in enumerate(self.stretches):
            here = places == place
            low[here], high[here] = each.bounds(times[here])
        return low, high

    def _came(self, times: Floats) -> Floats:
        """Messages until then."""
        total = np.concatenate([[0.0], np.cumsum(self.counts)])
        found: Floats = self.before + total[np.searchsorted(self.times, times, side="right")]
        return found

    def forget(self, until: float) -> None:
        until -= 2 * self.margin
        while len(self.stretches) > 1 and self.stretches[0].end < until:
            self.stretches.pop(0)
        if not self.times.size:
            return
        old = int(np.searchsorted(self.times, until))
        self.before += float(self.counts[:old].sum())
        self.times, self.counts = self.times[old:].copy(), self.counts[old:].copy()
