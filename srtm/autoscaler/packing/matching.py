"""Which consumer takes which group of partitions, so that the least rate moves.

A packing that starts from empty bins says what goes together, not who has it. Giving the i-th group
to the i-th consumer moves nearly everything; the best choice is an assignment problem.
"""

from collections.abc import Mapping, Sequence
from math import inf

import numpy as np

from srtm.autoscaler.packing.model import Bin, Bins, Filled, Item
from srtm.autoscaler.packing.problem import SLACK, fits
from srtm.autoscaler.packing.ranking import Ranking

_DENSE_CELLS = 250_000
"""Up to here the dense solver is the faster one (300 groups: 0.9 ms; sparse takes 0.3 ms for 3)."""

_Edges = dict[tuple[int, int], float]
"""(group, existing consumer) -> events/s that stay where they are if the group goes there."""


def keep_owners(filled: Sequence[Filled], items: Sequence[Item], bins: Bins) -> tuple[Filled, ...]:
    """The groups of `filled`, each in the bin that lets the most rate stay where it is.

    A group goes to another bin only where it fits; one partition that exceeds its bin goes
    anywhere. Groups that keep nothing take the consumers left over, in the order of
    `bins.existing`, then new ones; the answer has that order too.

    Exact (Jonker-Volgenant, in scipy), but for one thing: with more than 500 groups, one that
    exceeds a new consumer is moved only to a consumer that has some of it.
    """
    by_id = {item.id: item for item in items}
    index = {room.consumer: number for number, room in enumerate(bins.existing)}
    needs = [_need(group, by_id) for group in filled]
    edges: _Edges = {}
    for row, group in enumerate(filled):
        for number in group.items:
            column = index.get(by_id[number].consumer)
            if column is not None and fits(*needs[row], bins.existing[column]):
                edges[row, column] = edges.get((row, column), 0.0) + by_id[number].rate
    free = [fits(rate, lag, bins.new) for rate, lag in needs]
    few = len(filled) * len(bins.existing) <= _DENSE_CELLS
    for row, group in enumerate(filled):
        if not free[row]:  # it exceeds a new consumer: it has to stay among the existing ones
            for column in range(len(bins.existing)) if few else [index[group.bin.consumer]]:
                if fits(*needs[row], bins.existing[column]):
                    edges.setdefault((row, column), 0.0)
    owners = _match(edges, free, len(bins.existing))
    _use_idle(owners, needs, bins.existing)
    last = len(bins.existing)
    rows = sorted(range(len(filled)), key=lambda row: owners.get(row, last))
    return tuple(
        Filled(bins.existing[owners[row]] if row in owners else bins.new, filled[row].items)
        for row in rows
    )


def _need(group: Filled, items: Mapping[int, Item]) -> tuple[float, float]:
    """(rate, lag) that a bin must have room for to take the group: (0, 0) for one partition that
    exceeds its bin anyway, and never more than its bin has, whatever the rounding."""
    rate = lag = 0.0
    for number in group.items:
        rate += items[number].rate
        lag += items[number].lag
    if len(group.items) == 1 and not fits(rate, lag, group.bin):
        return 0.0, 0.0
    return min(rate, group.bin.rate), min(lag, group.bin.lag)


def _use_idle(
    owners: dict[int, int], needs: Sequence[tuple[float, float]], existing: Sequence[Bin]
) -> None:
    """Groups without an owner take consumers without a group, rather than new ones."""
    taken = set(owners.values())
    idle = Ranking()
    for column, room in enumerate(existing):
        rate = -inf if column in taken else room.rate * (1 + SLACK)
        idle.open(column, rate, room.lag * (1 + SLACK))
    for row, (rate, lag) in enumerate(needs):
        if row not in owners:
            entry = idle.first(rate, lag)
            if entry is not None:
                owners[row] = entry[1]
                idle.take(entry, inf, 0.0, entry[0])


def _match(edges: _Edges, free: Sequence[bool], consumers: int) -> dict[int, int]:
    """Group -> consumer, the most rate in all; a group that is `free` may go without."""
    rows = sorted({row for row, _ in edges})
    if not rows:
        return {}
    # scipy takes 0.7 s of CPU to import: most commands that know the packings never get here.
    from scipy.optimize import linear_sum_assignment
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import min_weight_full_bipartite_matching

    at = {row: number for number, row in enumerate(rows)}
    without = [(at[row], consumers + at[row], 0.0) for row in rows if free[row]]
    ends = [(at[row], column, -rate) for (row, column), rate in edges.items()] + without
    shape = (len(rows), consumers + len(rows))
    if shape[0] * shape[1] <= _DENSE_CELLS:
        cost = np.full(shape, inf)
        for row, column, rate in ends:
            cost[row, column] = rate
        _, columns = linear_sum_assignment(cost)
    else:
        from_rows, to_columns, rates = (np.array(part) for part in zip(*ends, strict=True))
        shifted = rates - rates.min() + 1  # a stored zero would be no edge
        graph = csr_array((shifted, (from_rows, to_columns)), shape=shape)
        _, columns = min_weight_full_bipartite_matching(graph)
    return {
        rows[number]: int(column) for number, column in enumerate(columns) if column < consumers
    }
