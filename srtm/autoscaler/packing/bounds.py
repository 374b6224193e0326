"""How few consumers could do: bounds that no packing beats.

A packing fills a bin within its room, or gives it one partition that exceeds it. A partition that
exceeds every bin takes one alone. One that exceeds a new consumer only is counted as if it were as
big as the new consumer's room: where it stands alone in a bin that it exceeds, a new consumer takes
that bin's place, so what bounds the clamped partitions bounds the real ones.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate

from srtm.autoscaler.packing.model import Bins, Item
from srtm.autoscaler.packing.problem import SLACK, split_oversized

_GROWN = 1 + 2 * SLACK
"""A packing may exceed a room by SLACK, and its own sums are rounded too."""


def lower_bound(items: Sequence[Item], bins: Bins) -> int:
    """The largest of the bounds by rate and by lag, and a consumer for each oversized partition.

    For rooms of any size, in two dimensions; O(n log n).
    """
    rest, oversized = split_oversized(items, bins)
    if not rest:
        return len(oversized)
    bound = _one_dimension(
        [min(item.rate, bins.new.rate) for item in rest],
        bins.new.rate,
        [room.rate for room in bins.existing],
    )
    if any(item.lag for item in rest):
        # A consumer without a limit takes any lag: nothing is bounded then.
        lags = [bins.new.lag, *(room.lag for room in bins.existing)]
        if max(lags) < math.inf:
            by_lag = _one_dimension(
                [min(item.lag, bins.new.lag) for item in rest], lags[0], lags[1:]
            )
            bound = max(bound, by_lag)
    return len(oversized) + max(1, bound)


def _one_dimension(sizes: list[float], new: float, existing: Sequence[float]) -> int:
    """The larger of the continuous bound and Martello and Toth's, with every bin the largest."""
    larger = sorted((room for room in existing if room > new), reverse=True)
    sizes.sort(reverse=True)
    bound = martello_toth(sizes, larger[0] if larger else new)
    return max(bound, continuous(math.fsum(sizes), new, larger)) if larger else bound


def continuous(total: float, new: float, larger: Sequence[float]) -> int:
    """The fewest bins if partitions could be cut: the bins larger than a new one are filled first,
    then new ones."""
    for count, room in enumerate(larger):
        if total <= 0:
            return count
        total -= room * _GROWN
    return len(larger) + max(0, math.ceil(total / (new * _GROWN)))


def martello_toth(sizes: Sequence[float], room: float) -> int:
    """Martello and Toth's L2 (1990) of `sizes`, largest first, for equal bins of `room`.

    For each threshold a: what exceeds room - a stands alone or with what is below a; what exceeds
    half the room stands in a bin of its own; the rest down to a fills what these leave and then
    new bins. a = 0 is the continuous bound. Returns 0 for no sizes or zeros alone.
    """
    room *= _GROWN
    negative = [-size for size in sizes]
    sums = [0.0, *accumulate(sizes)]
    big = bisect_left(negative, -room / 2)
    best, last = 0, -1.0
    for threshold in (*sizes[big:], 0.0):
        if threshold == last:
            continue
        last = threshold
        alone = min(big, bisect_left(negative, threshold - room))
        end = bisect_right(negative, -threshold)
        free = (big - alone) * room - (sums[big] - sums[alone])
        lacking = max(0.0, sums[end] - sums[big] - free)
        best = max(best, big + math.ceil(lacking / room))
    return best
