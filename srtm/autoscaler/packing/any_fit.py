"""Next, first, best and worst fit, and their decreasing forms (Landau, section 3.2).

Partitions are taken in the order given, in the decreasing forms from the largest rate on (among
equals the larger lag, then the lower id). Bins are opened by Landau's rule (`Future.open_for`).
"""

from collections.abc import Callable, Iterable, Sequence

from srtm.autoscaler.packing.finish import finish
from srtm.autoscaler.packing.future import Fit, Future
from srtm.autoscaler.packing.model import Algorithm, Bins, Item, Packing
from srtm.autoscaler.packing.problem import check, largest_first


def any_fit(fit: Fit, ordered: Callable[[Sequence[Item]], Iterable[Item]] = iter) -> Algorithm:
    """A packing that takes partitions in the order of `ordered` and puts each where `fit` says."""

    def pack(items: Sequence[Item], bins: Bins) -> Packing:
        check(items, bins)
        future = Future(bins, fit)
        for item in ordered(items):
            future.add(item)
        return finish(items, bins, future.filled())

    return pack


AS_GIVEN: dict[str, Algorithm] = {
    "next-fit": any_fit(Fit.NEXT),
    "first-fit": any_fit(Fit.FIRST),
    "best-fit": any_fit(Fit.BEST),
    "worst-fit": any_fit(Fit.WORST),
}
DECREASING: dict[str, Algorithm] = {
    "next-fit-decreasing": any_fit(Fit.NEXT, largest_first),
    "first-fit-decreasing": any_fit(Fit.FIRST, largest_first),
    "best-fit-decreasing": any_fit(Fit.BEST, largest_first),
    "worst-fit-decreasing": any_fit(Fit.WORST, largest_first),
}
