"""The best placement by mixed-integer programming: the reference for tests and benchmarks.

Not for use on the way of a decision: its time grows without bound with the number of brokers.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from distributor.model import Broker, Publisher


@dataclass(frozen=True, slots=True)
class Best:
    """brokers: fewest that hold all publishers; minimum: the largest smallest share, in messages/s,
    that so many brokers allow."""

    brokers: int
    minimum: float


def best(
    brokers: Sequence[Broker], publishers: Sequence[Publisher], count: int | None = None
) -> Best | None:
    """SRTM's concentration, then max-min, solved exactly; None where nothing holds everybody.

    count: take exactly this many brokers instead of the fewest.
    Whole numbers n[l, w] of publishers of rate w at broker l, and used[l] in {0, 1}. It does not
    take for granted that the brokers with the most room are the right ones.
    """
    rates = Counter(publisher.rate for publisher in publishers)
    rooms = [max(0.0, broker.rcap) for broker in brokers]
    if count is None:
        fewest = _solve(rooms, rates, None)
        if fewest is None:
            return None
        count = round(fewest)
    minimum = _solve(rooms, rates, count)
    return None if minimum is None else Best(count, minimum)


def _solve(rooms: Sequence[float], rates: Counter[float], count: int | None) -> float | None:
    """The fewest brokers (count None), or the largest minimum share over `count` of them."""
    k, weights = len(rooms), np.array(list(rates))
    if not k:
        return None
    many = np.array(list(rates.values()))
    kinds, cells = len(weights), k * len(weights)
    size = cells + k + 1  # n[l, w], used[l], minimum
    scale = max(rooms) or 1.0
    rows, low, high = [], [], []

    def row(entries: dict[int, float], least: float, most: float) -> None:
        line = np.zeros(size)
        for at, value in entries.items():
            line[at] = value
        rows.append(line)
        low.append(least)
        high.append(most)

    for kind in range(kinds):
        row({broker * kinds + kind: 1.0 for broker in range(k)}, many[kind], many[kind])
    for broker in range(k):
        here = {broker * kinds + kind: weights[kind] / scale for kind in range(kinds)}
        row(here | {cells + broker: -rooms[broker] / scale}, -np.inf, 0.0)
        if count is not None:  # minimum <= share, where it is used
            row(here | {size - 1: -1.0, cells + broker: -1.0}, -1.0, np.inf)
    if count is not None:
        row({cells + broker: 1.0 for broker in range(k)}, count, count)
    goal = np.zeros(size)
    goal[cells:-1] = 1.0 if count is None else 0.0
    goal[-1] = 0.0 if count is None else -1.0
    solution = milp(
        goal,
        constraints=LinearConstraint(np.array(rows), low, high),
        integrality=np.r_[np.ones(size - 1), 0.0],
        bounds=Bounds(np.zeros(size), np.r_[np.tile(many, k), np.ones(k), 1.0]),
        options={"mip_rel_gap": 0.0},
    )
    if solution.status == 2:
        return None
    if solution.x is None:
        raise RuntimeError(f"milp: {solution.message}")
    return float(solution.fun) if count is None else float(solution.x[-1]) * scale
