"""A pool as policies know groups: its load in equal shares. Pure.

A channel has no partitions: whoever is free takes the next message, so each consumer has a part of
the load that goes with its mu, and any number of consumers is a balanced group. Policies that count
see the same totals as ever; those that pack have equal items, so many that a count comes out right
to a few percent; what they say of who has which share is passed over. Nothing stands still when the
pool changes: no rebalance, no hand-over.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from srtm.autoscaler.decision import Action, Decision
from srtm.autoscaler.live.monitor import Reading
from srtm.autoscaler.live.observe import LiveConsumer, Phases, observation
from srtm.autoscaler.observation import ConsumerState, Observation, PartitionSeen

_SHARES = (60, 120, 240)
"""Numbers that many numbers divide."""
_FOR_EACH = 5
"""shares for each consumer that there may be: a fifth of one is the most that rounding costs"""


def share_count(most: int) -> int:
    """The number of shares for a pool of up to `most` consumers."""
    return next((each for each in _SHARES if each >= _FOR_EACH * most), max(_SHARES[-1], most))


def pool_observation(
    reading: Reading,
    consumers: Sequence[LiveConsumer],
    new_mu: float,
    shares: int,
    startup_seconds: float,
) -> Observation:
    """reading: one entry for each broker"""
    rate = math.fsum(each.rate for each in reading.partitions)
    lag = math.fsum(each.lag for each in reading.partitions)
    slots: tuple[float, ...] = ()
    if reading.partitions and all(each.slots for each in reading.partitions):
        columns = zip(*(each.slots for each in reading.partitions), strict=True)
        slots = tuple(sum(column) / shares for column in columns)
    cut = tuple(PartitionSeen(n, rate / shares, lag / shares, slots) for n in range(shares))
    owners = [
        replace(each, partitions=part)
        for each, part in zip(consumers, _dealt(consumers, new_mu, shares), strict=True)
    ]
    phases = Phases(startup=startup_seconds)
    return observation(replace(reading, partitions=cut), owners, new_mu, phases)


def _dealt(consumers: Sequence[LiveConsumer], new_mu: float, shares: int) -> list[tuple[int, ...]]:
    """Shares by mu, to the nearest whole one (largest remainder)."""
    mu = [each.mu or new_mu for each in consumers]
    whole = math.fsum(mu)
    exact = [shares * each / whole for each in mu]
    counts = [math.floor(each) for each in exact]
    by_rest = sorted(range(len(mu)), key=lambda n: counts[n] - exact[n])
    for n in by_rest[: shares - sum(counts)]:
        counts[n] += 1
    ends = [sum(counts[: n + 1]) for n in range(len(counts))]
    return [tuple(range(end - count, end)) for end, count in zip(ends, counts, strict=True)]


@dataclass(frozen=True, slots=True)
class Change:
    """leavers: of ours, that go; launches: how many come"""

    leavers: tuple[str, ...] = ()
    launches: int = 0


def change_of(decision: Decision, consumers: Sequence[LiveConsumer]) -> Change:
    """What a decision changes in a pool: only the number of consumers, and who goes. Who starts
    goes before who runs; who is not ours cannot be ended, so one of ours goes instead."""
    if decision.action is Action.NONE:
        return Change()
    count = len(decision.members)
    if count >= len(consumers):
        return Change(launches=count - len(consumers))
    kept = {each.consumer for each in decision.members}
    ours = [each for each in consumers if each.ours]
    ranked = sorted(
        ours, key=lambda each: (each.state is not ConsumerState.STARTING, each.id in kept)
    )
    return Change(tuple(each.id for each in ranked[: len(consumers) - count]))
