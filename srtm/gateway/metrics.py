"""/metrics: one table of names, Prometheus text made from it."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from srtm.clock import monotonic_ns
from srtm.gateway.host import Host
from srtm.gateway.meter import SKETCHES
from srtm.gateway.topic import Topic

QUANTILES = (0.5, 0.95, 0.99, 0.999)


class _Row(NamedTuple):
    name: str
    kind: type[CounterMetricFamily] | type[GaugeMetricFamily]
    help: str
    value: Callable[[Topic], float | None]


TOPIC_METRICS = (
    _Row("srtm_topic_offered_messages", CounterMetricFamily, "Messages that arrived.",
         lambda t: t.meter.offered),
    _Row("srtm_topic_admitted_messages", CounterMetricFamily, "Messages that nsqd stored.",
         lambda t: t.meter.admitted),
    _Row("srtm_topic_rejected_messages", CounterMetricFamily,
         "Messages refused: over the limit, or nsqd away.", lambda t: t.meter.rejected),
    _Row("srtm_topic_failed_messages", CounterMetricFamily,
         "Messages that nsqd answered with an error.", lambda t: t.meter.failed),
    _Row("srtm_topic_unknown_messages", CounterMetricFamily,
         "Messages whose outcome is unknown: nsqd went away before it answered.",
         lambda t: t.meter.unknown),
    _Row("srtm_topic_unmatched_deliveries", CounterMetricFamily,
         "Probed deliveries whose arrival was not found; in no latency.",
         lambda t: t.meter.unmatched),
    _Row("srtm_topic_waiting_messages", GaugeMetricFamily, "Messages that wait for a token.",
         lambda t: t.waiting),
    _Row("srtm_topic_throttled", GaugeMetricFamily, "1 while messages wait for tokens.",
         lambda t: float(t.throttled)),
    _Row("srtm_topic_backlog_bytes", GaugeMetricFamily, "Bytes of unanswered messages.",
         lambda t: t.backlog_bytes),
    _Row("srtm_topic_tokens", GaugeMetricFamily, "Tokens in the bucket; negative: a batch's debt.",
         lambda t: t.bucket.level(monotonic_ns()) if t.bucket else None),
    _Row("srtm_topic_rate_limit", GaugeMetricFamily, "Contract r on this broker, messages/s.",
         lambda t: t.limit.rate if t.limit else None),
    _Row("srtm_topic_burst_limit", GaugeMetricFamily, "Contract b on this broker, messages.",
         lambda t: t.limit.burst if t.limit else None),
)  # fmt: skip

GATEWAY_METRICS: dict[str, tuple[str, Callable[[Host], float]]] = {
    "srtm_connections": ("Client connections.", lambda g: len(g.clients)),
    "srtm_refused_connections": (
        "Connections over --max-connections.",
        lambda g: g.tcp.refused,
    ),
    "srtm_paused_connections": (
        "Clients that are not read: a backlog is full, or they do not read their answers.",
        lambda g: sum(client.paused for client in g.clients),
    ),
    "srtm_admitting": ("0 while nsqd is away or ill.", lambda g: float(g.watch.is_open)),
    "srtm_wall_clock_steps": ("Steps of the wall clock since start.", lambda g: g.wall.steps),
}


class _Gateway(Collector):
    def __init__(self, gateway: Host) -> None:
        self._gateway = gateway

    def collect(self) -> Iterable[Metric]:
        gateway = self._gateway
        for name, (text, value) in GATEWAY_METRICS.items():
            yield GaugeMetricFamily(name, text, value=value(gateway))
        source = GaugeMetricFamily(
            "srtm_timestamp_source", "1 for the source of arrival times in use.", labels=["source"]
        )
        source.add_metric([gateway.stamps.name], 1.0)
        yield source
        topics = list(gateway.topics.by_name.values())
        for row in TOPIC_METRICS:
            family = row.kind(row.name, row.help, labels=["topic"])
            for topic in topics:
                number = row.value(topic)
                if number is not None:
                    family.add_metric([topic.name.decode()], number)
            yield family
        for name, text in SKETCHES.items():
            yield _summary(name, text, topics)


def _summary(name: str, text: str, topics: list[Topic]) -> Metric:
    """Quantiles of the last minute; count and sum since start."""
    full = f"srtm_topic_{name}_seconds"
    family = SummaryMetricFamily(full, f"Latency: {text}.", labels=["topic"])
    now = monotonic_ns()
    for topic in topics:
        sketch = getattr(topic.meter, name)
        recent, total = sketch.recent(now), sketch.total(now)
        label = {"topic": topic.name.decode()}
        for quantile in QUANTILES:
            value = recent.get_quantile_value(quantile)
            if value is not None:
                family.samples.append(Sample(full, {**label, "quantile": str(quantile)}, value))
        family.add_metric([label["topic"]], total.count, total.sum)
    return family


def exposition(gateway: Host) -> bytes:
    """The text that Prometheus scrapes."""
    registry = CollectorRegistry()
    registry.register(_Gateway(gateway))
    return generate_latest(registry)
