"""Balanced groups: who has which partitions when a group has n consumers, moving few of them."""

import itertools
from collections.abc import Mapping

from srtm.autoscaler.observation import Observation
from srtm.autoscaler.policies.srtm.tuning import TUNING

Group = tuple[tuple[str | None, tuple[int, ...]], ...]
"""The consumers of a group (None: one to be launched), each with its partitions."""


def group_of(seen: Observation) -> Group:
    """The group as it is."""
    return tuple((c.id, c.partitions) for c in seen.consumers)


def balanced(
    loads: Mapping[int, float], seen: Observation, count: int, worth: float = TUNING.move_worth
) -> Group:
    """A group of `count` consumers whose largest load (relative to μ) is small, reached from the
    present one by moving partitions one at a time from the fullest consumer to one with room.

    loads: of each partition, in any unit; worth: Tuning.move_worth. The consumers with the largest
    μ stay.
    """
    staying = sorted(seen.consumers, key=lambda consumer: -consumer.mu)[:count]
    names: list[str | None] = [consumer.id for consumer in staying]
    mu = [consumer.mu for consumer in staying]
    owned = [{p for p in consumer.partitions if p in loads} for consumer in staying]
    new = count - len(staying)
    names += [None] * new
    mu += [seen.new_mu] * new
    owned += [set() for _ in range(new)]
    load = [sum(loads[p] for p in ps) / mu[i] for i, ps in enumerate(owned)]

    homeless = set(loads).difference(*owned)
    for partition in sorted(homeless, key=lambda p: (-loads[p], p)):
        target = min(range(count), key=lambda i: load[i] + loads[partition] / mu[i])
        owned[target].add(partition)
        load[target] += loads[partition] / mu[target]
    others = set(range(count))  # all but who has one partition, and nobody who could have it better
    moves = 0
    while moves < 2 * len(loads):  # each move lowers the fullest; ties could go on for ever
        source = max(others, key=load.__getitem__)
        # Of each speed the emptiest: the emptiest of all may be a slow one.
        targets = {mu[i]: i for _, i in sorted(zip(load, range(count), strict=True), reverse=True)}
        best, to, most = None, source, 1e-9 * load[source]
        for partition, target in itertools.product(sorted(owned[source]), targets.values()):
            weight = loads[partition]
            fullest = max(load[source] - weight / mu[source], load[target] + weight / mu[target])
            gain = load[source] - fullest - worth * weight / mu[target]
            if target != source and gain > most:
                best, to, most = partition, target, gain
        if best is None:
            others.remove(source)
            if len(owned[source]) != 1 or not others:
                break
            continue
        owned[source].remove(best)
        owned[to].add(best)
        load[source] -= loads[best] / mu[source]
        load[to] += loads[best] / mu[to]
        others, moves = set(range(count)), moves + 1  # there may be room for the one partition now
    return tuple((name, tuple(sorted(ps))) for name, ps in zip(names, owned, strict=True))
