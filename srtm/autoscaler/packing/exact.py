"""The best packing there is: fewest consumers, then least rate moved, then most even.

Three programs, one after the other, each limited by what the one before it found. Where the time
ends first, what is best so far is kept: at worst that of the heuristics. `Packing.exact` is set
only where the number of consumers is proved.
"""

from collections.abc import Callable, Mapping, Sequence

from srtm.autoscaler.packing.any_fit import DECREASING
from srtm.autoscaler.packing.finish import finish
from srtm.autoscaler.packing.least_loaded import least_loaded
from srtm.autoscaler.packing.matching import keep_owners
from srtm.autoscaler.packing.model import Bin, Bins, Filled, Item, Packing
from srtm.autoscaler.packing.modified import MODIFIED
from srtm.autoscaler.packing.problem import check, fits, largest_first, split_oversized
from srtm.autoscaler.packing.program import Program, Solution

TIME_LIMIT_SECONDS = 10.0
"""The time limit of the three programs together."""
_HEURISTICS = (
    DECREASING["best-fit-decreasing"],
    least_loaded,
    MODIFIED["mbfp"],
    MODIFIED["mwf"],
)
_TOLERANCE = 1e-6
"""HiGHS' own, relative."""

_Rank = Callable[[Packing], tuple[float, ...]]


def exact(items: Sequence[Item], bins: Bins, time_limit: float = TIME_LIMIT_SECONDS) -> Packing:
    """Fewest consumers; of these packings one with the fewest partitions in a bin that they exceed,
    then the least rate moved, then the smallest largest share of a consumer's rate that is used.

    A partition that exceeds a new consumer, fits an existing one, and finds no place there counts
    as moved while the second is searched for, though it may stay with a consumer that it exceeds.

    time_limit: seconds, a third for each program. Raises ValueError unless it is positive.
    """
    check(items, bins)
    if not time_limit > 0:
        raise ValueError(f"time_limit is {time_limit} s; it must be more than 0")
    best = min((pack(items, bins) for pack in _HEURISTICS), key=_rank)
    if not items:
        return best
    search = _Search(items, bins, time_limit / 3)
    best = search.fewer(search.packing(best.filled, best.exact))
    best = search.less_moved(best)
    return search.more_even(best)


class _Search:
    def __init__(self, items: Sequence[Item], bins: Bins, seconds: float) -> None:
        self._given, self._bins, self._seconds = items, bins, seconds
        self._items = largest_first(items)
        self._by_id = {item.id: item for item in items}
        exceeding = {item.id for item in split_oversized(items, bins)[1]}
        self._oversized = {i for i, item in enumerate(self._items) if item.id in exceeding}

    def packing(self, filled: Sequence[Filled], proved: bool) -> Packing:
        kept = keep_owners(filled, self._given, self._bins)
        return finish(self._given, self._bins, kept, proved=proved)

    def fewer(self, best: Packing) -> Packing:
        """A packing with fewer bins than `best`, or with as many and fewer partitions in a bin that
        they exceed; otherwise `best`, with the proof, if there is one, that there is no such
        packing."""
        avoidable = len(best.oversized) > len(self._oversized)
        if best.exact and not avoidable:
            return best
        new, most = self._bins.new, best.count if avoidable else best.count - 1
        other = [b for b in self._bins.existing if (b.rate, b.lag) != (new.rate, new.lag)]
        rooms = [*other, *([new] * most)]
        program = Program(self._items, rooms, most, self._oversized)
        program.at_most(program.count(), most)
        found = program.solve(program.count(1 + 0.5 / len(self._items)), self._seconds)
        filled = self._filled(found, rooms)
        if filled is None:
            # Nothing at all is a proof if HiGHS says so; something that our sums refute is none.
            proved = best.exact or (found.proved and not found.groups and not avoidable)
            return self.packing(best.filled, proved)
        packing = self.packing(filled, found.proved)
        return packing if _rank(packing) <= _rank(best) else best

    def less_moved(self, best: Packing) -> Packing:
        if best.moved_rate == 0:
            return best
        program, rooms = self._named(best)
        found = program.solve(program.moved(), self._seconds)
        return self._better(best, self._filled(found, rooms), _rank)

    def more_even(self, best: Packing) -> Packing:
        program, rooms = self._named(best)
        program.at_most(program.moved(), best.moved_rate * (1 + _TOLERANCE))
        found = program.solve(program.most_used(), self._seconds)

        def rank(packing: Packing) -> tuple[float, ...]:
            moved_more = packing.moved_rate > best.moved_rate * (1 + 2 * _TOLERANCE)
            most = most_used(packing, self._by_id)
            return packing.count, len(packing.oversized), moved_more, most

        return self._better(best, self._filled(found, rooms), rank)

    def _named(self, best: Packing) -> tuple[Program, list[Bin]]:
        """Every existing consumer under its own name; as many bins as `best` has."""
        rooms = [*self._bins.existing, *([self._bins.new] * best.count)]
        program = Program(self._items, rooms, best.count, self._oversized)
        program.at_most(program.count(), best.count)
        program.at_most(program.misfits(), len(best.oversized) - len(self._oversized))
        return program, rooms

    def _better(self, best: Packing, filled: Sequence[Filled] | None, rank: _Rank) -> Packing:
        if filled is None:
            return best
        found = self.packing(filled, best.exact)
        return min(best, found, key=rank)

    def _filled(self, found: Solution, rooms: Sequence[Bin]) -> list[Filled] | None:
        """The bins as a solution fills them; None where nothing was found, or where the partitions
        of a bin are more than its room by our own sums."""
        filled = []
        for room, group in zip(rooms, found.groups, strict=False):
            inside = [self._items[i] for i in group]
            rate, lag = sum(item.rate for item in inside), sum(item.lag for item in inside)
            if len(inside) > 1 and not fits(rate, lag, room):
                return None
            if inside:
                filled.append(Filled(room, tuple(item.id for item in inside)))
        filled += [Filled(self._bins.new, (self._items[i].id,)) for i in found.alone]
        return filled or None


def most_used(packing: Packing, items: Mapping[int, Item]) -> float:
    """The largest share of a consumer's rate room that is used; oversized partitions left out."""
    exceeding = set(packing.oversized)
    shares = [
        sum(items[number].rate for number in group.items if number not in exceeding)
        / group.bin.rate
        for group in packing.filled
    ]
    return max(shares, default=0.0)


def _rank(packing: Packing) -> tuple[float, ...]:
    return packing.count, len(packing.oversized), packing.moved_rate
