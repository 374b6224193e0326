"""How often two publishers arrive together, how often they would by chance, and with which lags.

Chance is judged by local rates: an instant of one publisher meets the other with probability
1 - exp(-2 w rate), by the other's rate just then. So daily shapes, and publishers that come and go,
make no coincidences; instants outside the time of the other count for nothing.
"""

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass

import numpy as np
from scipy.special import gammainc

from srtm.correlation.groups.instants import Flags, Floats, Instants, Integers, heads
from srtm.correlation.groups.settings import Settings

_CHUNK = 1 << 20
"""arrivals that are compared at once: 100 MB of arrays"""
_QUARTERS = 4
_TRIMS = 4
_TRIM = 2.0
"""Standard deviations off the line. Of a difference of two even jitters that is all but 3 %."""
_LEAST_DEVIATION_US = 100.0
_LEAST_P = 1e-300


@dataclass(frozen=True)
class Pairs:
    """The figures of each pair of publishers (numbers left < right):

    p:            of as many coincidences by chance, at the best window, times the windows
    window_us:    the best one
    coincidences: instants of the one that meet the other, the lesser of both counts
    expected:     as many by chance
    share:        of the instants in common time that coincide beyond chance, the lesser of both
    lag_us, lag_error_us: mean of right's time - left's where they coincide within the widest
                  window, and its standard error; travel_us, travel_error_us: by how much it grows
                  from the first coincidence to the last
    spread_us:    standard deviation of the lags about their line
    steady:       share of the steps from one coincidence to the next that are about equal
    uneven:       the quarter of the common time that has too few coincidences, in standard errors

    From lag_us on they cost as much as all before; they are 0 for pairs that no one asks about: p
    above the rate of false discoveries, or fewer coincidences than the least.
    """

    left: Integers
    right: Integers
    p: Floats
    window_us: Integers
    coincidences: Integers
    expected: Floats
    share: Floats
    lag_us: Floats
    lag_error_us: Floats
    travel_us: Floats
    travel_error_us: Floats
    spread_us: Floats
    steady: Floats
    uneven: Floats


def compare(came: Instants, left: Integers, right: Integers, settings: Settings) -> Iterator[Pairs]:
    """Compare the publishers of each pair, in pieces of a bounded size."""
    keys = came.times + np.repeat(np.arange(came.publishers), np.diff(came.starts)) * (
        3 * came.span
    )
    sizes = np.diff(came.starts)
    ends = np.cumsum(sizes[left] + sizes[right])
    begin = 0
    while begin < left.size:
        base = ends[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, base + _CHUNK, side="right")))
        yield _compared(came, keys, left[begin:end], right[begin:end], settings)
        begin = end


def _compared(
    came: Instants, keys: Integers, left: Integers, right: Integers, settings: Settings
) -> Pairs:
    one = _Meetings(came, keys, left, right, settings.widest_us)
    other = _Meetings(came, keys, right, left, settings.widest_us)
    windows = np.array(settings.windows_us)
    p = np.empty((windows.size, left.size))
    share, expected, count = np.empty_like(p), np.empty_like(p), np.empty_like(p)
    for at, window in enumerate(windows):
        met, chance = one.within(window)
        met_too, chance_too = other.within(window)
        p[at] = np.maximum(_tail(met, chance), _tail(met_too, chance_too))
        share[at] = np.minimum(
            _beyond(met, chance, one.instants), _beyond(met_too, chance_too, other.instants)
        )
        count[at] = np.minimum(met, met_too)
        expected[at] = np.where(met <= met_too, chance, chance_too)
    best, pairs = p.argmin(axis=0), np.arange(left.size)
    # Narrow windows may be surest while wide ones hold all of the bursts.
    wide = np.where(np.arange(windows.size)[:, None] >= best, share, -np.inf).max(axis=0)
    p_best = np.clip(p[best, pairs] * windows.size, _LEAST_P, 1.0)
    counted = count[best, pairs].astype(np.int64)
    sure = (p_best <= settings.rate) & (counted >= settings.least)
    lines = _lines(one.of(sure), other.of(sure))
    figures = {name: np.zeros(left.size) for name in lines}
    for name, values in lines.items():
        figures[name][sure] = values
    return Pairs(
        left=left,
        right=right,
        p=p_best,
        window_us=windows[best],
        coincidences=counted,
        expected=expected[best, pairs],
        share=wide,
        **figures,
    )


