"""The HTTP door of a bridge, and what its /metrics tell."""

from collections.abc import Callable, Iterable

from tornado.httpserver import HTTPServer

from srtm.bridge.figures import COUNTERS, State
from srtm.bridge.file import BridgeTable
from srtm.bridge.runner import Runner
from srtm.http.metrics import Row, Text
from srtm.http.status import Status, listen
from srtm.text.errors import UnavailableError


def _count(name: str) -> Callable[[Runner], int]:
    return lambda runner: runner.figures.counts[name]


METRICS: tuple[Row[Runner], ...] = (
    Row("srtm_bridge_route_up", "gauge", "1 while the route runs.",
        lambda r: r.figures.state is State.RUNNING),
    *(
        Row(f"srtm_bridge_{name}_total", "counter", text, _count(name))
        for name, text in COUNTERS.items()
    ),
    Row("srtm_bridge_in_flight_count", "gauge",
        "Messages that wait for the other side's acknowledgement.",
        lambda r: r.figures.in_flight),
    Row("srtm_bridge_in_flight_bytes", "gauge",
        "Bytes of the bodies that wait for the other side's acknowledgement.",
        lambda r: r.figures.in_flight_bytes),
    Row("srtm_bridge_records_lag", "gauge", "Records that Kafka has and that are not in NSQ yet.",
        lambda r: r.figures.records_lag),
    Row("srtm_bridge_late_share", "gauge",
        "Share of the messages that took longer than the SLO's target, since start.",
        lambda r: r.figures.late_share),
    Row("srtm_bridge_error_budget", "gauge",
        "What is left of the late share that the SLO allows; negative: overspent.",
        lambda r: r.figures.error_budget),
    Row("srtm_bridge_latency_seconds", "histogram",
        "From the message's own time to the acknowledgement.", lambda r: r.figures.latencies()),
)  # fmt: skip


def open_door(table: BridgeTable, bridge: Status) -> HTTPServer:
    """Raises UnavailableError, UsageError."""
    try:
        return listen(table, bridge)
    except OSError as error:
        raise UnavailableError(
            f"http-address {table.http_address} of [bridge]: {error.strerror}; choose another port"
        ) from None


def metrics(runners: Iterable[Runner]) -> Text:
    """What /metrics tells of the routes. Label topic is empty where a route has no single topic."""
    text = Text()
    text.add(METRICS, [({"route": each.route.name, "topic": each.topic}, each) for each in runners])
    return text
