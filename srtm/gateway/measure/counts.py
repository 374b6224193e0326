"""What a report to the Load Distributor counts of one topic."""

from dataclasses import dataclass, replace

from srtm.gateway.topic import Topic
from srtm.host.clock import monotonic_ns
from srtm.limits.slo import NEAR


@dataclass(frozen=True, slots=True)
class Counts:
    """What was counted of one topic since start, in messages. target_seconds: that near and late
    are counted by; None: without an SLO nobody counts."""

    offered: int
    admitted: int
    served: int
    near: int
    late: int
    late_at_broker: int
    target_seconds: float | None = None


NOTHING = Counts(0, 0, 0, 0, 0, 0)


def counts_of(topic: Topic) -> Counts:
    """The topic's counts as of now."""
    meter, limit = topic.meter, topic.limit
    served = near = late = 0
    target = None
    if limit is not None and limit.slo is not None:
        meter.broker_latency.fold(monotonic_ns())
        target = limit.slo.target_seconds
        served, late = meter.broker_latency.counts(target)
        near = meter.broker_latency.counts(NEAR * target)[1]
    at_broker = meter.late_at_broker
    return Counts(meter.offered, meter.admitted, served, near, late, at_broker, target)


def comparable(known: Counts, count: Counts) -> Counts:
    """What `count` is to be compared with, so that no difference is below 0 and no more are late
    than were served: the distributor would refuse that report and, as it is made again, all that
    follow."""
    if count.offered < known.offered or count.admitted < known.admitted:
        return NOTHING  # it made room for another, and came anew
    if known is not NOTHING and count.target_seconds != known.target_seconds:
        # Near and late of another target: what was counted until now is neither.
        return replace(count, offered=known.offered, admitted=known.admitted)
    served, near = count.served - known.served, count.near - known.near
    if not 0 <= count.late - known.late <= near <= served:
        return NOTHING  # it came anew, and as many messages as before have come since
    if count.late_at_broker < known.late_at_broker:
        return NOTHING
    return known
