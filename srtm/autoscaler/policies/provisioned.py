"""CLOSER section 5.1: overprovisioning (`peak`) and the optimal autoscaler (`optimal`).

Both know the trace. Its producers send each second's events as one batch, and both bins of the
paper's figures make sense only if such a batch is the lag of a partition: with rates alone, peak
provisioning of the first workload would be 3 consumers (350/s at 180/s) where Table 2 has 5.

- peak: "the number of event consumers resulting from Algorithm 2 when the partitions are filled at
  their maximum arrival rate", f_up, never changed.
- optimal: "when the rate of event arrivals reaches the latency-violating number of events (mu *
  w_sla)", instantaneously. For a whole topic, arrivals / (mu * w_sla) rounded up come to 22.8
  replica-minutes for the first workload and the packing of its 5 partitions to 28.8; with f_up, as
  the compared Algorithm 2 has it, to 31.9 and 393 for the second (Tables 2 and 3: 32.7 and 414.1,
  6 ups and 6 downs as here). So: packed by partition, f_up.
Both assign by the packing alone and look at no observation but for who is there.
"""

import abc
import math
from collections.abc import Sequence
from dataclasses import replace

from srtm.autoscaler.decision import Decision
from srtm.autoscaler.observation import Observation
from srtm.autoscaler.packing import Bins, Item, least_loaded
from srtm.autoscaler.policies.group import (
    bin_of,
    bins_of,
    consumers,
    items_of,
    members_of,
    wanted,
)
from srtm.autoscaler.policies.paper import PaperPolicy
from srtm.autoscaler.policies.settings import Settings

BATCH_SECONDS = 1.0
"""Arrivals that wait together."""


class Trace:
    """arrivals: events/s of the topic for each second; shares: of each partition, in the order of
    their ids, summing to 1. Raises ValueError where they are not."""

    __slots__ = ("arrivals", "shares")

    def __init__(self, arrivals: Sequence[float], shares: Sequence[float]) -> None:
        if not arrivals or not all(0 <= rate < math.inf for rate in arrivals):
            raise ValueError("the trace must have a rate of 0 or more, and finite, for each second")
        if not shares or min(shares) < 0 or abs(math.fsum(shares) - 1) > 0.005:
            raise ValueError(f"shares {list(shares)} must be 0 or more and sum to 1")
        self.arrivals = tuple(arrivals)
        self.shares = tuple(shares)

    def rate_at(self, at: float) -> float:
        """events/s in the second of `at`; the last one's after the end, the first's before."""
        return self.arrivals[max(0, min(int(at), len(self.arrivals) - 1))]


def replicas_per_second(trace: Trace, settings: Settings) -> list[int]:
    """How many consumers `optimal` has in each second of the trace, at least 1. A simulation of it
    takes no time to launch or to rebalance."""
    bins = Bins(bin_of(None, settings.mu, settings.f_up, settings.w_sla))
    return [least_loaded(_batch(rate, trace.shares), bins).count for rate in trace.arrivals]


class Provisioned(PaperPolicy):
    """A packing of the trace's rates, whatever is observed."""

    def __init__(self, name: str, settings: Settings, trace: Trace) -> None:
        super().__init__(name, settings)
        self.trace = trace

    @abc.abstractmethod
    def _rate(self, at: float) -> float:
        """events/s of the topic to provision for."""

    def _decide(self, seen: Observation) -> Decision:
        ordered = sorted(partition.id for partition in seen.partitions)
        rate, shares = self._rate(seen.at), dict(zip(ordered, self.trace.shares, strict=False))
        notes = [f"partition {p} is not in the trace: no load" for p in ordered if p not in shares]
        items = [
            replace(item, rate=batch, lag=batch * BATCH_SECONDS)
            for item in items_of(seen)
            for batch in [rate * shares.get(item.id, 0.0)]
        ]
        packing = least_loaded(items, bins_of(seen, self.settings.f_up, self.settings.w_sla))
        notes += [
            f"partition {p} exceeds a consumer: it gets one of its own" for p in packing.oversized
        ]
        reason = f"{rate:g}/s of the trace in {consumers(packing.count)}"
        return wanted(seen, members_of(packing), reason, notes)


class Peak(Provisioned):
    """Provisions for the trace's highest rate, from the first observation on."""

    def _rate(self, at: float) -> float:
        return max(self.trace.arrivals)


class Optimal(Provisioned):
    """Provisions for the trace's rate in the second of the observation."""

    def _rate(self, at: float) -> float:
        return self.trace.rate_at(at)


def _batch(rate: float, shares: Sequence[float]) -> list[Item]:
    return [
        Item(number, rate * share, rate * share * BATCH_SECONDS)
        for number, share in enumerate(shares)
    ]
