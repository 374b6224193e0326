"""Correlation-aware selection (SRTM section 4.3): each group over the brokers in proportion.

Who sends together should not meet at one broker: a burst is split as the bucket is. Each broker's
total is decided before; here each group gives each broker its size times the broker's share of all,
within one publisher. Weights are rates, so that this also holds for publishers of unequal rates.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush, heapreplace
from itertools import zip_longest


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
    gaps = list(rooms)
    left = _whole_parts(groups, weights, quotas, broker_of, gaps)
    left.sort(key=weights.__getitem__, reverse=True)  # stable: a group's stay together, in order
    lacking = [gap - room + quota for gap, room, quota in zip(gaps, rooms, quotas, strict=True)]
    return broker_of, *_remainders(left, groups, weights, lacking, gaps, broker_of)


def _whole_parts(
    groups: Sequence[Sequence[int]],
    weights: Sequence[int],
    quotas: Sequence[int],
    broker_of: list[int],
    gaps: list[int],
) -> list[int]:
    """Give a publisher to the broker whose cell lacks most of size x share, while it lacks as much
    as the publisher weighs; returns those who are over. All amounts here are multiplied by the sum
    of all quotas."""
    total = sum(quotas)
    by_quota = sorted(range(len(quotas)), key=lambda broker: (-quotas[broker], broker))
    left: list[int] = []
    for members in filter(None, groups):
        size = sum([weights[member] for member in members])
        lacking: list[tuple[int, int]] = []  # (-what its cell lacks, broker) of those opened
        opened = 0
        next_lacks = size * quotas[by_quota[0]]
        if next_lacks < weights[members[-1]] * total:  # no cell takes even the lightest whole
            left += members
            continue
        for member in members:
            weight = weights[member]
            needed = weight * total
            if lacking and -lacking[0][0] >= next_lacks:
                lacks, broker = lacking[0]
                if -lacks < needed:
                    left.append(member)
                    continue
                heapreplace(lacking, (lacks + needed, broker))
            else:
                if next_lacks < needed:
                    left.append(member)
                    continue
                broker = by_quota[opened]
                heappush(lacking, (needed - next_lacks, broker))
                opened += 1
                next_lacks = size * quotas[by_quota[opened]] if opened < len(quotas) else -1
            broker_of[member] = broker
            gaps[broker] -= weight
    return left


def _remainders(
    left: Sequence[int],
    groups: Sequence[Sequence[int]],
    weights: Sequence[int],
    lacking: Sequence[int],
    gaps: list[int],
    broker_of: list[int],
) -> tuple[list[int], int]:
    """Deal what is over, where most is lacking of a quota; those who fit nowhere, and how many had
    to meet one of their group. A broker stands in the heap as one integer, its number minus what it
    lacks x brokers, which is quicker to compare and to move than a pair."""
    count = len(gaps)
    heap = [broker - lacks * count for broker, lacks in enumerate(lacking)]
    heapify(heap)
    smallest = weights[left[-1]] if left else 0
    group_of = [0] * len(weights)
    for number, members in enumerate(groups):
        for member in members:
            group_of[member] = number
    given: set[int] = set()  # group x brokers + broker
    unfit, met = [], 0
    aside: list[int] = []  # brokers out of the way of this group's of this weight
    for member, following in zip_longest(left, left[1:]):
        weight, number = weights[member], group_of[member]
        last = following is None or group_of[following] != number or weights[following] != weight
        cells = number * count
        while heap:
            entry = heap[0]
            broker = entry % count
            gap = gaps[broker]
            if gap >= weight and cells + broker not in given:
                break
            heappop(heap)
            if gap >= smallest:  # it may take another group's, or a smaller one
                aside.append(entry)
        else:  # every broker with room has one of the group
            again = [entry for entry in aside if gaps[entry % count] >= weight]
            if again:
                met += 1
                entry = again[0]
                broker = entry % count
                aside.remove(entry)
                heap.append(entry)
        if heap:
            broker_of[member] = broker
            gaps[broker] -= weight
            given.add(cells + broker)
            entry += weight * count
            if last:
                heapreplace(heap, entry)
            else:
                heappop(heap)
                aside.append(entry)
        else:
            unfit.append(member)
        if last and aside:
            for entry in aside:
                heappush(heap, entry)
            aside = []
    return unfit, met
