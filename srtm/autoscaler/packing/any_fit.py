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
    """The packing that adds partitions, as `ordered` gives them, where `fit` says."""

    def pack(items: Sequence[Item], bins: Bins) -> Packing:
        check(items, bins)
        future = Future(bins, fit)
        for item in ordered(items):
            future.add(item)
        return finish(items, bins, future.filled())

    return pack


ANY_FIT: dict[str, Algorithm] = {
    **{f"{fit}-fit": any_fit(fit) for fit in Fit},
    **{f"{fit}-fit-decreasing": any_fit(fit, largest_first) for fit in Fit},
}
