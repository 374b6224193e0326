"""Predicted latency over the SLO's target: one number that a scaler which knows of no queues can
follow, whatever the topic and its consumers are.

It is the latency, at the SLO's percentile, of what comes until a consumer launched now would serve,
were each interval like the last one and the group as it is; over the target. Above 1 the SLO is
about to be missed. Consumers are fluid queues, as in the policy `srtm`.
"""

import math

import numpy as np

from srtm.autoscaler.fluid import late_events, slotted
from srtm.autoscaler.observation import Observation
from srtm.limits.slo import SLO

MOST = 10.0
"""The signal ends here: a partition that nobody serves has no latency, and a scaler that can double
a group at a time does the same with any more."""
_MOST_INTERVALS = 60
"""What is further away hardly changes what a scaler would do."""
_LOOKS = 24
"""halvings of the range in which the latency lies: to a millionth of it"""


def latency_signal(seen: Observation, slo: SLO, interval_seconds: float) -> float:
    """The predicted latency over the target, 0 where nothing comes and `MOST` at most.

    interval_seconds: from one observation to the next
    """
    ahead = seen.startup_seconds + seen.rebalance_seconds
    intervals = min(_MOST_INTERVALS, max(1, math.ceil(ahead / interval_seconds)))
    came = slotted(seen, interval_seconds)
    served = np.array([[p.id in c.partitions for c in seen.consumers] for p in seen.partitions])
    total = float(came.sum())
    if total <= 0.0:
        return 0.0
    if not seen.consumers:
        return MOST
    owners = served.reshape(len(seen.partitions), len(seen.consumers)).astype(float)
    arrivals = np.tile(came @ owners, (intervals, 1))
    mu = np.array([c.mu for c in seen.consumers])
    waiting = np.array([p.lag for p in seen.partitions]) @ owners
    orphaned = total - float((came @ owners).sum())
    allowed = slo.allowed_late_share * total * intervals - orphaned * intervals
    if allowed < -1e-9 * total:
        return MOST

    def late(latency: float) -> float:
        found, _ = late_events(arrivals, mu, interval_seconds / len(came), latency, waiting)
        return float(found.sum())

    low, high = 0.0, MOST * slo.target_seconds
    if late(high) > allowed:
        return MOST
    for _ in range(_LOOKS):
        middle = (low + high) / 2
        low, high = (middle, high) if late(middle) > allowed else (low, middle)
    return high / slo.target_seconds