def _lines(one: "_Meetings", other: "_Meetings") -> dict[str, Floats]:
    lag, lag_error, travel, travel_error, spread = one.lags()
    return {
        "lag_us": lag,
        "lag_error_us": lag_error,
        "travel_us": travel,
        "travel_error_us": travel_error,
        "spread_us": spread,
        "steady": one.steady(),
        "uneven": np.minimum(one.uneven(), other.uneven()),
    }


def _tail(met: Floats, chance: Floats) -> Floats:
    """P(Poisson(chance) >= met)."""
    found: Floats = np.where(met > 0, gammainc(np.maximum(met, 1), np.maximum(chance, 1e-12)), 1.0)
    return found


def _beyond(met: Floats, chance: Floats, instants: Floats) -> Floats:
    found: Floats = (met - chance) / np.maximum(instants - chance, 1.0)
    return found


@dataclass(frozen=True)
class _Line:
    """The line of lag over time, for each pair. length: of time, us; deviation: of the lags from
    it."""

    mean_time: Floats
    mean: Floats
    slope: Floats
    deviation: Floats
    count: Floats
    length: Floats

    def at(self, time: Floats, pair: Integers) -> Floats:
        line: Floats = self.mean[pair] + self.slope[pair] * (time - self.mean_time[pair])
        return line


