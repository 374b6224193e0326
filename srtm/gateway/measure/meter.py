"""What is counted and measured for one topic."""

from srtm.limits.sketch import LatencySketch

SKETCHES = {
    "token_wait": "delay in the topic's token bucket, from arrival to token",
    "gateway_time": "time in the gateway itself, from token to nsqd",
    "broker_latency": "from arrival to delivery to a consumer that is always ready",
    "consumer_latency": "from arrival to delivery to the topic's own consumers, one of each read",
}


class Meter:
    """Counters in messages since start; sketches hold durations."""

    __slots__ = (
        "abandoned",
        "admitted",
        "broker_latency",
        "consumer_latency",
        "failed",
        "gateway_time",
        "late_at_broker",
        "offered",
        "rejected",
        "token_wait",
        "unknown",
        "unmatched",
    )

    def __init__(self) -> None:
        self.offered = 0  # arrived
        self.admitted = 0  # stored by nsqd
        self.rejected = 0  # refused: over the limit, or nsqd away for too long
        self.abandoned = 0  # not sent to nsqd, as nobody waited for them any more
        self.failed = 0  # nsqd answered with an error
        self.unknown = 0  # nsqd went away before it answered
        self.late_at_broker = 0  # of broker_latency: over the SLO's target without their token wait
        self.unmatched = 0  # of batches whose probe did not come back: not in broker_latency
        self.token_wait = LatencySketch()
        self.gateway_time = LatencySketch()
        self.broker_latency = LatencySketch()
        self.consumer_latency = LatencySketch()

    def fold(self, now: int) -> None:
        """Fold the sketches, once a second after messages."""
        for sketch in (
            self.token_wait,
            self.gateway_time,
            self.broker_latency,
            self.consumer_latency,
        ):
            sketch.fold(now)
