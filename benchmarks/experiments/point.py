"""What one design showed on one scenario, simulated or measured: mean and deviation."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any

import numpy as np

from benchmarks.experiments.scale import Scale
from benchmarks.experiments.scenario import Scenario
from distributor.model import Placement
from distributor.simulator.run import Seen
from srtm.limits.contract import Contract

CURVE = (0.01, 0.05, *(n / 20 for n in range(2, 19)), 0.95, 0.975, 0.99, 0.995, 0.999)
"""Shares at which a point's distribution is kept."""


@dataclass(frozen=True, slots=True)
class Point:
    """Seconds, one for each repetition. p99: at the broker where it is longest; overall: of all
    messages of the topic. brokers: how many serve the topic; burst: of its contract, messages;
    curve: latencies of the last repetition at the shares of CURVE; lag: how late the generator
    itself was at p99, 0 where nothing was sent."""

    scenario: Scenario
    design: str
    target: float
    brokers: int
    burst: float
    p99: tuple[float, ...]
    overall: tuple[float, ...]
    late_share: float
    curve: tuple[float, ...]
    lag: float = 0.0

    @property
    def mean(self) -> float:
        return fmean(self.p99)

    @property
    def deviation(self) -> float:
        return stdev(self.p99) if len(self.p99) > 1 else 0.0

    @property
    def ratio(self) -> float:
        """The ratio of the mean to the target."""
        return self.mean / self.target

    @property
    def met(self) -> bool:
        return self.mean <= self.target

    def document(self) -> dict[str, Any]:
        """The point as JSON has it; latencies in ms."""
        return {
            "scenario": asdict(self.scenario),
            "design": self.design,
            "target_ms": self.target * 1e3,
            "brokers": self.brokers,
            "burst": self.burst,
            "p99_ms": [each * 1e3 for each in self.p99],
            "p99_mean_ms": self.mean * 1e3,
            "p99_deviation_ms": self.deviation * 1e3,
            "overall_p99_ms": [each * 1e3 for each in self.overall],
            "late_share": self.late_share,
            "distribution_ms": {
                f"{100 * share:g}": each * 1e3
                for share, each in zip(CURVE, self.curve, strict=True)
            },
            "send_lag_p99_ms": self.lag * 1e3,
        }


def simulated_point(
    scenario: Scenario,
    design: str,
    scale: Scale,
    placement: Placement,
    contract: Contract,
    repetitions: Sequence[Seen],
    worst: Sequence[float],
) -> Point:
    """The point of what the simulator saw in each repetition. worst: by repetition, of the worst
    broker at the SLO's percentile, seconds"""
    percentile = scale.slo.percentile
    return Point(
        scenario,
        design,
        scale.slo.target_seconds,
        len(placement.brokers),
        contract.burst,
        tuple(worst),
        tuple(each.latency(percentile) for each in repetitions),
        fmean(each.late_share(scale.slo) for each in repetitions),
        tuple(np.quantile(repetitions[-1].latencies, CURVE).tolist()),
    )
