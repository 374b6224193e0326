"""Next, first, best and worst fit, and their decreasing forms (Landau, section 3.2).

Partitions are taken in the order given, in the decreasing forms from the largest rate on (among
equals the larger lag, then the lower id). Bins are opened by Landau's rule (`Future.open_for`).
"""

from collections.abc import Sequence

from srtm.autoscaler.packing.finish import finish
from srtm.autoscaler.packing.future import Fit, Future
from srtm.autoscaler.packing.model import Bins, Item, Packing
from srtm.autoscaler.packing.problem import check, largest_first


def next_fit(items: Sequence[Item], bins: Bins) -> Packing:
    return _pack(items, items, bins, Fit.NEXT)


def first_fit(items: Sequence[Item], bins: Bins) -> Packing:
    return _pack(items, items, bins, Fit.FIRST)


def best_fit(items: Sequence[Item], bins: Bins) -> Packing:
    return _pack(items, items, bins, Fit.BEST)


def worst_fit(items: Sequence[Item], bins: Bins) -> Packing:
    return _pack(items, items, bins, Fit.WORST)


def next_fit_decreasing(items: Sequence[Item], bins: Bins) -> Packing:
    return _pack(items, largest_first(items), bins, Fit.NEXT)


def first_fit_decreasing(items: Sequence[Item], bins: Bins) -> Packing:
    return _pack(items, largest_first(items), bins, Fit.FIRST)


def best_fit_decreasing(items: Sequence[Item], bins: Bins) -> Packing:
    return _pack(items, largest_first(items), bins, Fit.BEST)


def worst_fit_decreasing(items: Sequence[Item], bins: Bins) -> Packing:
    return _pack(items, largest_first(items), bins, Fit.WORST)


def _pack(items: Sequence[Item], ordered: Sequence[Item], bins: Bins, fit: Fit) -> Packing:
    check(items, bins)
    future = Future(bins, fit)
    for item in ordered:
        future.add(item)
    return finish(items, bins, future.filled())
