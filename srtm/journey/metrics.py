"""What /metrics of `srtm journey run` tells."""

from collections.abc import Iterable
from typing import Protocol

from srtm.host.clock import NS, monotonic_ns
from srtm.http.metrics import Histogram, Row, Text, latencies
from srtm.journey.ages import Ages
from srtm.journey.consumers import Consumers
from srtm.journey.file import Journey
from srtm.limits.rolling import RollingBudget
from srtm.limits.sketch import LatencySketch


class Measured(Protocol):
    journey: Journey
    ages: Ages
    budget: RollingBudget
    consumers: Consumers


def _histogram(sketch: LatencySketch) -> Histogram:
    return latencies(*sketch.counted(monotonic_ns()))


METRICS: tuple[Row[Measured], ...] = (
    Row("srtm_journey_messages_total", "counter", "Messages that consumers were done with.",
        lambda m: m.ages.count),
    Row("srtm_journey_matched_messages_total", "counter",
        "Of these, messages whose arrival a gateway told; samples stand for others.",
        lambda m: m.ages.matched),
    Row("srtm_journey_unmatched_messages_total", "counter",
        "Messages whose arrival no gateway told: their age begins when nsqd received them.",
        lambda m: m.ages.unmatched),
    Row("srtm_journey_lost_messages_total", "counter",
        "Messages that consumers were done with and whose reports did not arrive: in no figure.",
        lambda m: m.consumers.lost),
    Row("srtm_journey_unknown_messages_total", "counter",
        "Messages that consumers could tell of no journey: without a time of nsqd's, or of another "
        "topic.",
        lambda m: m.consumers.unknown),
    Row("srtm_journey_target_seconds", "gauge", "The target of the SLO.",
        lambda m: m.journey.slo.target_seconds),
    Row("srtm_journey_error_budget", "gauge",
        "What is left of the late share that the SLO allows; negative: overspent.",
        lambda m: m.budget.left),
    Row("srtm_journey_clock_error_seconds", "gauge",
        "How far the clocks of the last message's hosts may differ from what is known of them.",
        lambda m: m.ages.clock_error_ns / NS),
    Row("srtm_journey_age_seconds", "histogram",
        "Latency: from a message's arrival at the gateway until a consumer's sink had it.",
        lambda m: _histogram(m.ages.age)),
)  # fmt: skip


CAUSE_METRICS: tuple[Row[LatencySketch], ...] = (
    Row("srtm_journey_cause_seconds", "histogram",
        "Latency: the part of a message's age that has this cause.", _histogram),
)  # fmt: skip


def metrics(all: Iterable[Measured]) -> Text:
    text = Text()
    measured = list(all)
    text.add(METRICS, [({"journey": each.journey.name}, each) for each in measured])
    causes = [
        ({"journey": each.journey.name, "cause": str(cause)}, sketch)
        for each in measured
        for cause, sketch in each.ages.causes.items()
    ]
    text.add(CAUSE_METRICS, causes)
    return text
