"""Durations counted in logarithmic bins, those of a DDSketch: what two hosts counted adds up. Pure.

Bin k has the durations in (gamma^(k-1), gamma^k] seconds; its middle is within 1 % of each of them.
"""

import math
from collections import Counter

import numpy as np
from numpy.typing import NDArray

RELATIVE_ACCURACY = 0.01
GAMMA = (1 + RELATIVE_ACCURACY) / (1 - RELATIVE_ACCURACY)
LOG_GAMMA = math.log(GAMMA)
ZERO = -(1 << 31)
"""the bin of durations under a nanosecond"""
_LOG_NS = math.log(1e-9)

Bins = Counter[int]
"""bin -> messages"""


def bins_of(values_ns: NDArray[np.float64], weights: NDArray[np.int64]) -> Bins:
    """values_ns: durations, shape (n,); weights: messages of each, shape (n,)."""
    found: Bins = Counter()
    below = values_ns < 1
    zeros = int(weights[below].sum())
    if zeros:
        found[ZERO] = zeros
    values, weights = values_ns[~below], weights[~below]
    if len(values):
        keys = _keys_of(values)
        lowest = int(keys.min())
        counts = np.bincount(keys - lowest, weights=weights)
        used = np.flatnonzero(counts)
        found.update(
            dict(zip((used + lowest).tolist(), counts[used].astype(int).tolist(), strict=True))
        )
    return found


def added(seconds: NDArray[np.float64], weights: NDArray[np.float64]) -> Bins:
    """Durations with weights that are no whole numbers, shapes (n,): the weights of a bin are
    added up and then rounded to messages."""
    keys = np.full(len(seconds), ZERO, dtype=np.int64)
    some = seconds >= 1e-9
    keys[some] = _keys_of(seconds[some] * 1e9)
    used, place = np.unique(keys, return_inverse=True)
    counts = np.rint(np.bincount(place, weights=weights)).astype(int)
    return Counter({k: n for k, n in zip(used.tolist(), counts.tolist(), strict=True) if n})


def _keys_of(values_ns: NDArray[np.float64]) -> NDArray[np.int64]:
    """The bins of durations of a nanosecond or more."""
    return np.ceil((np.log(values_ns) + _LOG_NS) / LOG_GAMMA).astype(np.int64)


def key_of(seconds: float) -> int:
    """The bin of a duration of a nanosecond or more."""
    return math.ceil(math.log(seconds) / LOG_GAMMA)


def seconds_of(key: int) -> float:
    """The middle of a bin."""
    return 0.0 if key == ZERO else float(2 * math.exp(key * LOG_GAMMA) / (1 + GAMMA))


def above(bins: Bins, seconds: float) -> int:
    """Messages in bins above that of `seconds`."""
    highest = key_of(seconds)
    return sum(count for key, count in bins.items() if key > highest)


def nearest_rank(bins: Bins, share: float) -> float:
    """The smallest duration in seconds that at least `share` of the messages do not exceed; 0
    without messages."""
    there = sorted((key, count) for key, count in bins.items() if count > 0)
    left = max(1, math.ceil(share * sum(count for _, count in there) - 1e-9))
    for key, count in there:
        left -= count
        if left <= 0:
            return seconds_of(key)
    return 0.0
