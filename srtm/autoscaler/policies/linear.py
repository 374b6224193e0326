"""The linear autoscaler that CLOSER compares with (section 5.1).

Its formula is lambda * f_up / (mu * f_down), rounded up: with (0.9, 0.4) a consumer for each 88.9
events/s at mu = 200. That is what the figures say too: on the first workload it comes to 25.4
replica-minutes with 6 ups and 6 downs, where Table 2 has 25.5, 6 and 6; lambda / (mu * f_up) would
be 16. Lag plays no part. The formula gives a number only: it "relies on the standard Kafka
non-load-aware assignment strategy", on their Kafka 2.7 the RangeAssignor, the default of its
consumers. It decides at every interval; consumers that start count. With unequal consumers mu is
their mean.
"""

import math

from srtm.autoscaler.decision import Decision
from srtm.autoscaler.observation import Observation
from srtm.autoscaler.policies.group import capped, consumers
from srtm.autoscaler.policies.kafka import adopt_orphans, scale_to
from srtm.autoscaler.policies.paper import PaperPolicy


class Linear(PaperPolicy):
    def _decide(self, seen: Observation) -> Decision:
        settings = self.settings
        served = [consumer.mu for consumer in seen.consumers] or [seen.new_mu]
        mu = math.fsum(served) / len(served)
        wanted = linear_count(seen.rate, mu, settings.f_up, settings.f_down)
        count, notes = capped(seen, wanted, "the linear formula")
        said = f"{seen.rate:g}/s by the linear formula want {consumers(count)}"
        if count == len(seen.consumers):
            return adopt_orphans(seen, settings.handover, said, notes)
        return scale_to(seen, count, settings.handover, f"{said}, not {len(seen.consumers)}", notes)


def linear_count(rate: float, mu: float, f_up: float, f_down: float) -> int:
    """ceil(rate * f_up / (mu * f_down)); rates in events/s."""
    return math.ceil(rate * f_up / (mu * f_down) - 1e-9)
