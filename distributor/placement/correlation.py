"""Correlation-aware selection (SRTM section 4.3): each group over the brokers in proportion.

Who sends together should not meet at one broker: a burst is split as the bucket is. Each broker's
total is decided before; here each group gives each broker its size times the broker's share of all,
within one publisher. Weights are rates, so that this also holds for publishers of unequal rates.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush, heapreplace
from itertools import zip_longest
from operator import itemgetter


def spread(
    groups: Sequence[Sequence[int]],
    weights: Sequence[int],
    quotas: Sequence[int],
    rooms: Sequence[int],
) -> tuple[list[int], list[int], int]:
    """The broker of each publisher, by number; those for whom no broker had room (-1); and how many
    found room only where another one of their group's remainder is (so a cell may be off by two).

    groups:  the numbers of each group's publishers, heaviest first (ties in order of id)
    weights: rate of each publisher
    quotas:  what each broker is meant to get; their sum is the sum of all weights
    rooms:   what each broker may get, at least its quota

    First the whole part of size times share, for every group. What is over, less than one publisher
    for each group and broker, is dealt heaviest first: a group's to different brokers, to those
    that lack most of their quota. Where all weights are the same, this meets whole quotas exactly
    and puts every cell on the floor or the ceiling of size times share. Largest remainder taken
    broker by broker, as SRTM words it, strands publishers at the last brokers; taken group by group
    it does not, since a 0/1 matrix of given sums is filled row by row, the largest columns first
    (Gale 1957, Ryser 1957). As brokers fall back in the order by what they are given, ties rotate
    over them from group to group.
    """
    broker_of = [-1] * len(weights)
    loads = [0] * len(quotas)
    left = _whole_parts(groups, weights, quotas, broker_of, loads)
    left.sort(key=itemgetter(0))  # stable: a group's stay together, in order
    return broker_of, *_remainders(left, groups, quotas, rooms, broker_of, loads)


_Left = tuple[int, int, int]
"""A publisher that is over: (-weight, number of its group, its own number)."""


def _whole_parts(
    groups: Sequence[Sequence[int]],
    weights: Sequence[int],
    quotas: Sequence[int],
    broker_of: list[int],
    loads: list[int],
) -> list[_Left]:
    """Give a publisher to the broker whose cell lacks most of size x share, while it lacks as much
    as the publisher weighs. All amounts here are multiplied by the sum of all quotas."""
    total = sum(quotas)
    by_quota = sorted(range(len(quotas)), key=lambda broker: (-quotas[broker], broker))
    left: list[_Left] = []
    for number, members in enumerate(groups):
        size = sum([weights[member] for member in members])
        lacking: list[tuple[int, int]] = []  # (-what its cell lacks, broker) of those opened
        opened = 0
        next_lacks = size * quotas[by_quota[0]]
        for member in members:
            weight = weights[member]
            needed = weight * total
            if lacking and -lacking[0][0] >= next_lacks:
                lacks, broker = lacking[0]
                if -lacks < needed:
                    left.append((-weight, number, member))
                    continue
                heapreplace(lacking, (lacks + needed, broker))
            else:
                if next_lacks < needed:
                    left.append((-weight, number, member))
                    continue
                broker = by_quota[opened]
                heappush(lacking, (needed - next_lacks, broker))
                opened += 1
                next_lacks = size * quotas[by_quota[opened]] if opened < len(quotas) else -1
            broker_of[member] = broker
            loads[broker] += weight
    return left


def _remainders(
    left: Sequence[_Left],
    groups: Sequence[Sequence[int]],
    quotas: Sequence[int],
    rooms: Sequence[int],
    broker_of: list[int],
    loads: list[int],
) -> tuple[list[int], int]:
    """Deal what is over; those who fit nowhere, and how many had to meet one of their group."""
    lacking = [(loads[broker] - quota, broker) for broker, quota in enumerate(quotas)]
    heapify(lacking)
    smallest = -left[-1][0] if left else 0
    given: set[tuple[int, int]] = set()  # (group, broker)
    unfit, met = [], 0
    aside: list[tuple[int, int]] = []  # brokers out of the way of this group's of this weight
    for (minus_weight, number, member), following in zip_longest(left, left[1:]):
        weight, alone = -minus_weight, len(groups[number]) == 1
        last = not following or following[0] != minus_weight or following[1] != number
        while lacking:
            lacks, broker = lacking[0]
            room = rooms[broker] - loads[broker]
            if room >= weight and (alone or (number, broker) not in given):
                break
            heappop(lacking)
            if room >= smallest:  # it may take another group's, or a smaller one
                aside.append((lacks, broker))
        else:  # every broker with room has one of the group
            again = [entry for entry in aside if rooms[entry[1]] - loads[entry[1]] >= weight]
            if again:
                met += 1
                aside.remove(again[0])
                lacking.append(again[0])
        if lacking:
            lacks, broker = lacking[0]
            broker_of[member] = broker
            loads[broker] += weight
            if not alone:
                given.add((number, broker))
            if last:
                heapreplace(lacking, (lacks + weight, broker))
            else:
                heappop(lacking)
                aside.append((lacks + weight, broker))
        else:
            unfit.append(member)
        if last and aside:
            for entry in aside:
                heappush(lacking, entry)
            aside = []
    return unfit, met
