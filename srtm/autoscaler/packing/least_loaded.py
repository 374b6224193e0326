"""Least-loaded packing: the largest partition first, each to the bin that has the least load.

With a number of bins given, partitions from the largest on go to the least loaded bin that takes
them (among equals the first). When one fits nowhere, all are taken out again and one bin is added.

The text of ICCBDC 2022 (appendix) starts at one bin. No packing into fewer bins than the lower
bound exists, and each number of bins is tried from empty ones: so starting at the bound gives the
same result. The text never ends when one partition exceeds a bin: such a one is set aside here and
gets a consumer of its own (CLOSER 2024 section 4), and is named in the result.

One bin more at a time is the square of the number of bins. After _STEPS placements the numbers in
between are bisected instead. As packing may fail with m bins and succeed with m - 1, the result
may then have more bins than the text's; up to 70 partitions it never comes to that.
"""

from collections.abc import Callable, Sequence

from srtm.autoscaler.packing.bounds import lower_bound
from srtm.autoscaler.packing.finish import finish
from srtm.autoscaler.packing.matching import keep_owners
from srtm.autoscaler.packing.model import Bin, Bins, Filled, Item, Packing
from srtm.autoscaler.packing.problem import SLACK, check, fits, split_oversized
from srtm.autoscaler.packing.ranking import Ranking

_STEPS = 5_000
"""Placements of a partition, about 10 ms."""
_BISECTION_STEPS = 90_000
_BISECTIONS = 6
"""What is left of the numbers of bins in between: one in 64."""

_Share = Callable[[float, float, Bin], float]
"""(rate, lag, bin) -> how much of the bin that is; it orders the partitions and the bins."""


def least_loaded_ffd(items: Sequence[Item], bins: Bins) -> Packing:
    """Least-load first fit decreasing of ICCBDC 2022: the load is the arrival rate, the lag has to
    fit as well. Groups go to the consumers that have most of them already (`keep_owners`)."""
    return _pack(items, bins, lambda rate, lag, room: rate / room.rate)


def least_loaded(items: Sequence[Item], bins: Bins) -> Packing:
    """Least-loaded of Ajiro and Tanaka (2007), which CLOSER 2024 uses, in two dimensions.

    CLOSER does not print it and names no order for two dimensions. Here a load is the larger of
    its shares of the rate room and of the lag room, for partitions and bins alike.
    """
    return _pack(items, bins, lambda rate, lag, room: max(rate / room.rate, lag / room.lag))


def _pack(items: Sequence[Item], bins: Bins, share: _Share) -> Packing:
    check(items, bins)
    ordered = sorted(items, key=lambda item: (-share(item.rate, item.lag, bins.new), item.id))
    rest, alone = split_oversized(ordered, bins)
    bound = lower_bound(items, bins)
    filled = _step_by_step(rest, bins, share, bound - len(alone)) if rest else []
    filled += [Filled(bins.new, (item.id,)) for item in alone]
    return finish(items, bins, keep_owners(filled, items, bins), bound=bound)


def _step_by_step(items: list[Item], bins: Bins, share: _Share, count: int) -> list[Filled]:
    """The first number of bins from `count` on that holds `items`, largest first."""
    alone: list[Filled] = []
    for _ in range(_STEPS // len(items)):
        trial = _Trial(bins, count)
        failed = trial.place(items, share)
        if failed is None:
            return trial.filled() + alone
        if count >= len(bins.existing) and not fits(failed.rate, failed.lag, bins.new):
            # Others stand where it would fit, and new consumers cannot hold it.
            alone.append(Filled(bins.new, (failed.id,)))
            items = [item for item in items if item is not failed]
            count = lower_bound(items, bins)
        else:
            count += 1
    return _bisected(items, bins, share, count) + alone


def _bisected(items: list[Item], bins: Bins, share: _Share, low: int) -> list[Filled]:
    """A packing into as few bins as are enough, from `low` on: adding some as they are needed, with
    nothing taken out again, shows how many are enough, and a bisection looks for fewer."""
    best = _Trial(bins, low)
    best.place(items, share, grow=bins.new)
    high = len(best.rooms)
    for _ in range(min(_BISECTIONS, _BISECTION_STEPS // len(items))):
        if low >= high:
            break
        middle = (low + high) // 2
        trial = _Trial(bins, middle)
        if trial.place(items, share) is None:
            best, high = trial, middle
        else:
            low = middle + 1
    return best.filled()


class _Trial:
    """One attempt with `count` bins, the existing ones first."""

    __slots__ = ("groups", "rooms")

    def __init__(self, bins: Bins, count: int) -> None:
        more = max(0, count - len(bins.existing))
        self.rooms = [*bins.existing[:count], *([bins.new] * more)]
        self.groups: list[list[int]] = [[] for _ in self.rooms]

    def filled(self) -> list[Filled]:
        pairs = zip(self.rooms, self.groups, strict=True)
        return [Filled(room, tuple(group)) for room, group in pairs if group]

    def place(self, items: Sequence[Item], share: _Share, grow: Bin | None = None) -> Item | None:
        """Returns the first partition that fitted nowhere; with `grow` it gets one more bin of
        that kind, and the rest follow."""
        rooms, groups = self.rooms, self.groups
        ranking = Ranking()
        for room in rooms:
            ranking.open(0.0, room.rate * (1 + SLACK), room.lag * (1 + SLACK))
        loads = [(0.0, 0.0)] * len(rooms)
        for item in items:
            entry = ranking.first(item.rate, item.lag)
            if entry is None:
                if grow is None:
                    return item
                number = ranking.open(0.0, grow.rate * (1 + SLACK), grow.lag * (1 + SLACK))
                entry = (0.0, number)
                rooms.append(grow)
                groups.append([])
                loads.append((0.0, 0.0))
            number = entry[1]
            rate, lag = loads[number]
            loads[number] = rate, lag = rate + item.rate, lag + item.lag
            groups[number].append(item.id)
            ranking.take(entry, item.rate, item.lag, share(rate, lag, rooms[number]))
        return None