class _Meetings:
    """The meetings of pairs: each instant of publisher a[i] that lies in the time of b[i], and how
    near b comes to it.

    Arrays have one row for each such instant, sorted by pair and time.
    """

    def __init__(
        self, came: Instants, keys: Integers, a: Integers, b: Integers, widest_us: int
    ) -> None:
        sizes = came.starts[a + 1] - came.starts[a]
        ends = np.cumsum(sizes)
        pair = np.repeat(np.arange(a.size), sizes)
        at = np.arange(ends[-1]) - np.repeat(ends - sizes - came.starts[a], sizes)
        time, run = came.times[at], came.run[at]
        begin, end = came.starts[b][pair], came.starts[b + 1][pair]
        place = np.searchsorted(keys, time + b[pair] * (3 * came.span))
        after = came.times[np.minimum(place, end - 1)] - time
        before = came.times[np.maximum(place - 1, begin)] - time
        lag = np.where(np.abs(after) < np.abs(before), after, before)
        rate = came.rate[np.clip(place, begin, end - 1)]
        there = (time >= came.times[begin] - widest_us) & (time <= came.times[end - 1] + widest_us)
        firsts = np.flatnonzero(heads(run, pair))
        # The nearest arrival of an instant, its sign in the lowest bit.
        nearest = np.minimum.reduceat((np.abs(lag) << 1) | (lag < 0), firsts)
        kept = np.logical_or.reduceat(there, firsts)
        self._pair = pair[firsts][kept]
        self._time = time[firsts][kept].astype(np.float64)
        self._distance = (nearest >> 1)[kept]
        self._lag = np.where(nearest & 1, -(nearest >> 1), nearest >> 1)[kept].astype(np.float64)
        self._rate = np.add.reduceat(rate, firsts)[kept]
        self._pairs = a.size
        self.instants = self._sum(np.ones(self._pair.size))
        self._near = self._distance <= widest_us

    def of(self, kept: Flags) -> "_Meetings":
        """The meetings of the pairs in `kept` alone, numbered anew."""
        if kept.all():
            return self
        rows = kept[self._pair]
        made = copy(self)
        made._pair = (np.cumsum(kept) - 1)[self._pair[rows]]
        for name in ("_time", "_distance", "_lag", "_rate", "_near"):
            setattr(made, name, getattr(self, name)[rows])
        made._pairs = int(kept.sum())
        made.instants = self.instants[kept]
        return made

    def _sum(self, values: Floats) -> Floats:
        return np.asarray(np.bincount(self._pair, values, self._pairs), np.float64)

    def within(self, window_us: int) -> tuple[Floats, Floats]:
        """Coincidences, and those expected, for each pair."""
        met = self._sum((self._distance <= window_us).astype(np.float64))
        return met, self._sum(-np.expm1(-2.0 * window_us * self._rate))

    def lags(self) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """Mean lag, its standard error, its travel and the travel's, by least squares, and the
        deviation from the line; us.

        What lies off the line is left out, again and again: own traffic meets the other by chance
        within the widest window, while bursts keep to their jitter.
        """
        kept = self._near
        for _ in range(_TRIMS):
            line = self._line(kept)
            bound = np.maximum(_TRIM * line.deviation, _LEAST_DEVIATION_US)[self._pair]
            off = self._lag - line.at(self._time, self._pair)
            kept = self._near & (np.abs(off) <= bound)
        self._on_line = kept
        line = self._line(kept)
        spread = np.maximum(line.deviation, _LEAST_DEVIATION_US)
        error = spread / np.sqrt(line.count)
        return line.mean, error, line.slope * line.length, error * np.sqrt(12.0), spread

    def _line(self, kept: Flags) -> "_Line":
        pair = self._pair[kept]

        def total(values: Floats) -> Floats:
            return np.asarray(np.bincount(pair, values, self._pairs), np.float64)

        time, lag = self._time[kept], self._lag[kept]
        count = np.maximum(total(np.ones(pair.size)), 1.0)
        mean_time, mean = total(time) / count, total(lag) / count
        time, lag = time - mean_time[pair], lag - mean[pair]
        spread = np.maximum(total(time * time), 1.0)
        slope = total(time * lag) / spread
        rest = lag - slope[pair] * time
        deviation = np.sqrt(total(rest * rest) / np.maximum(count - 2, 1.0))
        # Of times that are spread evenly.
        return _Line(mean_time, mean, slope, deviation, count, np.sqrt(12.0 * spread / count))

    def steady(self) -> Floats:
        """Share of the steps between coincidences that are within a quarter of their geometric
        mean: 0.16 for a Poisson process, near 1 for a periodic one, even with gaps in it."""
        return np.maximum(self._steady(self._on_line), self._steady(self._near))

    def _steady(self, kept: Flags) -> Floats:
        time, pair = self._time[kept], self._pair[kept]
        same = np.diff(pair) == 0
        step, pair = np.maximum(np.diff(time)[same], 1.0), pair[1:][same]
        count = np.maximum(np.bincount(pair, minlength=self._pairs), 1)
        middle = np.exp(np.bincount(pair, np.log(step), self._pairs) / count)
        equal = np.abs(step / middle[pair] - 1) <= 0.25
        found: Floats = np.bincount(pair, equal.astype(np.float64), self._pairs) / count
        return found

    def uneven(self) -> Floats:
        """How many standard errors the worst quarter of the common time, the one with the fewest
        coincidences for its instants, is below the whole; 0 or less."""
        first = np.full(self._pairs, np.inf)
        last = np.full(self._pairs, -np.inf)
        np.minimum.at(first, self._pair, self._time)
        np.maximum.at(last, self._pair, self._time)
        length = np.maximum(last - first, 1.0)[self._pair]
        part = np.minimum((self._time - first[self._pair]) / length * _QUARTERS, _QUARTERS - 1)
        slot = self._pair * _QUARTERS + part.astype(np.int64)
        total = np.bincount(slot, minlength=self._pairs * _QUARTERS).reshape(-1, _QUARTERS)
        met = np.bincount(slot, self._near.astype(np.float64), self._pairs * _QUARTERS)
        met = met.reshape(-1, _QUARTERS)
        share = met.sum(axis=1, keepdims=True) / np.maximum(total.sum(axis=1, keepdims=True), 1)
        error = np.sqrt(np.maximum(total * share * (1 - share), 0.25))
        found: Floats = np.minimum((met + 0.5 - total * share) / error, 0.0).min(axis=1)
        return found
