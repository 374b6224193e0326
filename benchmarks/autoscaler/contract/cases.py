"""Generated cases of the policy `contract`, from one seed each.

A case is played twice: the second time what comes is the same until a moment that is bad for what
the policy did the first time, and then the burst comes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.autoscaler.contract.admissible import (
    Stretch,
    Times,
    arrivals_by,
    random_stretches,
    struck_at,
)
from benchmarks.autoscaler.contract.pool import run_pool
from srtm.autoscaler.decision import Handover
from srtm.autoscaler.observation import ConsumerSeen, Observation, PartitionSeen
from srtm.autoscaler.policies import POLICIES, Settings
from srtm.autoscaler.simulator.arrivals import Arrivals
from srtm.autoscaler.simulator.run import simulate
from srtm.autoscaler.simulator.setting import Setting
from srtm.limits.ceiling import Ceiling
from srtm.limits.slo import SLO

CALM, SECONDS, AFTER = 8.0, 28.0, 12.0
"""Nothing comes at first, so that a group of one consumer becomes what the policy wants; nor after
SECONDS, while what waits is served."""
ROUNDING = 1e-6


@dataclass(frozen=True)
class Drawn:
    """One contract and its consumers. shares: of the partitions; times in seconds."""

    seed: int
    ceiling: Ceiling
    shares: tuple[float, ...]
    mu: float
    target: float
    startup: float
    rebalance: float
    stretches: list[Stretch]

    @property
    def seconds(self) -> int:
        return round(SECONDS + AFTER + self.target)

    def settings(self, pooled: bool) -> Settings:
        return Settings(
            SLO(0.99, self.target),
            self.mu,
            handover=Handover.DIRECT,
            contract=self.ceiling,
            shares=None if pooled else self.shares,
            pooled=pooled,
        )


def drawn(seed: int, partitions: int) -> Drawn:
    """A contract that can be kept, with targets from half a second to many start-ups."""
    random = np.random.default_rng(seed)
    shares = random.dirichlet(np.full(partitions, random.uniform(1, 20)))
    if random.random() < 0.4:
        shares = np.full(partitions, 1 / partitions)
    mu = float(random.uniform(5, 40))
    target = float(random.choice([0.6, 2.0, 6.0, 12.0]))
    # One partition alone stands for a pool, which shares everything out.
    most = 0.95 * mu / float(shares.max()) if partitions > 1 else 6.0 * mu
    rate = min(float(random.uniform(0.3, 6.0)) * mu, most)
    burst = max(1.0, float(random.uniform(0.05, 1.0)) * min(most * target, 3 * rate))
    return Drawn(
        seed,
        Ceiling(rate, burst),
        tuple(float(share) for share in shares),
        mu,
        target,
        startup=float(random.choice([0.5, 2.0, 5.0])),
        rebalance=float(random.choice([0.05, 0.4])),
        stretches=random_stretches(random, partitions, SECONDS, CALM),
    )


def bad_moment(random: np.random.Generator, changes: Sequence[float], case: Drawn) -> float:
    """Just after a decision, before what it launched joins, or before its hand-over ends."""
    moments = [1e-3, case.startup, case.startup + 0.9 * case.rebalance, 0.9 * case.rebalance, 0.999]
    begun = [at for at in changes if at < SECONDS]
    at = float(random.choice(begun)) if begun else float(random.uniform(0, SECONDS))
    return at + float(random.choice(moments))


@dataclass(frozen=True)
class Played:
    """events, late: how many; longest_part: the longest delay to the target; changes: when the
    policy changed the group.
    idle: consumers at the end of the calm, as few as the policy thinks are enough for what may
    come."""

    events: int
    late: int
    longest_part: float
    changes: tuple[float, ...]
    idle: int


def kept_for_ever(case: Drawn, pooled: bool) -> int:
    """Consumers that the policy has if none can be launched in time."""
    partitions = tuple(PartitionSeen(n, 0.0, 0.0) for n in range(len(case.shares)))
    owned = tuple(range(len(partitions)))
    consumer = ConsumerSeen("c0", case.mu, owned)
    never = Observation(0.0, partitions, (consumer,), case.mu, startup_seconds=1e6)
    decision = POLICIES["contract"](case.settings(pooled), None).decide(never)
    return len(decision.members) or 1


def play(case: Drawn, pooled: bool) -> tuple[Played, Played]:
    """What comes at random, and what is the same until a bad moment, from the calm's end on."""
    one = _pool if pooled else _group
    random = one(case, case.stretches)
    at = max(CALM, bad_moment(np.random.default_rng(case.seed), random.changes, case))
    return random, one(case, struck_at(case.stretches, at, SECONDS))


def _arrivals(case: Drawn, stretches: Sequence[Stretch], shares: Sequence[float]) -> Arrivals:
    quiet = [*stretches, Stretch(float(case.seconds), "idle")]
    return arrivals_by(quiet, case.ceiling, shares, case.seconds)


def _group(case: Drawn, stretches: Sequence[Stretch]) -> Played:
    setting = Setting(
        SLO(0.99, case.target),
        mu=case.mu,
        rebalance_seconds=case.rebalance,
        handover=Handover.DIRECT,
        startup_seconds=case.startup,
    )
    policy = POLICIES["contract"](case.settings(pooled=False), None)
    run = simulate(policy, _arrivals(case, stretches, case.shares), setting)
    idle = next(count for at, count in reversed(run.replicas) if at <= CALM)
    return _judged(case, run.latency, [at for at, _ in run.replicas], idle)


def _pool(case: Drawn, stretches: Sequence[Stretch]) -> Played:
    policy = POLICIES["contract"](case.settings(pooled=True), None)
    times = _arrivals(case, stretches, (1.0,)).times[0]
    run = run_pool(policy, times, case.seconds, case.mu, case.startup)
    idle = next(count for at, count in reversed(run.counts) if at <= CALM)
    return _judged(case, run.latency, run.changes, idle)


def _judged(case: Drawn, latency: Times, changes: Sequence[float], idle: int) -> Played:
    late = int((latency > case.target + ROUNDING).sum())
    longest = float(latency.max(initial=0.0)) / case.target
    return Played(len(latency), late, longest, tuple(at for at in changes if at > CALM), idle)
