"""What SLO each part of a journey should have, so that the whole is kept and costs least. Pure.

Broker and bridge stay as they are measured. The consumers' options are SLOs of their group: for
each, the group's policy is run by the simulator on the arrivals of the last minutes, which tells
what the group would cost and how old its messages would be. A real consumer also waits for its
batch, for nsqd and for the network, which the simulator does not know; so every simulated latency
is raised by what the measured median is above the simulated one of the SLO that was kept meanwhile.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from srtm.autoscaler.decision import Handover, Policy
from srtm.autoscaler.live.bounds import Within
from srtm.autoscaler.live.choice import HANDOVERS, make_policy, make_pool_policy
from srtm.autoscaler.pool.simulated import simulate_pool
from srtm.autoscaler.simulator.arrivals import ArrivalModel, arrivals_of
from srtm.autoscaler.simulator.run import simulate
from srtm.autoscaler.simulator.setting import Setting
from srtm.consumer.file import GroupFile
from srtm.consumer.pool_file import PoolFile
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
_MORE = 1.01
"""times the consumers of an SLO that did not do, at least, that a stricter one has to take"""
_NEVER_SECONDS = 3600.0
"""the latency of an event that the simulator never serves"""


@dataclass(frozen=True, slots=True)
class Group:
    """What is known of the consumers. file: its policy, its bounds and its contract are used; mu:
    messages/s of one; shares: of a group's partitions; startup: from a launch to work, seconds"""

    file: GroupFile | PoolFile
    mu: float
    shares: Sequence[float]
    rebalance_seconds: float
    startup_seconds: float

    @property
    def handover(self) -> Handover:
        file = self.file
        return HANDOVERS[file.group.handover] if isinstance(file, GroupFile) else Handover.DIRECT

    def policy(self, slo: SLO) -> Policy:
        """As the group's controller makes it for this SLO, within `min` and `max`."""
        group = self.file.group
        if isinstance(self.file, GroupFile):
            made = make_policy(group.policy, self.file.group, self.mu, slo)
        else:
            made = make_pool_policy(group.policy, group, self.mu, slo)
        return Within(made, group.min, group.max)


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
    now:   those that the group's SLO of now takes; None where the SLO is not kept with it
    """

    slo: SLO
    found: Split | Impossible
    slos: Mapping[Leg, SLO]
    consumers: float | None
    equal: float | None
    now: float | None = None


def planned(
    slo: SLO,
    legs: Mapping[Leg, Bins],
    rates: Sequence[float],
    group: Group,
    now: SLO | None = None,
    kept: SLO | None = None,
    weights: Mapping[Leg, int] | None = None,
    stricter_than: SLO | None = None,
    progress: Callable[[float], None] = lambda done: None,
) -> JourneyPlan:
    """legs: what was measured; rates: messages/s of the topic, one for each second, at least
    LEAST_SECONDS; now: the group's SLO of now, which is looked at too; kept: the one that it kept
    while it was measured; weights: messages for which one of a leg's stands at most, where not all
    are measured; stricter_than: an SLO of the group that is known not to do: only stricter ones
    that take more consumers are options, or itself where there is none; progress: is told which
    part of the work is done"""
    fixed = {}
    for leg, bins in legs.items():
        if leg is not Leg.CONSUMER:
            seen = frontier_of(bins, CONFIDENCE, (weights or {}).get(leg, 1))
            fixed[str(leg)] = [Option("as it is", 0.0, seen)]
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
    simulated = {}
    also = [each for each in (now, kept, stricter_than) if each is not None]
    looked_at = {str(each): each for each in (*asked, even, *also)}
    for number, each in enumerate(looked_at.values()):
        progress(number / len(looked_at))
        simulated[str(each)] = _simulated(each, rates, group)
    base = _base(legs[Leg.CONSUMER], [simulated[str(kept)]] if kept else list(simulated.values()))
    options = {name: _raised(each, base) for name, each in simulated.items()}

    def keeping(*slos: SLO) -> Split | Impossible:
        ways = [_option(options[str(each)]) for each in slos]
        return split({**fixed, str(Leg.CONSUMER): ways}, slo)

    ways = list(looked_at.values())
    if stricter_than is not None:
        least = _MORE * simulated[str(stricter_than)].consumers
        stricter = [each for each in ways if _is_stricter(each, stricter_than)]
        more = [each for each in stricter if simulated[str(each)].consumers >= least]
        ways = more or [stricter_than]
    found = keeping(*ways)
    equal = options[str(even)]
    is_even = isinstance(keeping(even), Split) and _keeps(equal.latency, even)
    is_kept = now is not None and isinstance(keeping(now), Split)
    return JourneyPlan(
        slo,
        found,
        _slos(found, options) if isinstance(found, Split) else {},
        found.cost if isinstance(found, Split) else None,
        equal.consumers if is_even else None,
        options[str(now)].consumers if is_kept else None,
    )


def _simulated(slo: SLO, rates: Sequence[float], group: Group) -> Simulated:
    initial = math.ceil(float(np.mean(rates)) / group.mu)
    setting = Setting(
        slo,
        mu=group.mu,
        rebalance_seconds=group.rebalance_seconds,
        handover=group.handover,
        startup_seconds=group.startup_seconds,
        decision_seconds=group.file.group.interval,
        initial=min(max(initial, group.file.group.min), group.file.group.max),
    )
    is_pool = isinstance(group.file, PoolFile)
    shares = [1.0] if is_pool else group.shares
    arrivals = arrivals_of(rates, shares, ArrivalModel.POISSON, setting.seed)
    if is_pool:
        most = group.file.group.max
        run = simulate_pool(group.policy(slo), arrivals.times[0], len(rates), setting, most)
    else:
        run = simulate(group.policy(slo), arrivals, setting)
    latency = np.minimum(run.latency, _NEVER_SECONDS) * 1e9
    bins = bins_of(latency, np.ones(len(latency), dtype=np.int64))
    return Simulated(slo, run.replica_minutes * 60 / len(rates), bins)


def _base(measured: Bins, simulated: Sequence[Simulated]) -> float:
    """Seconds by which what is measured is above what the simulator knows of it. simulated: with
    the SLO that was kept, or with all that it may have been"""
    medians = [nearest_rank(each.latency, 0.5) for each in simulated]
    return max(0.0, nearest_rank(measured, 0.5) - min(medians))


def _raised(one: Simulated, seconds: float) -> Simulated:
    keys = list(one.latency)
    raised = np.array([seconds_of(key) + seconds for key in keys])
    counts = np.array([one.latency[key] for key in keys], dtype=np.float64)
    return replace(one, latency=added(raised, counts))


def _is_stricter(slo: SLO, than: SLO) -> bool:
    late, seconds = than.allowed_late_share, than.target_seconds
    no_looser = slo.allowed_late_share <= late + 1e-9 and slo.target_seconds <= seconds
    return no_looser and (slo.allowed_late_share, slo.target_seconds) != (late, seconds)


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
    digits = 1e5 if late_share > 1e-5 else 1e9
    percentile = math.ceil((1 - late_share) * digits - 1e-6) / digits
    target = math.floor(seconds * 1e4 + 1e-6) / 1e4
    return SLO(min(percentile, 1 - 1e-9), max(target, 1e-4), window_seconds)
