"""What is compared: workloads, and groups that are scaled, or not."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from benchmarks.autoscaler.live.troubles import Trouble
from srtm.autoscaler.decision import Action, Decision, Handover, Member
from srtm.autoscaler.observation import Observation
from srtm.autoscaler.simulator.arrivals import (
    ArrivalModel,
    Arrivals,
    arrivals_by_partition,
    arrivals_of,
    even_shares,
)
from srtm.autoscaler.simulator.workload import iccbdc_ramp, web_like
from srtm.limits.slo import SLO

MOST = 5
"""consumers: with the broker, the load and the controller it is what two cores carry"""
_LOAD = 0.8
"""of a consumer in a fixed group, at the peak"""


@dataclass(frozen=True, slots=True)
class Workload:
    """mu: events/s of a consumer; arrivals: by the seed and the compression of time"""

    name: str
    mu: float
    slo: SLO
    arrivals: Callable[[int, int], Arrivals]

    @property
    def share_batch(self) -> int:
        """Events in hand at most in a share group, where others could take them: a tenth of what is
        served within the target."""
        return max(1, int(self.mu * self.slo.target_seconds / 10))

    def fixed(self, arrivals: Arrivals) -> int:
        """Consumers that the peak needs."""
        peak = float(arrivals.per_second().sum(axis=0).max())
        return min(MOST, len(arrivals.times), math.ceil(peak / (_LOAD * self.mu)))


def _ramp(seed: int, compress: int) -> Arrivals:
    rows = [row[::compress] for row in iccbdc_ramp()]
    return arrivals_by_partition(rows, ArrivalModel.POISSON, seed)


def _crowds(seed: int, compress: int) -> Arrivals:
    rates = web_like(210, 180.0, seed)[::compress]
    return arrivals_of(rates, even_shares(6), ArrivalModel.POISSON, seed)


RAMP = "ramp (ICCBDC 4.1)"
WORKLOADS = (
    Workload(RAMP, 95.0, SLO(0.99, 1.0), _ramp),
    Workload("crowds (Li-Ku)", 58.0, SLO(0.99, 0.5), _crowds),
)


@dataclass(frozen=True, slots=True)
class Arm:
    """policy: "" where the number of consumers is fixed; handover: `share` for a share group, in
    which nothing is handed over; plain: consumers without a controller; trouble: what happens to
    consumers meanwhile; only: the workload that it is played under, "" for all"""

    name: str
    policy: str
    handover: Literal["direct", "assignor", "kip-848", "share"]
    simulated: Handover
    plain: bool = False
    trouble: Trouble = ""
    only: str = ""

    @property
    def shares(self) -> bool:
        """Is it a share group?"""
        return self.handover == "share"


TROUBLES: tuple[Trouble, ...] = ("kill", "freeze")
LOAD_AWARE, KAFKAS_OWN = "iccbdc, assignor", "iccbdc, kip-848"
"""ICCBDC 4.1: groups of the same size, of which one has its partitions by load."""
ARMS = (
    Arm("srtm, direct", "srtm", "direct", Handover.DIRECT),
    Arm("srtm, share group", "srtm", "share", Handover.DIRECT),
    *(
        Arm(
            f"srtm, share group, {trouble}s", "srtm", "share", Handover.DIRECT, False, trouble, RAMP
        )
        for trouble in TROUBLES
    ),
    Arm(LOAD_AWARE, "iccbdc", "assignor", Handover.EAGER, only=RAMP),
    Arm(KAFKAS_OWN, "iccbdc", "kip-848", Handover.COOPERATIVE, only=RAMP),
    Arm("CLOSER 2, assignor", "closer2", "assignor", Handover.EAGER),
    Arm("linear, kip-848", "linear", "kip-848", Handover.COOPERATIVE),
    Arm("lag threshold (KEDA), kip-848", "keda", "kip-848", Handover.COOPERATIVE),
    Arm("fixed, kip-848", "", "kip-848", Handover.COOPERATIVE),
    Arm("fixed, cooperative-sticky", "", "kip-848", Handover.COOPERATIVE, plain=True),
)


class Fixed:
    """A group of `count`, for the simulator: it assigns once."""

    name = "fixed"

    def __init__(self, count: int) -> None:
        self._count = count
        self._is_assigned = False

    def decide(self, seen: Observation) -> Decision:
        if self._is_assigned:
            return Decision(Action.NONE)
        self._is_assigned = True
        ids: list[str | None] = [each.id for each in seen.consumers]
        ids += [None] * (self._count - len(ids))
        partitions = np.array([each.id for each in seen.partitions])
        parts = [tuple(map(int, partitions[n :: len(ids)])) for n in range(len(ids))]
        members = tuple(Member(id_, part) for id_, part in zip(ids, parts, strict=True))
        return Decision(Action.REASSIGN, members, "fixed")
