"""A scenario in virtual time, at any scale, each design on the fewest brokers with which it holds."""

from dataclasses import dataclass
from statistics import fmean

import numpy as np

from benchmarks.experiments.designs import place
from benchmarks.experiments.point import CURVE, Point
from benchmarks.experiments.scale import PAPER_ESTIMATES, Scale
from benchmarks.experiments.scenario import BROKERS, INITIAL_BATCH, SPARE, Scenario, initial_traffic
from distributor.model import Placement
from distributor.simulator.run import Seen, Topic, placed, simulate
from distributor.simulator.traffic import Traffic

WARMUP_PART = 0.1
_PROFILE_SEED = 10_000
_MOST_SECONDS = 400.0  # at SRTM's scale, however few messages there are in it


@dataclass(frozen=True, slots=True)
class Effort:
    """messages: of each repetition, about."""

    repetitions: int
    messages: int


FULL, FULL_GROUPED = Effort(10, 200_000), Effort(10, 600_000)
QUICK, QUICK_GROUPED = Effort(2, 30_000), Effort(2, 100_000)
"""Publishers that send together make few bursts of many messages."""


class Simulated:
    """One scenario, its repetitions' traffic made once for all designs."""

    def __init__(
        self, scenario: Scenario, scale: Scale, effort: Effort, spare: float = SPARE
    ) -> None:
        self._scenario, self._scale, self._effort = scenario, scale, effort
        self._seconds = scale.seconds(min(effort.messages / scenario.offered, _MOST_SECONDS))
        self._publishers = scenario.everybody(scale)
        self._brokers = scenario.brokers(scale, estimate(scenario))
        profile = scenario.traffic(scale, self._seconds, _PROFILE_SEED)
        self.contract = scenario.contract(scale, profile, spare)
        self._sent: dict[int, Traffic] = {}

    def point(self, design: str, count: int | None = None) -> Point:
        """count: of brokers; None: the fewest with which the mean meets the target, and where none
        does the best (SRTM section 6)."""
        if count is not None or design == "lb":
            return self._measured(design, count or BROKERS)
        best, target = None, self._scale.slo.target_seconds
        for tried in range(1, BROKERS + 1):
            if best is not None and best.brokers >= tried:
                continue  # that many were needed by rate alone
            found = self._measured(design, tried, give_up=2 * target)
            if found.met:
                return found
            if best is None or found.mean < best.mean:
                best = found
        assert best is not None
        return self._measured(design, best.brokers)

    def _measured(self, design: str, count: int, give_up: float = float("inf")) -> Point:
        """give_up: a sum of p99s that no mean can make good ends the repetitions."""
        placement = place(design, self.contract, self._brokers, self._publishers, count)
        repetitions, slo = self._effort.repetitions, self._scale.slo
        worst: list[float] = []
        overall: list[float] = []
        late: list[float] = []
        for number in range(repetitions):
            seen = self._seen(placement, number).after(WARMUP_PART * self._seconds)
            worst.append(seen.worst(slo.percentile))
            overall.append(seen.latency(slo.percentile))
            late.append(seen.late_share(slo))
            if sum(worst) > give_up * repetitions:
                break
        return Point(
            self._scenario,
            design,
            slo.target_seconds,
            len(placement.brokers),
            self.contract.burst,
            tuple(worst),
            tuple(overall),
            fmean(late),
            tuple(float(each) for each in np.quantile(seen.latencies, CURVE)),
        )

    def _seen(self, placement: Placement, seed: int) -> Seen:
        if seed not in self._sent:
            self._sent[seed] = self._scenario.traffic(self._scale, self._seconds, seed)
        names = [each.name for each in self._brokers]
        topics = [placed(placement, self._publishers, names, self._sent[seed])]
        for number, broker in enumerate(self._brokers):
            if broker.allocated and number in topics[0].shares:
                sent = initial_traffic(broker.allocated, self._seconds, seed * BROKERS + number)
                topics.append(Topic(sent, np.array([number]), {}))
        return simulate(topics, [self._scale.service] * BROKERS)[0]


def effort_for(scenario: Scenario, quick: bool) -> Effort:
    if scenario.group_size > 1:
        return QUICK_GROUPED if quick else FULL_GROUPED
    return QUICK if quick else FULL


def estimate(scenario: Scenario) -> float:
    """messages/s, at SRTM's scale, that the Load Distributor takes a broker to hold."""
    return PAPER_ESTIMATES[INITIAL_BATCH if scenario.initial else scenario.batch]
