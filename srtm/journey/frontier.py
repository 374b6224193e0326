"""What can be promised of legs together, whatever depends on what. Pure.

If leg i takes longer than t_i for at most e_i of the messages, the whole takes longer than the sum
of the t_i for at most the sum of the e_i (union bound). A frontier has the pairs (t, e) of a leg,
or of legs together, that no other pair betters in both: its first points are quick and often
exceeded, its last ones slow and seldom.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from srtm.limits.bins import GAMMA, ZERO, Bins

MOST_POINTS = 200
"""of a frontier that is combined: the pairs of two are then 40,000"""

_Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Allowance:
    """A leg's part of an SLO: later than `seconds` for at most `late_share` of the messages."""

    seconds: float
    late_share: float


@dataclass(frozen=True, slots=True, eq=False)
class Frontier:
    """seconds, late: of each point and leg, shape (points, legs). Their sums over the legs ascend
    and descend from point to point."""

    seconds: _Floats
    late: _Floats

    def within(self, target_seconds: float) -> tuple[Allowance, ...]:
        """The point with the least late share within the target, a part for each leg; empty where
        even the quickest point takes longer."""
        points = np.flatnonzero(self.seconds.sum(axis=1) <= target_seconds)
        return self.point(int(points[-1])) if len(points) else ()

    def least_seconds(self, late_share: float) -> float | None:
        """The quickest point that is late for no more than `late_share`; None: there is none."""
        points = np.flatnonzero(self.late.sum(axis=1) <= late_share)
        return float(self.seconds[points[0]].sum()) if len(points) else None

    def point(self, number: int) -> tuple[Allowance, ...]:
        """Point `number`, a part for each leg."""
        seconds, late = self.seconds[number].tolist(), self.late[number].tolist()
        return tuple(map(Allowance, seconds, late))


def frontier_of(bins: Bins, confidence: float | None = None, weight: int = 1) -> Frontier:
    """The frontier of one leg, from the durations of its messages.

    confidence: that no pair promises too much where the messages are a sample, each drawn by itself
                (Clopper and Pearson, 1934, at every bin together); None: they are all there are
    weight:     messages for which the one that counts most stands: so many fewer were drawn
    """
    keys = sorted(key for key, count in bins.items() if count > 0)
    counts = np.array([bins[key] for key in keys], dtype=np.float64)
    if not len(keys):
        return Frontier(np.zeros((0, 1)), np.zeros((0, 1)))
    # A bin's durations end at its upper edge: a promise may not rest on its middle.
    edges = np.array([0.0 if key == ZERO else GAMMA**key for key in keys])
    whole = counts.sum()
    above = whole - np.cumsum(counts)
    late = above / whole
    if confidence is not None:
        risk = (1 - confidence) / len(keys)
        # With nothing above, the bound is that of none among all: 1 - risk ** (1 / n).
        more, fewer = above / weight + 1, (whole - above) / weight
        late = np.where(above < whole, beta.ppf(1 - risk, more, fewer), 1.0)
    return _pruned(edges[:, None], late[:, None])


def together(frontiers: Sequence[Frontier]) -> Frontier:
    """The frontier of legs one after the other (at least one)."""
    return reduce(_combined, frontiers)


def least_late(first: Frontier, last: Frontier, target_seconds: float) -> tuple[Allowance, ...]:
    """`together([first, last]).within(target_seconds)`, without the points that it does not ask
    for."""
    begun, ended = first.seconds.sum(axis=1), last.seconds.sum(axis=1)
    mate = np.searchsorted(ended, target_seconds - begun, side="right") - 1
    fits = np.flatnonzero(mate >= 0)
    if not len(fits):
        return ()
    mate = mate[fits]
    late = first.late[fits].sum(axis=1) + last.late[mate].sum(axis=1)
    best = int(np.argmin(late))
    return first.point(int(fits[best])) + last.point(int(mate[best]))


def any_of(frontiers: Sequence[Frontier]) -> Frontier:
    """The frontier of a leg that may be any of these (at least one)."""
    return _pruned(
        np.vstack([each.seconds for each in frontiers]),
        np.vstack([each.late for each in frontiers]),
    )


def _combined(first: Frontier, second: Frontier) -> Frontier:
    first, second = _thinned(first), _thinned(second)
    seconds = np.add.outer(first.seconds.sum(axis=1), second.seconds.sum(axis=1)).ravel()
    late = np.add.outer(first.late.sum(axis=1), second.late.sum(axis=1)).ravel()
    left, right = np.divmod(_best(seconds, late), max(1, len(second.seconds)))
    return Frontier(
        np.hstack([first.seconds[left], second.seconds[right]]),
        np.hstack([first.late[left], second.late[right]]),
    )


def _pruned(seconds: _Floats, late: _Floats) -> Frontier:
    """Only the points that no other one betters in both."""
    kept = _best(seconds.sum(axis=1), late.sum(axis=1))
    return Frontier(seconds[kept], late[kept])


def _best(seconds: _Floats, late: _Floats) -> NDArray[np.intp]:
    """The points that no other one betters in both, in order of seconds. shapes (n,)"""
    order = np.lexsort((late, seconds))
    least = np.minimum.accumulate(late[order])
    return order[np.r_[True, least[1:] < least[:-1]]] if len(order) else order


def _thinned(frontier: Frontier) -> Frontier:
    """At most MOST_POINTS of the points, each of which stays true. The seldom exceeded ones decide
    an SLO, so points are left out where late shares are large, evenly by their logarithm."""
    points = len(frontier.seconds)
    if points <= MOST_POINTS:
        return frontier
    late = np.maximum(frontier.late.sum(axis=1), 1e-12)
    level = np.log(late)
    steps = np.linspace(level[0], level[-1], MOST_POINTS)
    kept = np.unique(np.r_[0, np.searchsorted(-level, -steps).clip(0, points - 1), points - 1])
    return Frontier(frontier.seconds[kept], frontier.late[kept])
