"""The packings that Landau surveys in chapter 3 and does not compare: one capacity, no consumers.

Each takes sizes as shares of a bin, within (0, 1], and returns the bins as lists of sizes.
"""

import bisect
import math
from collections.abc import Callable, Sequence

from srtm.autoscaler.packing.problem import SLACK

Packed = list[list[float]]
Surveyed = Callable[[Sequence[float]], Packed]

_HARMONIC = 7
"""Intervals: with so many and more its ratio is below that of any fit (section 3.2.2)."""
_OPEN = 3
"""Bins that are open at a time, of the bounded-space packings."""


def almost_worst_fit(sizes: Sequence[float]) -> Packed:
    """Each into the bin with the second most room, where it fits; else where it fits at all
    (section 3.2.1)."""
    bins: Packed = []
    rooms: list[tuple[float, int]] = []  # ascending
    for size in sizes:
        first = bisect.bisect_left(rooms, (size - SLACK, -1))
        fitting = len(rooms) - first
        if not fitting:
            bins.append([size])
            bisect.insort(rooms, (1 - size, len(bins) - 1))
            continue
        room, at = rooms.pop(-2 if fitting > 1 else -1)
        bins[at].append(size)
        bisect.insort(rooms, (room - size, at))
    return bins


def bounded(sizes: Sequence[float], best: bool, close_fullest: bool) -> Packed:
    """Any fit with a few open bins (section 3.2.2): into the first or the tightest of them; where
    none fits, the oldest or the fullest is closed."""
    bins: Packed = []
    open_: list[tuple[float, list[float]]] = []  # room and bin, in the order of their opening
    for size in sizes:
        fitting = [at for at, (room, _) in enumerate(open_) if size <= room + SLACK]
        if fitting:
            at = min(fitting, key=lambda at: open_[at][0]) if best else fitting[0]
            room, held = open_[at]
            held.append(size)
            open_[at] = room - size, held
            continue
        if len(open_) == _OPEN:
            rooms = [room for room, _ in open_]
            del open_[rooms.index(min(rooms)) if close_fullest else 0]
        bins.append([size])
        open_.append((1 - size, bins[-1]))
    return bins


def harmonic(sizes: Sequence[float]) -> Packed:
    """Bins of j items each of the interval (1/(j+1), 1/j] (Eq. 3.20); the last interval is packed
    by next fit."""
    bins: Packed = []
    open_: dict[int, list[float]] = {}
    for size in sizes:
        kind = min(_HARMONIC, math.floor(1 / size + SLACK))
        held = open_.get(kind)
        if held is not None and kind < _HARMONIC:
            full = len(held) == kind
        else:
            full = held is None or math.fsum(held) + size > 1 + SLACK
        if held is None or full:
            held = open_[kind] = []
            bins.append(held)
        held.append(size)
    return bins


def modified_first_fit_decreasing(sizes: Sequence[float]) -> Packed:
    """The five steps of section 3.2.3, with the groups of Table 3.1."""
    ordered = sorted(sizes, reverse=True)
    bins = [[size] for size in ordered if size > 1 / 2]
    rooms = [1 - held[0] for held in bins]
    left = sorted(size for size in ordered if size <= 1 / 2)  # ascending

    def put(at: int, size: float) -> None:
        del left[bisect.bisect_left(left, size)]
        bins[at].append(size)
        rooms[at] -= size

    def largest(room: float, low: float, high: float) -> float | None:
        """That fits into the room, of those within (low, high]."""
        at = bisect.bisect_right(left, min(room + SLACK, high)) - 1
        return left[at] if at >= 0 and left[at] > low else None

    for at in range(len(bins)):
        found = largest(rooms[at], 1 / 3, 1 / 2)
        if found is not None:
            put(at, found)
    for at in reversed(range(len(bins))):
        first = bisect.bisect_right(left, 1 / 6)
        if len(bins[at]) > 1 or first + 1 >= len(left) or left[first + 1] > 1 / 3:
            continue
        smallest = left[first]
        if smallest + left[first + 1] > rooms[at] + SLACK:
            continue
        put(at, smallest)
        found = largest(rooms[at], 1 / 6, 1 / 3)
        assert found is not None  # the second smallest fits
        put(at, found)
    for at in range(len(bins)):
        while (found := largest(rooms[at], 0.0, 1.0)) is not None:
            put(at, found)
    first = len(bins)
    for size in reversed(left):
        at = next((at for at in range(first, len(bins)) if size <= rooms[at] + SLACK), len(bins))
        if at == len(bins):
            bins.append([])
            rooms.append(1.0)
        bins[at].append(size)
        rooms[at] -= size
    return bins


SURVEYED: dict[str, tuple[Surveyed, float]] = {
    "almost-worst-fit": (almost_worst_fit, 17 / 10),
    "next-3-fit": (lambda sizes: bounded(sizes, False, False), 17 / 10 + 3 / (10 * _OPEN - 10)),
    "best-3-fit": (lambda sizes: bounded(sizes, True, False), 17 / 10 + 3 / (10 * _OPEN)),
    "bounded best fit, 3": (lambda sizes: bounded(sizes, True, True), 17 / 10),
    "harmonic, 7": (harmonic, 17 / 10),
    "modified-first-fit-decreasing": (modified_first_fit_decreasing, 71 / 60),
}
"""Each with the asymptotic ratio to the fewest bins that the thesis cites (Eq. 3.15 to 3.23); of
harmonic fit it says that it is below this."""
