"""The fewest brokers with room for some publishers, and who of these goes where.

Amounts are whole nano-messages/s, so that sums are exact and the order of publishers cannot matter.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from distributor.placement.correlation import spread
from distributor.placement.packing import best_fit_decreasing, make_room, search
from distributor.placement.water_filling import water_fill, whole_shares

NANO = 1e9


def amount(rate: float) -> int:
    """messages/s in nano-messages/s, rounded down: three times 20/3 messages/s are within 20."""
    return int(rate * NANO)


@dataclass(frozen=True, slots=True)
class Assigned:
    """broker_of: number of each publisher's broker, -1 for nobody's
    quotas:    what each broker was meant to get; 0 for those that are not used
    used:      how many of the brokers (the first ones)
    at_least:  no fewer can hold what is placed here
    uneven:    publishers that found room only out of proportion, as the brokers are nearly full
    packed:    the publishers fit only when packed by size: keys and quotas were given up
    """

    broker_of: list[int]
    quotas: list[int]
    used: int
    at_least: int
    uneven: int = 0
    packed: bool = False


def assign(
    groups: Sequence[Sequence[int]],
    weights: Sequence[int],
    rooms: Sequence[int],
    bases: Sequence[int],
    opened: int,
) -> Assigned:
    """Concentration, then max-min, then `spread` (SRTM section 4.2, steps 1 and 2).

    groups:  numbers of the publishers, heaviest first in each
    rooms:   of every broker; the first `opened` serve the topic already, of the others as few as
             possible are added, in the order given (biggest room first)
    bases:   what counts as there already when levels are compared

    With one weight for all, number of brokers and smallest share are the best that whole publishers
    allow. With unequal weights that is bin packing: the sum of the rooms bounds the number from
    below. When the publishers do not fit in proportion there, a few are packed by size by search;
    many go over one broker more, and only when that fails too they are packed by size.
    A publisher that is heavier than every room is nobody's, and the others are placed without it.
    """
    heaviest = max(rooms, default=0)
    if max(weights, default=0) > heaviest:
        return _without_the_heavier(heaviest, groups, weights, rooms, bases, opened)
    if not weights:
        return Assigned([], [0] * len(rooms), opened, opened)
    only = _only(weights)
    held = list(accumulate(room // only * only if only else room for room in rooms))
    total = sum(weights)
    if held[-1] < total:
        return _overfull(groups, weights, rooms, held)
    fewest = max(opened, bisect_left(held, total) + 1)
    for used in (fewest, fewest + 1):
        found = _in_proportion(used, fewest, groups, weights, rooms, bases)
        if found:
            return found
        packed = search(weights, rooms[:used])
        if packed or used == len(rooms):
            break
    if not packed:
        packed, used = best_fit_decreasing(weights, rooms, fewest)
    quotas = water_fill(total, rooms[:used], bases[:used])
    return Assigned(packed, _padded(quotas, rooms), used, fewest, packed=True)


def smallest_at_most(weights: Sequence[int], rooms: Sequence[int], bases: Sequence[int]) -> int:
    """An upper bound of the smallest base + share that any way to place all the weights in these
    rooms has; exact where they are equal."""
    shares = _quotas(weights, rooms, bases)
    return min((base + share for base, share in zip(bases, shares, strict=True)), default=0)


def _only(weights: Sequence[int]) -> int | None:
    """The one weight that all have."""
    return weights[0] if min(weights) == max(weights) else None


def _quotas(weights: Sequence[int], rooms: Sequence[int], bases: Sequence[int]) -> list[int]:
    """Max-min, in whole publishers where all weigh the same."""
    only = _only(weights) if weights else None
    if only:
        return whole_shares(len(weights), only, rooms, bases)
    return water_fill(sum(weights), rooms, bases)


def _in_proportion(
    used: int,
    fewest: int,
    groups: Sequence[Sequence[int]],
    weights: Sequence[int],
    rooms: Sequence[int],
    bases: Sequence[int],
) -> Assigned | None:
    """Over the first `used` brokers; None where somebody does not fit."""
    quotas = _quotas(weights, rooms[:used], bases[:used])
    broker_of, unfit, met = spread(groups, weights, quotas, rooms[:used])
    if unfit and not make_room(unfit, weights, rooms[:used], broker_of):
        return None
    return Assigned(broker_of, _padded(quotas, rooms), used, fewest, uneven=len(unfit) + met)


def _without_the_heavier(
    heaviest: int,
    groups: Sequence[Sequence[int]],
    weights: Sequence[int],
    rooms: Sequence[int],
    bases: Sequence[int],
    opened: int,
) -> Assigned:
    fitting = [member for member, weight in enumerate(weights) if weight <= heaviest]
    number_of = {member: number for number, member in enumerate(fitting)}
    assigned = assign(
        [[number_of[each] for each in group if each in number_of] for group in groups],
        [weights[member] for member in fitting],
        rooms,
        bases,
        opened,
    )
    broker_of = [-1] * len(weights)
    for member, broker in zip(fitting, assigned.broker_of, strict=True):
        broker_of[member] = broker
    return replace(assigned, broker_of=broker_of)


def _overfull(
    groups: Sequence[Sequence[int]],
    weights: Sequence[int],
    rooms: Sequence[int],
    held: Sequence[int],
) -> Assigned:
    """The assignment where all brokers are filled. What is over goes to a broker that is not there,
    which takes part of every group like the others; then whoever fits into a gap is fetched
    back."""
    nowhere, total = len(rooms), sum(weights)
    quotas = [after - before for before, after in pairwise([0, *held])]
    broker_of, _, met = spread(groups, weights, [*quotas, total - held[-1]], [*rooms, total])
    gaps = list(rooms)
    for member, broker in enumerate(broker_of):
        if broker != nowhere:
            gaps[broker] -= weights[member]
    over = [member for member, broker in enumerate(broker_of) if broker == nowhere]
    fetched, _ = best_fit_decreasing([weights[member] for member in over], gaps, nowhere)
    for member, broker in zip(over, fetched, strict=True):
        broker_of[member] = broker
    fetched_back = len(fetched) - fetched.count(-1)
    placed = sum(weight for weight, broker in zip(weights, broker_of, strict=True) if broker >= 0)
    return Assigned(
        broker_of,
        quotas,
        nowhere,
        bisect_left(held, placed) + 1,
        uneven=met + fetched_back,
    )


def _padded(quotas: Sequence[int], rooms: Sequence[int]) -> list[int]:
    return [*quotas, *[0] * (len(rooms) - len(quotas))]
