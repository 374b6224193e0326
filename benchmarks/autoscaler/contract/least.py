"""The fewest consumers with which any policy could keep a contract's target: what no policy beats.

A policy decides once a second, and what it launches serves a start-up later. So against a burst
that comes just after a decision, and r from then on, only those that are there serve at first; at
most as many as are enough for ever come after them. For pools the burst is played event by event.
In a group some consumer has at least the share that the evenest split leaves to the fullest, and
what it hands over stands still.
"""

import heapq
import math
from collections.abc import Sequence
from itertools import count as counting

from benchmarks.autoscaler.contract.cases import ROUNDING, Drawn

DECISION_SECONDS = 1.0


def for_ever(case: Drawn, pooled: bool) -> int:
    """Consumers that keep the target for every arrival, and are never more nor fewer."""
    if pooled:
        return next(n for n in counting(1) if _serves(case, n, n))
    room = case.mu * min(1 / case.ceiling.rate, case.target / max(1.0, case.ceiling.burst))
    return next(n for n in counting(1) if fullest(case.shares, n) <= room * (1 + 1e-9))


def idle(case: Drawn, pooled: bool) -> int:
    """Consumers that there have to be while the bucket is full and nothing comes."""
    most = for_ever(case, pooled)
    if pooled:
        return next(n for n in range(1, most + 1) if _serves(case, n, most))
    return next(n for n in range(1, most + 1) if n == most or _is_back(case, n))


def _serves(case: Drawn, count: int, most: int) -> bool:
    """Are the burst and what comes after it in time, in a pool?"""
    mu, rate, notice = case.mu, case.ceiling.rate, case.startup + DECISION_SECONDS
    if most * mu < rate * (1 - 1e-9):
        return False
    free = [0.0] * count + [notice] * (most - count)
    heapq.heapify(free)
    burst = math.floor(case.ceiling.burst + 1e-9)
    until = notice + case.target
    for number in range(burst + math.ceil(until * rate)):
        arrived = max(0.0, (number + 1 - case.ceiling.burst) / rate)
        end = max(heapq.heappop(free), arrived) + 1 / mu
        if end - arrived > case.target + ROUNDING:
            return False
        heapq.heappush(free, end)
    return True


def _is_back(case: Drawn, count: int) -> bool:
    """Can a group of `count` be divided in time?"""
    share = fullest(case.shares, count)
    rate, burst = share * case.ceiling.rate, share * case.ceiling.burst
    growth = max(0.0, rate / case.mu - 1) * (case.startup + DECISION_SECONDS)
    return burst / case.mu + growth + case.rebalance <= case.target * (1 + 1e-9)


def fullest(shares: Sequence[float], count: int) -> float:
    """The share of the fullest consumer in the evenest split among `count`."""
    ordered = sorted(shares, reverse=True)
    least = max(1 / count, ordered[0])
    best = 1.0

    def place(number: int, loads: list[float]) -> None:
        nonlocal best
        if best <= least * (1 + 1e-12):
            return
        if number == len(ordered):
            best = min(best, max(loads))
            return
        tried = set[float]()
        for n, load in enumerate(loads):
            if load not in tried and load + ordered[number] < best:
                tried.add(load)
                loads[n] = load + ordered[number]
                place(number + 1, loads)
                loads[n] = load

    place(0, [0.0] * count)
    return best
