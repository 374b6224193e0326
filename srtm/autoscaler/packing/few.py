"""Fewer consumers than least-loaded FFD needs, searched for in a bounded number of steps.

`exact` asks a solver, which takes a time of its own; a policy that decides once a second has an
answer at once here, and always the same one. For consumers of one size, by rate alone.
"""

from collections.abc import Sequence

from srtm.autoscaler.packing.finish import finish
from srtm.autoscaler.packing.least_loaded import least_loaded_ffd
from srtm.autoscaler.packing.matching import keep_owners
from srtm.autoscaler.packing.model import Bins, Filled, Item, Packing
from srtm.autoscaler.packing.problem import SLACK, largest_first

_STEPS = 30_000
"""Partitions put into a consumer, in all: some 50 ms. Twelve partitions hardly ever need more."""

_MOST = 300
"""Partitions; with more, so many steps say nothing, and they would be as deep."""


def few(items: Sequence[Item], bins: Bins) -> Packing:
    """The packing of `least_loaded_ffd`, or one with fewer consumers if the search finds any."""
    packing = least_loaded_ffd(items, bins)
    if (
        len(items) > _MOST
        or packing.oversized
        or {each.rate for each in bins.existing} - {bins.new.rate}
    ):
        return packing
    search = _Search([item.rate for item in largest_first(items)], bins.new.rate * (1 + SLACK))
    for count in range(packing.lower_bound, packing.count):
        parts = search.into(count)
        if parts is not None:
            ordered = largest_first(items)
            filled = [
                Filled(bins.new, tuple(ordered[n].id for n in part)) for part in parts if part
            ]
            return finish(items, bins, keep_owners(filled, items, bins))
    return packing


class _Search:
    """Depth first: the largest first, into each consumer with another load that has room."""

    def __init__(self, rates: list[float], room: float) -> None:
        self._rates = rates
        self._room = room
        self._left = _STEPS

    def into(self, count: int) -> list[list[int]] | None:
        """Numbers of the rates for each of `count` consumers; None: there is no such packing, or
        none was found."""
        parts: list[list[int]] = [[] for _ in range(count)]
        return parts if self._place(0, [0.0] * count, parts) else None

    def _place(self, number: int, loads: list[float], parts: list[list[int]]) -> bool:
        if number == len(self._rates):
            return True
        tried = set[float]()
        for place, load in enumerate(loads):
            after = load + self._rates[number]
            if load in tried or after > self._room:
                continue
            self._left -= 1
            if self._left < 0:
                return False
            tried.add(load)
            loads[place] = after
            parts[place].append(number)
            if self._place(number + 1, loads, parts):
                return True
            loads[place] = load
            parts[place].pop()
        return False
