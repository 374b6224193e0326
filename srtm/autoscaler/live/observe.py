"""From what is read of a live group to the `Observation` that every policy takes. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from srtm.autoscaler.live.monitor import Reading
from srtm.autoscaler.observation import ConsumerSeen, ConsumerState, Observation


@dataclass(frozen=True, slots=True)
class LiveConsumer:
    """mu: events/s, None while nobody knows it. ours: the executor can end it"""

    id: str
    partitions: tuple[int, ...] = ()
    mu: float | None = None
    state: ConsumerState = ConsumerState.RUNNING
    ours: bool = True


@dataclass(frozen=True, slots=True)
class Phases:
    """What changes of the group have taken, as last learnt; seconds."""

    startup: float = 0.0
    rebalance: float = 0.0
    stopped: float | None = None
    rebalancing: bool = False


NO_MU = "mu is not known: set mu in [group], or wait until a consumer is pressed"


def any_mu(reading: Reading) -> float:
    """A mu for an observation by which nothing is decided, as no other is known."""
    return max(math.fsum(each.rate for each in reading.partitions), 1.0)


def new_mu(consumers: Sequence[LiveConsumer], configured: float | None) -> float | None:
    """Events/s of one more consumer: the mean of those that are known, or what was configured.
    None: nobody knows, so nothing can be decided."""
    known = [each.mu for each in consumers if each.mu]
    return math.fsum(known) / len(known) if known else configured


def observation(
    reading: Reading,
    consumers: Sequence[LiveConsumer],
    mu: float,
    phases: Phases,
) -> Observation:
    """What a policy is shown of the group. mu: of a consumer of which it is not known. A partition
    that nobody knows of yet is left out of a consumer's: the next reading has it."""
    there = {partition.id for partition in reading.partitions}
    return Observation(
        at=reading.at,
        partitions=reading.partitions,
        consumers=tuple(
            ConsumerSeen(
                each.id,
                each.mu or mu,
                tuple(p for p in each.partitions if p in there),
                each.state,
            )
            for each in consumers
        ),
        new_mu=mu,
        rebalancing=phases.rebalancing,
        rebalance_seconds=phases.rebalance,
        startup_seconds=phases.startup,
        stopped_seconds=phases.stopped,
        staying_seconds=reading.staying_seconds,
        served=reading.served,
        late=reading.late,
    )
