"""Bin packing by size alone, for publishers that fill the brokers too tightly for anything else.

Amounts are integers of any unit.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence

_MOST_SEARCHED = 200  # publishers; with more, packing by best fit is rarely wrong
_LOOKS = 100_000  # at a broker, about 50 ms; a count and no clock: the answer is always the same


def best_fit_decreasing(
    weights: Sequence[int], rooms: Sequence[int], opened: int
) -> tuple[list[int], int]:
    """Heaviest first, each to the fullest broker that it fits; more than `opened` are opened in
    order. Returns each one's broker (-1: fits nowhere) and how many are open in the end."""
    broker_of = [-1] * len(weights)
    count = len(rooms)  # a gap and its broker are one integer, quicker to move than a pair
    gaps = sorted(room * count + broker for broker, room in enumerate(rooms[:opened]))
    for member in sorted(range(len(weights)), key=weights.__getitem__, reverse=True):
        needed = weights[member] * count
        at = bisect_left(gaps, needed)
        if at == len(gaps):
            if opened == count or rooms[opened] < weights[member]:
                continue
            gaps.append(rooms[opened] * count + opened)
            opened += 1
        gap = gaps.pop(at)
        broker_of[member] = gap % count
        insort(gaps, gap - needed)
    return broker_of, opened


def make_room(
    unfit: Sequence[int], weights: Sequence[int], rooms: Sequence[int], broker_of: list[int]
) -> bool:
    """Place the few `unfit` ones: each takes the place of one a little lighter, at the broker with
    the widest gap for which there is such a one; that one is placed likewise, until one fits into a
    gap as it is. Changes `broker_of`; False where that ends nowhere."""
    there: list[list[int]] = [[] for _ in rooms]
    for member, broker in enumerate(broker_of):
        if broker >= 0:
            there[broker].append(member)
    gaps = []
    for broker, members in enumerate(there):
        members.sort(key=weights.__getitem__)
        gaps.append((rooms[broker] - sum([weights[member] for member in members]), broker))
    gaps.sort()

    def heavier(member: int) -> tuple[int, int]:
        return weights[member], member

    for first in unfit:
        member = first
        while True:
            weight = weights[member]
            swap = _lighter(weight, weights, gaps, there)
            if swap is None:
                return False
            at, place = swap
            gap, broker = gaps.pop(at)
            broker_of[member] = broker
            if place is None:
                insort(there[broker], member, key=heavier)
                insort(gaps, (gap - weight, broker))
                break
            lighter = there[broker].pop(place)
            insort(there[broker], member, key=heavier)
            insort(gaps, (gap - weight + weights[lighter], broker))
            broker_of[lighter] = -1
            member = lighter
    return True


def _lighter(
    weight: int,
    weights: Sequence[int],
    gaps: Sequence[tuple[int, int]],
    there: Sequence[Sequence[int]],
) -> tuple[int, int | None] | None:
    """Where in `gaps` one of `weight` can go, and whose place in `there` it takes (None: nobody's).
    The lightest that frees enough, as the gap is then used up best."""
    for at in range(len(gaps) - 1, -1, -1):
        gap, broker = gaps[at]
        if gap >= weight:
            return at, None
        if gap == 0:
            return None
        members = there[broker]
        place = bisect_left(members, weight - gap, key=weights.__getitem__)
        if place < len(members) and weights[members[place]] < weight:
            return at, place
    return None


def search(weights: Sequence[int], rooms: Sequence[int]) -> list[int] | None:
    """Best fit decreasing that takes steps back, for few publishers. None where it finds nothing in
    its bounded number of steps, which does not prove that there is nothing."""
    if len(weights) > _MOST_SEARCHED:
        return None
    order = sorted(range(len(weights)), key=lambda member: (-weights[member], member))
    gaps = list(rooms)
    slack = sum(rooms) - sum(weights)
    broker_of = [-1] * len(weights)
    steps = _LOOKS // len(rooms)

    def place(at: int) -> bool:
        nonlocal steps
        if at == len(order):
            return True
        member = order[at]
        weight, smallest = weights[member], weights[order[-1]]
        if sum(gap for gap in gaps if gap < smallest) > slack:
            return False  # too much is lost in gaps that nobody fits
        tried = set()
        for gap, broker in sorted((gap, broker) for broker, gap in enumerate(gaps)):
            if gap < weight or gap in tried:  # brokers with the same gap are the same
                continue
            if steps == 0:
                return False
            steps -= 1
            tried.add(gap)
            gaps[broker] -= weight
            broker_of[member] = broker
            if place(at + 1):
                return True
            gaps[broker] += weight
        return False

    return broker_of if place(0) else None
