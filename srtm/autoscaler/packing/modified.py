"""Landau's modified any fit algorithms (Algorithm 4, Table 4.4): few bins and few moves.

Consumers are taken one by one, by the sum of their rates (MWF, MBF) or by their largest partition
(MWFP, MBFP). The partitions of each go, from the smallest on, into bins that are open already, as
long as they fit. The rest stay where they are, from the largest on, as long as they fit. What is
left over is added at the end, the largest first.

Landau does not say which consumer is first. Here it is the largest, as in his decreasing forms.
His text opens a consumer even for a partition that exceeds it, and leaves it empty. Here one that
exceeds every consumer stays alone where it is, and for one that fits another none is opened.
"""

from collections.abc import Callable, Sequence
from functools import partial

from srtm.autoscaler.packing.finish import finish
from srtm.autoscaler.packing.future import Fit, Future
from srtm.autoscaler.packing.model import Algorithm, Bins, Item, Packing
from srtm.autoscaler.packing.problem import check, fits, largest_first

_Size = Callable[[Sequence[Item]], float]
"""The size of a consumer, computed from its partitions, largest first."""


def _cumulative(partitions: Sequence[Item]) -> float:
    return sum(item.rate for item in partitions)


def _max_partition(partitions: Sequence[Item]) -> float:
    return partitions[0].rate


def _pack(items: Sequence[Item], bins: Bins, fit: Fit, size: _Size) -> Packing:
    check(items, bins)
    existing = {room.consumer: room for room in bins.existing}
    assigned: dict[str, list[Item]] = {room: [] for room in existing if room is not None}
    unassigned = []
    for item in largest_first(items):
        if item.consumer is not None and item.consumer in assigned:
            assigned[item.consumer].append(item)
        else:
            unassigned.append(item)
    future = Future(bins, fit)
    busy = [consumer for consumer, partitions in assigned.items() if partitions]
    for consumer in sorted(busy, key=lambda each: -size(assigned[each])):
        left = assigned[consumer]
        while left and future.place(left[-1]):
            left.pop()
        if not left:
            continue
        if fits(left[0].rate, left[0].lag, existing[consumer]):
            number = future.open_consumer(consumer)
            stay = 0
            while stay < len(left) and future.place_in(number, left[stay]):
                stay += 1
            left = left[stay:]
        elif not any(fits(left[0].rate, left[0].lag, b) for b in (bins.new, *bins.existing)):
            future.open_for(left[0])
            left = left[1:]
        unassigned += left
    for item in largest_first(unassigned):
        future.add(item)
    return finish(items, bins, future.filled())


MODIFIED: dict[str, Algorithm] = {
    "mwf": partial(_pack, fit=Fit.WORST, size=_cumulative),
    "mbf": partial(_pack, fit=Fit.BEST, size=_cumulative),
    "mwfp": partial(_pack, fit=Fit.WORST, size=_max_partition),
    "mbfp": partial(_pack, fit=Fit.BEST, size=_max_partition),
}
