"""What an experiment is made of: a topic's publishers, its contract, what brokers do already."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.experiments.scale import HEADROOM, Scale
from distributor.fitting.batches import smallest_burst, work_before
from distributor.model import Broker, Publisher
from distributor.simulator.traffic import Sending, Traffic, traffic
from srtm.limits.contract import Contract
from srtm.load.settings import Arrivals

RATE = 10.0  # messages/s of each publisher, at SRTM's scale
BROKERS = 6
INITIAL_BATCH = 10
SPARES = {"b": 1.0, "2 b": 2.0}
"""b over the smallest with which 99 % of a trace's messages find their token waiting. SRTM takes
that one: an unsplit bucket alone then spends all of what the SLO allows, and a split has none."""
SPARE = SPARES["2 b"]
"""of what runs on real brokers, which add to waits themselves"""


@dataclass(frozen=True, slots=True)
class Scenario:
    """initial: messages/s, at SRTM's scale, that each broker carries before the topic comes; in
    Poisson batches of 10."""

    name: str
    publishers: int
    arrivals: Arrivals = "poisson"
    batch: int = 1
    group_size: int = 1
    jitter: float = 0.0  # seconds, at SRTM's scale
    initial: Sequence[float] = ()
    rate: float = RATE  # messages/s of each publisher, at SRTM's scale

    @property
    def offered(self) -> float:
        """messages/s at SRTM's scale."""
        return self.publishers * self.rate

    def sending(self, scale: Scale) -> Sending:
        return Sending(self.arrivals, self.batch, scale.seconds(self.jitter))

    def everybody(self, scale: Scale) -> list[Publisher]:
        size = self.group_size
        return [
            Publisher(f"p{n:05}", f"g{n // size:05}" if size > 1 else None, self.rate * scale.rate)
            for n in range(self.publishers)
        ]

    def brokers(self, scale: Scale, capacity: float, count: int = BROKERS) -> list[Broker]:
        """capacity: messages/s, at SRTM's scale, that a broker is taken to hold."""
        initial = [*self.initial, *[0.0] * count][:count]
        return [
            Broker(f"b{n + 1}", capacity * scale.rate, load * scale.rate)
            for n, load in enumerate(initial)
        ]

    def contract(self, scale: Scale, trace: Traffic, spare: float = SPARE) -> Contract:
        """r is 10 % over the rate, b fitted to a trace of the topic."""
        rate = HEADROOM * self.offered * scale.rate
        work = work_before(trace.times, trace.counts(), rate)
        burst = smallest_burst(work, trace.counts(), scale.slo.allowed_late_share)
        return Contract(topic=self.name, rate=rate, burst=spare * burst, slo=scale.slo)

    def traffic(self, scale: Scale, seconds: float, seed: int) -> Traffic:
        return traffic(self.everybody(scale), self.sending(scale), seconds, seed)


def initial_traffic(rate: float, seconds: float, seed: int) -> Traffic:
    """The initial traffic of one broker: `rate` messages/s in Poisson batches of 10."""
    random = np.random.default_rng((seed, 1))
    count = random.poisson(rate / INITIAL_BATCH * seconds)
    times = np.sort(random.random(count) * seconds)
    return Traffic(times, np.zeros(count, dtype=np.int64), INITIAL_BATCH)
