"""One scale for all of an experiment: rates times `rate`, times over it.

Poisson arrivals, buckets and brokers stay the same when rates grow by a factor and times shrink by
it. So an experiment on slower brokers is SRTM's own, in slow motion, where the target of the SLO is
longer by as much as a broker holds less.
"""

from dataclasses import dataclass

from distributor.simulator.service import Service, fit
from srtm.limits.slo import SLO

PAPER_SLO = SLO(0.99, 0.001)
PAPER_CAPACITIES = {1: 58_000.0, 10: 100_000.0}
"""messages/s that a broker of SRTM's testbed held within its SLO, by batch, as far as the text of
section 6 tells. Single messages: 60,000/s are too many (6.1), 50,000/s beside 10,000/s in batches
are not, nor are 26,700/s beside 50,000/s (6.3, 8,000 publishers). Batches of 10: 50,000/s beside
40,000/s are held (10,000 publishers)."""
PAPER_ESTIMATES = {1: 55_000.0, 10: 85_000.0}
"""messages/s by which its Load Distributor counted brokers: 60,000/s of single messages need two,
as do 80,000/s in batches where one carries 10,000/s already (6.3)."""
PAPER_BASE_SECONDS = 0.0003
"""of an idle broker: with it the two latencies that section 6.3 gives, 0.87 and 1.50 ms, come out
as 0.87 and 1.65"""
HEADROOM = 1.1
"""r over the topic's rate (section 6)"""


@dataclass(frozen=True, slots=True)
class Scale:
    """rate: our messages/s for each of SRTM's; slo: its 1 ms, longer by as much; service: of a
    broker here."""

    rate: float
    slo: SLO
    service: Service

    @property
    def capacity(self) -> float:
        """messages/s of single messages that one broker is taken to hold."""
        return PAPER_CAPACITIES[1] * self.rate

    def seconds(self, paper: float) -> float:
        """Seconds here that stand for `paper` seconds of SRTM's."""
        return paper / self.rate


def paper_scale() -> Scale:
    return Scale(1.0, PAPER_SLO, fit(PAPER_CAPACITIES, PAPER_SLO, PAPER_BASE_SECONDS))


def scale_of(rate: float, service: Service | None = None) -> Scale:
    """service: of a broker here, None: SRTM's, slower by as much."""
    slo = SLO(PAPER_SLO.percentile, PAPER_SLO.target_seconds / rate)
    return Scale(rate, slo, service or paper_scale().service.scaled(1 / rate))
