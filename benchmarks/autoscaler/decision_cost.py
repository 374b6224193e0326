"""What one decision of the policy `srtm` costs, by the number of partitions.

A group that follows tides, simulated: each decision's CPU seconds are measured. CPU seconds are
judged, not the clock: a decision is one thread that waits for nothing.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np

from benchmarks.harness.bars import judge
from benchmarks.harness.report import Picture, Report, tabulate
from benchmarks.harness.session import Session
from srtm.autoscaler.decision import Decision, Handover
from srtm.autoscaler.observation import Observation
from srtm.autoscaler.policies.srtm import Srtm
from srtm.autoscaler.simulator.arrivals import ArrivalModel, arrivals_of, even_shares
from srtm.autoscaler.simulator.run import simulate
from srtm.autoscaler.simulator.setting import Setting
from srtm.limits.slo import SLO

MU = 200.0
RATE_PER_PARTITION = 50.0  # events/s: four partitions fill a consumer
PERIOD_SECONDS = 140.0
JUDGED, MOST_SECONDS = 100, 0.05
"""Partitions, and CPU seconds of a decision there."""
SIZES, QUICK_SIZES = (10, 30, 100, 300), (10, 100)
SECONDS, QUICK_SECONDS = 360, 60
_ROUNDS, _QUICK_ROUNDS = 3, 1


class Timed(Srtm):
    """cpu: seconds of each decision."""

    def __init__(self, slo: SLO) -> None:
        super().__init__(slo, handovers=(Handover.DIRECT,))
        self.cpu: list[float] = []

    def decide(self, seen: Observation) -> Decision:
        begun = time.process_time()
        decision = super().decide(seen)
        self.cpu.append(time.process_time() - begun)
        return decision


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds of the decisions of each round, of a group of so many partitions."""

    partitions: int
    rounds: tuple[tuple[float, ...], ...]

    @property
    def means(self) -> list[float]:
        return [fmean(each) for each in self.rounds]

    @property
    def decisions(self) -> list[float]:
        return [seconds for each in self.rounds for seconds in each]


def decisions(partitions: int, seconds: int, seed: int) -> tuple[float, ...]:
    """CPU seconds of each decision over a workload of so many seconds."""
    setting = Setting(
        SLO(0.99, 0.5),
        mu=MU,
        handover=Handover.DIRECT,
        initial=max(1, partitions // 4),
        seed=seed,
    )
    wave = 1 + 0.6 * np.sin(2 * np.pi * np.arange(seconds) / PERIOD_SECONDS)
    rates = (RATE_PER_PARTITION * partitions * wave).tolist()
    policy = Timed(setting.slo)
    arrivals = arrivals_of(rates, even_shares(partitions), ArrivalModel.POISSON, seed)
    simulate(policy, arrivals, setting)
    return tuple(policy.cpu)


def run(session: Session) -> Report:
    sizes = QUICK_SIZES if session.quick else SIZES
    seconds = QUICK_SECONDS if session.quick else SECONDS
    rounds = range(1, 1 + (_QUICK_ROUNDS if session.quick else _ROUNDS))
    session.plan(len(sizes) * len(rounds))
    costs = []
    for partitions in sizes:
        made = []
        for seed in rounds:
            session.step(f"{partitions} partitions")
            made.append(decisions(partitions, seconds, seed))
        costs.append(Cost(partitions, tuple(made)))
    judged = next(cost for cost in costs if cost.partitions == JUDGED)
    shown = tabulate(
        "CPU of a decision, ms",
        costs,
        ("partitions", lambda cost: cost.partitions),
        ("mean", lambda cost: 1e3 * median(cost.means)),
        ("p50", lambda cost: 1e3 * float(np.quantile(cost.decisions, 0.5))),
        ("p95", lambda cost: 1e3 * float(np.quantile(cost.decisions, 0.95))),
        ("longest", lambda cost: 1e3 * max(cost.decisions)),
    )
    return Report(
        settings={"seconds": seconds, "rounds": len(rounds), "mu": MU},
        figures={str(cost.partitions): cost.means for cost in costs},
        bars=[
            judge(
                f"mean CPU seconds of a decision at {JUDGED} partitions",
                judged.means,
                at_most=MOST_SECONDS,
                quick=session.quick,
            )
        ],
        tables=[shown],
        draw=lambda figure: draw(figure, costs),
    )


def draw(figure: Picture, costs: Sequence[Cost]) -> None:
    """Mean CPU of a decision by the number of partitions."""
    axes = figure.add_subplot()
    sizes = [cost.partitions for cost in costs]
    axes.loglog(sizes, [1e3 * median(cost.means) for cost in costs], marker="o", label="mean")
    p95 = [1e3 * float(np.quantile(cost.decisions, 0.95)) for cost in costs]
    axes.loglog(sizes, p95, marker="o", linestyle="--", label="p95")
    axes.axhline(1e3 * MOST_SECONDS, color="grey", linewidth=1)
    axes.annotate(f"bar at {JUDGED} partitions", (sizes[0], 1e3 * MOST_SECONDS), va="bottom")
    axes.set_xlabel("partitions")
    axes.set_ylabel("CPU of a decision, ms")
    axes.legend()
