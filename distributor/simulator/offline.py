"""Placements of one topic beside each other, each simulated with the same messages."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distributor.model import Broker, Placement, Publisher
from distributor.placement.policies import POLICIES
from distributor.simulator.run import Seen, SimulatedTopic, placed, simulate
from distributor.simulator.service import Service, fit
from distributor.simulator.traffic import Sending, Traffic, traffic
from srtm.limits.contract import Contract
from srtm.limits.queueing import Floats
from srtm.limits.slo import SLO
from srtm.text.errors import UsageError

MOST_MESSAGES = 20_000_000
"""of a topic and all that is allocated: 2 GB of arrays"""
WARMUP_PART = 0.1
"""The part of the time that is left out at the start: buckets are full and brokers idle at
first."""


@dataclass(frozen=True, slots=True)
class Simulated:
    """A policy's placement, and what its messages see of it. names: of the brokers, by number."""

    placement: Placement
    slo: SLO
    names: Sequence[str]
    seen: Seen

    @property
    def met(self) -> bool:
        """Is the SLO met on every broker, with everybody placed?"""
        return not self.placement.unplaced and self.slo.met_by(self.seen.worst(self.slo.percentile))

    def document(self) -> dict[str, Any]:
        """Latencies in seconds; null where nothing came."""
        return {
            "policy": self.placement.policy,
            "met": self.met,
            "unplaced": len(self.placement.unplaced),
            **self._figures(self.seen),
            "brokers": [
                {
                    "name": each.name,
                    "publishers": each.publishers,
                    "rate": each.rate,
                    "r": each.r,
                    "b": each.b,
                    **self._figures(self.seen.of(self.names.index(each.name))),
                }
                for each in self.placement.brokers
            ],
        }

    def _figures(self, seen: Seen) -> dict[str, Any]:
        if not seen.latencies.size:
            return {"messages": 0, "late_share": None, "latency": None, "token_wait": None}
        return {
            "messages": seen.latencies.size,
            "late_share": seen.late_share(self.slo),
            "latency": seen.latency(self.slo.percentile),
            "token_wait": seen.token_wait(self.slo.percentile),
        }


def simulated(
    policies: Sequence[str],
    contract: Contract,
    brokers: Sequence[Broker],
    publishers: Sequence[Publisher],
    how: Sending,
    seconds: float,
    seed: int,
    base: float = 0.0,
) -> list[Simulated]:
    """A broker is one that holds its `capacity` of such batches within the topic's SLO; what is
    `allocated` there comes as Poisson messages. base: seconds that a message takes at an idle one.
    Raises UsageError for what cannot be simulated."""
    slo = contract.slo
    if slo is None:
        raise UsageError(
            f"topic {contract.topic} has no slo, so nothing says what a broker's capacity means: "
            "give it one, such as 0.99@5ms"
        )
    messages = seconds * sum([each.rate for each in publishers], sum(b.allocated for b in brokers))
    if messages > MOST_MESSAGES:
        raise UsageError(
            f"{messages:,.0f} messages are more than are simulated at once ({MOST_MESSAGES:,}): "
            f"give a --duration of at most {seconds * MOST_MESSAGES / messages:.3g}s"
        )
    services = [_service(each, slo, how.batch, base) for each in brokers]
    names = [each.name for each in brokers]
    sent = traffic(publishers, how, seconds, seed)
    others = [
        SimulatedTopic(_poisson(each.allocated, seconds, (seed, at)), np.array([at]), {})
        for at, each in enumerate(brokers)
        if each.allocated
    ]
    found = []
    for policy in policies:
        placement = POLICIES[policy](contract, brokers, publishers)
        topic = placed(placement, publishers, names, sent)
        seen = simulate([topic, *others], services)[0].after(WARMUP_PART * seconds)
        found.append(Simulated(placement, slo, names, seen))
    return found


def _service(broker: Broker, slo: SLO, batch: int, base: float) -> Service:
    if not broker.capacity:
        raise UsageError(
            f"broker {broker.name} has capacity 0: measure it with srtm broker capacity, or leave "
            "it out"
        )
    try:
        return fit({batch: broker.capacity}, slo, base)
    except ValueError as error:
        raise UsageError(f"--base: {error}") from None


def _poisson(rate: float, seconds: float, seed: tuple[int, int]) -> Traffic:
    random = np.random.default_rng(seed)
    count = random.poisson(rate * seconds)
    times: Floats = np.sort(random.random(count) * seconds)
    return Traffic(times, np.zeros(count, dtype=np.int64), 1)
