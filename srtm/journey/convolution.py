"""What legs would come to together if none depended on another: an estimate. Pure."""

import math
from collections import Counter
from collections.abc import Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from srtm.limits.bins import Bins, added, seconds_of

_MOST_BINS = 600
"""of a leg; so many span from a microsecond to a hundred seconds, and two legs have 360,000 sums"""
_MESSAGES = 1_000_000_000
"""of a convolution, so that a share of 1e-9 still counts"""


def late_if_independent(legs: Sequence[Bins], target_seconds: float) -> float:
    """The share of messages that take longer than the target through legs one after the other (at
    least one), if their durations are drawn independently of each other; NaN where one of them has
    none. A duration counts as the middle of its bin."""
    if not all(sum(bins.values()) for bins in legs):
        return math.nan
    *others, last = map(_shares, legs)
    begun = reduce(_one_after_the_other, others, (np.zeros(1), np.ones(1)))
    order = np.argsort(last[0])
    seconds, late = last[0][order], np.append(np.cumsum(last[1][order][::-1])[::-1], 0.0)
    after = np.searchsorted(seconds, target_seconds - begun[0], side="right")
    return float(begun[1] @ late[after])


_Shares = tuple[NDArray[np.float64], NDArray[np.float64]]
"""durations in seconds, and the share of the messages that each has"""


def _shares(bins: Bins) -> _Shares:
    bins = _coarse(bins)
    keys = [key for key, count in bins.items() if count > 0]
    counts = np.array([bins[key] for key in keys], dtype=np.float64)
    return np.array([seconds_of(key) for key in keys]), counts / counts.sum()


def _coarse(bins: Bins) -> Bins:
    """At most _MOST_BINS of them: each counts as the last of its neighbours."""
    step, found = 1, bins
    while len(found) > _MOST_BINS:
        step *= 2
        found = Counter()
        for key, count in bins.items():
            found[key + -key % step] += count
    return found


def _one_after_the_other(first: _Shares, second: _Shares) -> _Shares:
    sums = np.add.outer(first[0], second[0]).ravel()
    shares = np.multiply.outer(first[1], second[1]).ravel()
    return _shares(added(sums, shares * _MESSAGES))
