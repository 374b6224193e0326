"""Packing as a mixed integer program (ICCBDC 2022, section 3.2), solved by HiGHS.

Variables: x[i, j], partition i is in bin j; y[j], bin j is used; o[i], partition i stands alone in
one more bin that it exceeds (only where it fits an existing consumer but not a new one); t, the
largest share of a bin's rate that is used. A partition that exceeds every bin fills one alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from srtm.autoscaler.packing.model import Bin, Item
from srtm.autoscaler.packing.problem import fits

if TYPE_CHECKING:
    from scipy.optimize import LinearConstraint

_SCALE = 1000.0
"""Rooms are 1,000 in the program: HiGHS lets a row be exceeded by 1e-6."""
_SMALL = 1e-4
"""A small share of a room: what takes less does not show in the room's rows that the bin is used,
since HiGHS takes 1e-6 for 0."""
_OPTIMAL, _INFEASIBLE = 0, 2

Cost = dict[int, float]
"""Coefficient by column."""


@dataclass(frozen=True, slots=True)
class Solution:
    """groups: item numbers by room, alone: items alone in one more bin; both empty where nothing
    was found. proved: there is none better, or none at all."""

    groups: tuple[tuple[int, ...], ...]
    alone: tuple[int, ...]
    proved: bool


class Program:
    """items into rooms, the last `anonymous` of which are alike: they are used from the first on,
    and the i-th item is in one of the first i of them, so that no packing is there twice.

    oversized: numbers of the items that exceed every room.
    """

    def __init__(
        self, items: Sequence[Item], rooms: Sequence[Bin], anonymous: int, oversized: set[int]
    ) -> None:
        self._items, self._rooms = items, rooms
        named = len(rooms) - anonymous
        pairs = [
            (i, j)
            for i, item in enumerate(items)
            for j, room in enumerate(rooms)
            if j - named <= i and (i in oversized or fits(item.rate, item.lag, room))
        ]
        misfits = [
            i
            for i, item in enumerate(items)
            if i not in oversized
            and not any(fits(item.rate, item.lag, room) for room in rooms[named:])
        ]
        self._x = {pair: column for column, pair in enumerate(pairs)}
        self._y = range(len(pairs), len(pairs) + len(rooms))
        self._o = {i: self._y.stop + at for at, i in enumerate(misfits)}
        self._t = self._y.stop + len(misfits)
        self._columns: list[list[int]] = []
        self._values: list[list[float]] = []
        self._limits: list[tuple[float, float]] = []
        self._each_once()
        for j in range(len(rooms)):
            self._room(j, [i for i in range(len(items)) if (i, j) in self._x], oversized)
        for j in range(named, len(rooms) - 1):
            self._row({self._y[j]: 1.0, self._y[j + 1]: -1.0}, 0.0, inf)

    def count(self, misfit: float = 1.0) -> Cost:
        """Bins used; one more that a partition exceeds counts `misfit`."""
        return dict.fromkeys(self._y, 1.0) | self.misfits(misfit)

    def misfits(self, each: float = 1.0) -> Cost:
        return dict.fromkeys(self._o.values(), each)

    def moved(self) -> Cost:
        """events/s that move."""
        cost = {
            column: self._items[i].rate
            for (i, j), column in self._x.items()
            if self._items[i].consumer not in (None, self._rooms[j].consumer)
        }
        alone = {
            column: self._items[i].rate
            for i, column in self._o.items()
            if self._items[i].consumer is not None
        }
        return cost | alone

    def most_used(self) -> Cost:
        """The largest share of a room's rate."""
        return {self._t: 1.0}

    def at_most(self, cost: Cost, high: float) -> None:
        """A limit that holds from now on."""
        scale = max(cost.values(), default=0.0)
        if scale > 0:
            self._row({at: value / scale for at, value in cost.items()}, -inf, high / scale)

    def solve(self, cost: Cost, seconds: float) -> Solution:
        """The least `cost`, as far as it is found in that time."""
        from scipy.optimize import Bounds, milp  # late, as in matching.py

        objective = np.zeros(self._t + 1)
        scale = max(cost.values(), default=1.0) or 1.0
        for column, value in cost.items():
            objective[column] = value / scale
        integral = np.ones(self._t + 1)
        integral[self._t] = 0
        result = milp(
            objective,
            integrality=integral,
            bounds=Bounds(0, 1),
            constraints=self._constraints(),
            options={"time_limit": seconds, "mip_rel_gap": 0.0},
        )
        if result.x is None:
            return Solution((), (), result.status == _INFEASIBLE)
        groups: list[list[int]] = [[] for _ in self._rooms]
        for (i, j), column in self._x.items():
            if result.x[column] > 0.5:
                groups[j].append(i)
        alone = tuple(i for i, column in self._o.items() if result.x[column] > 0.5)
        return Solution(tuple(map(tuple, groups)), alone, result.status == _OPTIMAL)

    def _each_once(self) -> None:
        columns: list[list[int]] = [[] for _ in self._items]
        for (i, _), column in self._x.items():
            columns[i].append(column)
        for i, each in enumerate(columns):
            self._row(dict.fromkeys(each + ([self._o[i]] if i in self._o else []), 1.0), 1.0, 1.0)

    def _room(self, j: int, inside: Sequence[int], oversized: set[int]) -> None:
        room, x, y = self._rooms[j], self._x, self._y[j]
        rates = {x[i, j]: _SCALE * min(1.0, self._items[i].rate / room.rate) for i in inside}
        self._row(rates | {y: -_SCALE}, -inf, 0.0)
        usual = {x[i, j]: rates[x[i, j]] for i in inside if i not in oversized}
        self._row(usual | {self._t: -_SCALE}, -inf, 0.0)
        if room.lag < inf:
            lags = {x[i, j]: _SCALE * min(1.0, self._items[i].lag / room.lag) for i in inside}
            self._row(lags | {y: -_SCALE}, -inf, 0.0)
        for i in inside:
            if i in oversized:  # with nobody else
                others = {x[k, j]: 1.0 for k in inside if k != i}
                self._row(others | {x[i, j]: float(len(inside))}, -inf, float(len(inside)))
            elif _share(self._items[i], room) < _SMALL:
                self._row({x[i, j]: 1.0, y: -1.0}, -inf, 0.0)  # it needs no room, but a bin

    def _row(self, coefficients: Cost, low: float, high: float) -> None:
        self._columns.append(list(coefficients))
        self._values.append(list(coefficients.values()))
        self._limits.append((low, high))

    def _constraints(self) -> "LinearConstraint":
        from scipy.optimize import LinearConstraint
        from scipy.sparse import csr_array

        starts = np.cumsum([0, *map(len, self._columns)])
        columns = np.concatenate([np.array(each, dtype=np.int64) for each in self._columns])
        values = np.concatenate([np.array(each, dtype=np.float64) for each in self._values])
        shape = (len(self._columns), self._t + 1)
        low, high = zip(*self._limits, strict=True)
        return LinearConstraint(csr_array((values, columns, starts), shape=shape), low, high)


def _share(item: Item, room: Bin) -> float:
    """The larger of its parts of the room's rate and lag."""
    return max(item.rate / room.rate, item.lag / room.lag)
