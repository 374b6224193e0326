"""Max-min by water-filling: nobody's level can rise without lowering one that is no higher.

Amounts are integers of any unit, so that sums are exact.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush


def water_fill(total: int, rooms: Sequence[int], bases: Sequence[int]) -> list[int]:
    """Pour `total` over vessels that hold `bases` already and have `rooms` left.

    Returns what each gets: clamp(level - base, 0, room) with one level for all, so the smallest
    base + share is as large as it can be. The sum is `total`, or all rooms where they hold less.
    bases: 0 for SRTM's max-min; what the topic has there already in a later iteration; all that is
    allocated there for equal total load (SRTM section 6.2's Conc).

    SRTM section 4.2 sets min(rcap, rate/k) in one pass. That is the same where no broker is
    limited by rcap; otherwise it leaves a remainder, which goes here to those with room.
    """
    if total >= sum(rooms):
        return list(rooms)
    steps = [(base, 1) for base in bases]
    steps += [(base + room, -1) for base, room in zip(bases, rooms, strict=True)]
    level, rest = _level(total, sorted(steps))
    shares = []
    for base, room in zip(bases, rooms, strict=True):
        share = min(max(level - base, 0), room)
        if rest and base <= level < base + room:  # the units that no whole step of the level gives
            share, rest = share + 1, rest - 1
        shares.append(share)
    return shares


def _level(total: int, steps: list[tuple[int, int]]) -> tuple[int, int]:
    """The level up to which `total` fills, and the units left over. steps: (level, +1 where a
    vessel's water begins to rise, -1 where it is full), sorted."""
    poured, rising, level = 0, 0, steps[0][0]
    for at, change in steps:
        if rising and poured + rising * (at - level) > total:
            break
        poured += rising * (at - level)
        level = at
        rising += change
    return level + (total - poured) // rising, (total - poured) % rising


def whole_shares(count: int, weight: int, rooms: Sequence[int], bases: Sequence[int]) -> list[int]:
    """Water-filling in whole publishers of one `weight`: each share is a multiple of it, and their
    sum is count * weight, or what the rooms hold where that is less.

    Exact: no shares in whole publishers have a larger minimum of base + share. Every room that
    holds a whole number of publishers is filled where that is less than all.
    """
    whole_rooms = [room // weight * weight for room in rooms]
    if sum(whole_rooms) <= count * weight:
        return whole_rooms
    shares = [share // weight * weight for share in water_fill(count * weight, whole_rooms, bases)]
    left = count - sum(shares) // weight
    # No share is more than pouring publisher by publisher gives; so go on like that, lowest first.
    lowest = [
        (bases[at] + shares[at], at) for at in range(len(rooms)) if shares[at] < whole_rooms[at]
    ]
    heapify(lowest)
    while left:
        level, at = heappop(lowest)
        shares[at] += weight
        left -= 1
        if shares[at] < whole_rooms[at]:
            heappush(lowest, (level + weight, at))
    return shares
