"""What SLO each part of a journey should have, so that the whole is kept and costs least. Pure.

Broker and bridge stay as they are measured. The consumers' options are SLOs of their group: for
each, the policy `srtm` is run by the simulator on the arrivals of the last minutes, which tells
what the group would cost and how old its messages would be. A real consumer also waits for its
batch, for nsqd and for the network, which the simulator does not know; so every simulated latency
is raised by what the measured median is above the simulated one.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from srtm.autoscaler.comparison import Experiment, run_policy
from srtm.autoscaler.decision import Handover
from srtm.autoscaler.simulator.arrivals import ArrivalModel
from srtm.autoscaler.simulator.setting import Setting
from srtm.journey.causes import Leg
from srtm.journey.frontier import frontier_of
from srtm.journey.split import Impossible, Option, Split, split
from srtm.journey.summary import CONFIDENCE
from srtm.limits.bins import Bins, added, bins_of, nearest_rank, seconds_of
from srtm.limits.slo import SLO

LEAST_SECONDS = 60
"""of arrivals; with fewer a policy has hardly begun to forecast"""
_TARGETS = (0.15, 0.3, 0.45, 0.6, 0.75, 0.9)
_LATE = (0.3, 0.8)
"""parts of the journey's target and late share that the consumers' options have"""
_NEVER_SECONDS = 3600.0
"""the latency of an event that the simulator never serves"""


@dataclass(frozen=True, slots=True)
class Group:
    """What is known of the consumers. mu: events/s of one; shares: of the partitions; startup: from
    a launch to work, seconds"""

    mu: float
    shares: Sequence[float]
    handover: Handover
    rebalance_seconds: float
    startup_seconds: float


@dataclass(frozen=True, slots=True)
class Simulated:
    """An SLO of the group, what it would cost (consumers on average), and what would come of it."""

    slo: SLO
    consumers: float
    latency: Bins


@dataclass(frozen=True, slots=True)
class JourneyPlan:
    """slos:  what each part should have
    found: how the journey is kept then, or why it cannot be
    equal: the consumers that an equal split would take; None where that does not keep the SLO
    """

    slo: SLO
    found: Split | Impossible
    slos: Mapping[Leg, SLO]
    consumers: float | None
    equal: float | None


def planned(
    slo: SLO,
    legs: Mapping[Leg, Bins],
    rates: Sequence[float],
    group: Group,
    progress: Callable[[float], None] = lambda done: None,
) -> JourneyPlan:
    """legs: what was measured; rates: messages/s of the topic, one for each second, at least
    LEAST_SECONDS; progress: is told which part of the work is done"""
    fixed = {
        str(leg): [Option("as it is", 0.0, frontier_of(bins, CONFIDENCE))]
        for leg, bins in legs.items()
        if leg is not Leg.CONSUMER
    }
    alone = split(fixed, slo)
    if isinstance(alone, Impossible):
        return JourneyPlan(slo, alone, {}, None, None)
    share = slo.allowed_late_share
    asked = [
        _slo(share * late, slo.target_seconds * part, slo.window_seconds)
        for late in _LATE
        for part in _TARGETS
    ]
    even = _slo(share / len(legs), slo.target_seconds / len(legs), slo.window_seconds)
    simulated = []
    for number, each in enumerate((*asked, even)):
        progress(number / (len(asked) + 1))
        simulated.append(_simulated(each, rates, group))
    base = _base(legs[Leg.CONSUMER], simulated)
    *others, equal = [_raised(each, base) for each in simulated]
    options = {str(each.slo): each for each in others}
    found = split({**fixed, str(Leg.CONSUMER): [_option(each) for each in others]}, slo)
    kept = split({**fixed, str(Leg.CONSUMER): [_option(equal)]}, slo)
    is_even = isinstance(kept, Split) and _keeps(equal.latency, even)
    return JourneyPlan(
        slo,
        found,
        _slos(found, options) if isinstance(found, Split) else {},
        found.cost if isinstance(found, Split) else None,
        equal.consumers if is_even else None,
    )


def _simulated(slo: SLO, rates: Sequence[float], group: Group) -> Simulated:
    setting = Setting(
        slo,
        mu=group.mu,
        rebalance_seconds=group.rebalance_seconds,
        handover=group.handover,
        startup_seconds=group.startup_seconds,
        initial=max(1, math.ceil(float(np.mean(rates)) / group.mu)),
    )
    experiment = Experiment(rates, group.shares, ArrivalModel.POISSON, setting)
    run = run_policy("srtm", experiment, experiment.arrivals()).run
    latency = np.minimum(run.latency, _NEVER_SECONDS) * 1e9
    bins = bins_of(latency, np.ones(len(latency), dtype=np.int64))
    return Simulated(slo, run.replica_minutes * 60 / len(rates), bins)


def _base(measured: Bins, simulated: Sequence[Simulated]) -> float:
    """Seconds by which what is measured is above what the simulator knows."""
    medians = [nearest_rank(each.latency, 0.5) for each in simulated]
    return max(0.0, nearest_rank(measured, 0.5) - min(medians))


def _raised(one: Simulated, seconds: float) -> Simulated:
    keys = list(one.latency)
    raised = np.array([seconds_of(key) + seconds for key in keys])
    counts = np.array([one.latency[key] for key in keys], dtype=np.float64)
    return replace(one, latency=added(raised, counts))


def _option(one: Simulated) -> Option:
    return Option(str(one.slo), one.consumers, frontier_of(one.latency, CONFIDENCE))


def _keeps(bins: Bins, slo: SLO) -> bool:
    return nearest_rank(bins, slo.percentile) <= slo.target_seconds


def _slos(found: Split, options: Mapping[str, Simulated]) -> dict[Leg, SLO]:
    """The group gets the SLO that was simulated, the others what the split leaves to them."""
    slos: dict[Leg, SLO] = {}
    for name, part in found.parts.items():
        leg = Leg(name)
        if leg is Leg.CONSUMER:
            slos[leg] = options[found.options[name].name].slo
        else:
            slos[leg] = _slo(part.late_share, part.seconds, None)
    return slos


def _slo(late_share: float, seconds: float, window_seconds: float | None) -> SLO:
    """An SLO in round numbers that allows no more than this."""
    percentile = math.ceil((1 - late_share) * 1e5 - 1e-6) / 1e5
    target = math.floor(seconds * 1e4 + 1e-6) / 1e4
    return SLO(min(percentile, 0.99999), max(target, 1e-4), window_seconds)
