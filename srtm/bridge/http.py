"""/ping, /stats and /metrics of a bridge."""

from typing import Any

from tornado.httpserver import HTTPServer

from srtm.bridge.figures import COUNTERS
from srtm.http.status import Status, status_server
from srtm.text.address import Address
from srtm.text.errors import UnavailableError

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

GAUGES = {
    "in_flight_count": "Messages that wait for the other side's acknowledgement.",
    "in_flight_bytes": "Bytes of the bodies that wait for the other side's acknowledgement.",
    "records_lag": "Records that Kafka has and that are not in NSQ yet.",
    "late_share": "Share of the messages that took longer than the SLO's target, since start.",
    "error_budget": "What is left of the late share that the SLO allows; negative: overspent.",
}


def listen(address: Address, bridge: Status) -> HTTPServer:
    """Raises UnavailableError."""
    server = status_server(bridge)
    try:
        server.listen(address.port, address.host or None)
    except OSError as error:
        raise UnavailableError(
            f"http-address {address} of [bridge]: {error.strerror}; choose another port"
        ) from None
    return server


def metrics(documents: list[dict[str, Any]]) -> str:
    """Prometheus text. Names are nsqd's (message_count, requeue_count, in_flight_count) and Kafka's
    (records_lag) where they have one."""
    lines = [
        "# HELP srtm_bridge_route_up 1 while the route runs.\n# TYPE srtm_bridge_route_up gauge\n"
    ]
    for each in documents:
        lines.append(
            f"srtm_bridge_route_up{{{_labels(each)}}} {float(each['state'] == 'running')}\n"
        )
    kinds = {**dict.fromkeys(COUNTERS, "counter"), **dict.fromkeys(GAUGES, "gauge")}
    for name, text in {**COUNTERS, **GAUGES}.items():
        kind = kinds[name]
        full = f"srtm_bridge_{name}" + ("_total" if kind == "counter" else "")
        lines.append(f"# HELP {full} {text}\n# TYPE {full} {kind}\n")
        for each in documents:
            if each.get(name) is not None:
                lines.append(f"{full}{{{_labels(each)}}} {float(each[name])!r}\n")
    full = "srtm_bridge_latency_seconds"
    lines.append(
        f"# HELP {full} From the message's own time to the acknowledgement, of the last minute.\n"
        f"# TYPE {full} gauge\n"
    )
    for each in documents:
        for name in ("p50", "p95", "p99"):
            value = each["latency"][name]
            if value is not None:
                lines.append(f'{full}{{{_labels(each)},quantile="0.{name[1:]}"}} {value!r}\n')
    return "".join(lines)


def _labels(document: dict[str, Any]) -> str:
    found = f'route="{document["route"].translate(_ESCAPES)}"'
    if document.get("topic"):
        found += f',topic="{document["topic"]}"'
    return found
