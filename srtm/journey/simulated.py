"""What a group of consumers would make of an SLO, by the simulator. Pure.

The group's policy runs on the arrivals of the last minutes. A real policy has seen the traffic
before, so a part of the arrivals comes twice and counts once.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
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
from srtm.consumer.scaled_file import ScaledFile
from srtm.limits.bins import Bins, above, added, bins_of, nearest_rank, seconds_of
from srtm.limits.slo import SLO

_WARM_SECONDS = 120
"""of arrivals before those that count, at most: as long as the policies look back for what comes"""
_NEVER_SECONDS = 3600.0
"""the latency of an event that the simulator never serves"""


@dataclass(frozen=True, slots=True)
class Group:
    """What is known of the consumers. file: its policy, its bounds and its contract are used; mu:
    messages/s of one; shares: of a group's partitions; startup: from a launch to work, seconds"""

    file: ScaledFile
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


def simulated(slo: SLO, rates: Sequence[float], group: Group) -> Simulated:
    """rates: messages/s of the topic, one for each second"""
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
    warm = rates[-_WARM_SECONDS:]
    seconds = len(warm) + len(rates)
    is_pool = not isinstance(group.file, GroupFile)
    shares = [1.0] if is_pool else group.shares
    arrivals = arrivals_of([*warm, *rates], shares, ArrivalModel.POISSON, setting.seed)
    if is_pool:
        most = group.file.group.max
        run = simulate_pool(group.policy(slo), arrivals.times[0], seconds, setting, most)
    else:
        run = simulate(group.policy(slo), arrivals, setting)
    counts = run.latency[run.arrived >= len(warm)]
    latency = np.minimum(counts, _NEVER_SECONDS) * 1e9
    bins = bins_of(latency, np.ones(len(latency), dtype=np.int64))
    return Simulated(slo, run.mean_replicas(len(warm)), bins)


def base_seconds(measured: Bins, runs: Sequence[Simulated]) -> float:
    """Seconds by which what is measured is above what the simulator knows of it. runs: with the
    SLO that was kept, or with all that it may have been"""
    medians = [nearest_rank(each.latency, 0.5) for each in runs]
    return max(0.0, nearest_rank(measured, 0.5) - min(medians))


def sobered(one: Simulated, runs: Iterable[Simulated]) -> Simulated:
    """Nobody is quicker with a looser SLO; where a run was, that was luck. So a latency is exceeded
    as often as in the worst of this run and of those with a stricter SLO. All runs have the same
    arrivals."""
    worse = [one.latency, *(each.latency for each in runs if is_stricter(each.slo, one.slo))]
    keys = sorted(set().union(*worse))
    within = np.min([np.cumsum([bins.get(key, 0) for key in keys]) for bins in worse], axis=0)
    counts = np.diff(within, prepend=0).tolist()
    return replace(one, latency=Counter(dict(zip(keys, counts, strict=True))))


def raised(one: Simulated, seconds: float) -> Simulated:
    """Each latency longer by `seconds`."""
    keys = list(one.latency)
    longer = np.array([seconds_of(key) + seconds for key in keys])
    counts = np.array([one.latency[key] for key in keys], dtype=np.float64)
    return replace(one, latency=added(longer, counts))


def keeps_its_own(one: Simulated, times: float = 1.0) -> bool:
    """Are no more messages late than `times` what the SLO allows that the group is given? One below
    what each message waits for anyway is kept by no number of consumers, and its controller would
    take more and more of them."""
    late = above(one.latency, one.slo.target_seconds)
    return late <= times * one.slo.allowed_late_share * one.latency.total()


def is_stricter(slo: SLO, than: SLO) -> bool:
    """Does it ask for more in one of target and late share, and for no less in the other?"""
    late, seconds = than.allowed_late_share, than.target_seconds
    no_looser = slo.allowed_late_share <= late + 1e-9 and slo.target_seconds <= seconds
    return no_looser and (slo.allowed_late_share, slo.target_seconds) != (late, seconds)
