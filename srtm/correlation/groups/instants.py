"""Arrivals of many publishers as flat arrays, cut into instants.

An instant is a run of arrivals of one publisher that are at most the widest window apart; however
many there are in it, it coincides once or not at all. So batches count once, and counts of
coincidences stay near independent of each other, which their Poisson law needs.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

_NEIGHBOURS = 8
"""Arrivals from which a rate is estimated: few, as rates of publishers come and go."""


@dataclass(frozen=True)
class Instants:
    """times:  us since the earliest, of all publishers, one behind the other, each sorted
    starts: where a publisher begins in `times`, and the end
    run:    number of its instant, for each arrival
    first:  the arrival that begins each instant; runs: number of its first instant, for each
            publisher, and the end
    rate:   arrivals/us around the gap before each arrival; at an end, the nearest that there is
    """

    times: Integers
    starts: Integers
    run: Integers
    first: Integers
    runs: Integers
    rate: Floats

    @property
    def publishers(self) -> int:
        return self.starts.size - 1

    @property
    def span(self) -> int:
        """us, more than any difference of two times."""
        return int(self.times.max(initial=0)) + 1


def heads(*columns: NDArray[Any]) -> Flags:
    """Where a row differs from the one before it in any of these columns; the first one does."""
    found = np.zeros(columns[0].size, dtype=bool)
    found[:1] = True
    for each in columns:
        found[1:] |= np.diff(each) != 0
    return found


def split(values: Integers, order: Integers) -> list[Integers]:
    """The rows of each value; order: of the rows by value."""
    return np.split(order, np.flatnonzero(np.diff(values[order])) + 1)


def instants(times: Integers, starts: Integers, gap_us: int) -> Instants:
    """times: us, sorted within each publisher; every publisher has one arrival at least."""
    times = times - times.min(initial=np.iinfo(np.int64).max) if times.size else times
    begins = np.ones(times.size, dtype=bool)
    begins[1:] = np.diff(times) > gap_us
    begins[starts[:-1]] = True
    run = np.cumsum(begins) - 1
    first = np.flatnonzero(begins)
    runs = np.append(run[starts[:-1]], first.size)
    return Instants(times, starts, run, first, runs, _rates(times, starts))


def _rates(times: Integers, starts: Integers) -> Floats:
    """One for each arrival: the rate around the gap before it."""
    sizes = np.diff(starts)
    begin = np.repeat(starts[:-1], sizes)
    last = np.repeat(starts[1:] - 1, sizes)
    at = np.arange(times.size)
    low = np.maximum(at - _NEIGHBOURS // 2, begin)
    high = np.minimum(at + _NEIGHBOURS // 2 - 1, last)
    gaps = high - low
    # Near an end there are fewer: the same number of gaps, from the end on.
    short = np.minimum(_NEIGHBOURS - 1, last - begin) - gaps
    low = np.where(at - begin >= last - at, np.maximum(low - short, begin), low)
    high = np.where(at - begin < last - at, np.minimum(high + short, last), high)
    elapsed = np.maximum(times[high] - times[low], 1)
    rates: Floats = (high - low) / elapsed
    return rates
