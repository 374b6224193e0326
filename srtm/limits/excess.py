"""By how much a stream exceeds its token bucket, over every interval there is. Pure."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_NS = 1e9
_CHUNK = 1 << 18
"""Points that are summed at once: sums that begin anew stay small, and so exact."""


@dataclass(frozen=True)
class Contracts:
    """The (r, b) that held from each time on, in messages/s and messages; shape (n,), sorted, n at
    least 1. Before the first one it held too."""

    since: Ints
    rates: Floats
    bursts: Floats

    def burst_at(self, times: Ints) -> Floats:
        """The larger one where it changes at that very instant."""
        return np.maximum(self.bursts[self._before(times)], self.bursts[self._after(times)])

    def least_burst_at(self, times: Ints) -> Floats:
        return np.minimum(self.bursts[self._before(times)], self.bursts[self._after(times)])

    def tokens(self, times: Ints, origin: int) -> Floats:
        """What r brought from `origin` to each time (negative before it)."""
        return self._brought(times) - self._brought(np.array([origin], dtype=np.int64))

    def _brought(self, times: Ints) -> Floats:
        """What the contracts brought from the first one on until each of `times`, in messages."""
        whole = np.concatenate([[0.0], np.cumsum(self.rates[:-1] * np.diff(self.since) / _NS)])
        place = self._after(times)
        return np.asarray(
            whole[place] + self.rates[place] * (times - self.since[place]) / _NS, dtype=np.float64
        )

    def _before(self, times: Ints) -> Ints:
        return np.maximum(np.searchsorted(self.since, times, side="left") - 1, 0)

    def _after(self, times: Ints) -> Ints:
        return np.maximum(np.searchsorted(self.since, times, side="right") - 1, 0)


def worst_excess(times: Floats, rate: float, burst: float, counts: Floats | None = None) -> float:
    """By how many messages the fullest interval exceeds burst + rate * its length, of all there
    are; negative where there was room, -burst without messages.

    times:  seconds, sorted, shape (n,); counts: whole messages at each of them, one each by default
    burst:  messages that may go at once: b, or the largest batch
    """
    if not times.size:
        return -burst
    stamps = np.rint((times - times[0]) * _NS).astype(np.int64)
    messages = np.ones(times.size) if counts is None else counts
    contract = Contracts(np.zeros(1, dtype=np.int64), np.array([rate]), np.array([burst]))
    worst = worst_interval(stamps, np.rint(messages).astype(np.int64), contract)
    assert worst is not None
    return worst.excess


@dataclass(frozen=True)
class Worst:
    """The interval [begins, ends] that is fullest for its length.

    messages: in it, both ends included
    allowed:  b when it begins, and what r brings until it ends
    """

    begins: int
    ends: int
    messages: int
    allowed: float

    @property
    def excess(self) -> float:
        """The excess in messages; negative where there was room."""
        return self.messages - self.allowed


def worst_interval(times: Ints, counts: Ints, contracts: Contracts) -> Worst | None:
    """The interval that is the fullest of all for its length; None without messages. O(n).

    times:  nanoseconds, sorted, shape (n,); counts: messages at each of them

    An interval may hold max(b) + r*t: with the b in force when it begins and the integral of r, as
    r and b change. With S(i) messages before the i-th time and R the integral, the interval from i
    to j has an excess of (S(j) + counts(j) - R(j)) - (S(i) - R(i) + b(i)): the second part is least
    over all i so far. An interval can begin just before a change too, with the b of before.
    """
    if not times.size:
        return None
    times, counts, bursts = _with_changes(times, counts, contracts)
    best: Worst | None = None
    least, least_at = np.inf, 0
    for start in range(0, times.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        origin = int(times[start])
        brought = contracts.tokens(times[part], origin)
        through = np.cumsum(counts[part])
        begins = through - counts[part] - brought + bursts[part]
        lowest = np.minimum.accumulate(begins)
        is_new = np.concatenate([[True], lowest[1:] < lowest[:-1]])
        where = np.maximum.accumulate(np.where(is_new, np.arange(lowest.size), 0))
        if least < np.inf:
            carried = lowest > least
            lowest = np.where(carried, least, lowest)
            where = np.where(carried, least_at - start, where)
        excess = np.where(counts[part] > 0, through - brought - lowest, -np.inf)
        most = int(np.argmax(excess))
        if best is None or excess[most] > best.excess:
            first, last = start + int(where[most]), start + most
            messages = int(counts[first : last + 1].sum())
            best = Worst(
                int(times[first]), int(times[last]), messages, messages - float(excess[most])
            )
        following = int(times[min(start + _CHUNK, times.size - 1)])
        least = float(lowest[-1]) - float(through[-1])
        least += float(contracts.tokens(np.array([following]), origin)[0])
        least_at = start + int(where[-1])
    return best


def _with_changes(times: Ints, counts: Ints, contracts: Contracts) -> tuple[Ints, Ints, Floats]:
    """Times at which an interval may begin: those of messages, and the instants just before a
    change, with no message and the b of before."""
    bursts = contracts.burst_at(times)
    changes, before = contracts.since[1:], contracts.bursts[:-1]
    place = np.searchsorted(times, changes, side="left")
    return (
        np.insert(times, place, changes),
        np.insert(counts, place, 0),
        np.insert(bursts, place, before),
    )
