"""/metrics: one table of names, Prometheus text made from it."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from srtm.gateway.agent import Agent
from srtm.gateway.host import Host
from srtm.gateway.measure.admissions import AdmissionLog
from srtm.gateway.measure.log_files import LogFiles
from srtm.gateway.measure.meter import SKETCHES
from srtm.gateway.measure.trace_process import TraceProcess
from srtm.gateway.topic import Topic
from srtm.host.clock import monotonic_ns

QUANTILES = (0.5, 0.95, 0.99, 0.999)
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})  # of a label's value
TOPICS_PER_TURN = 4
"""About a millisecond."""


class _Row(NamedTuple):
    name: str
    kind: str
    help: str
    value: Callable[[Topic], float | None]


TOPIC_METRICS = (
    _Row("srtm_topic_offered_messages_total", "counter", "Messages that arrived.",
         lambda t: t.meter.offered),
    _Row("srtm_topic_admitted_messages_total", "counter", "Messages that nsqd stored.",
         lambda t: t.meter.admitted),
    _Row("srtm_topic_rejected_messages_total", "counter",
         "Messages refused: over the limit, or nsqd away.", lambda t: t.meter.rejected),
    _Row("srtm_topic_abandoned_messages_total", "counter",
         "Messages given up before nsqd had them: their client left, or an error ended it.",
         lambda t: t.meter.abandoned),
    _Row("srtm_topic_failed_messages_total", "counter",
         "Messages that nsqd answered with an error.", lambda t: t.meter.failed),
    _Row("srtm_topic_unknown_messages_total", "counter",
         "Messages whose outcome is unknown: nsqd went away before it answered.",
         lambda t: t.meter.unknown),
    _Row("srtm_topic_unmatched_deliveries_total", "counter",
         "Messages of batches whose probe did not come back; in no latency.",
         lambda t: t.meter.unmatched),
    _Row("srtm_topic_waiting_messages", "gauge", "Messages that wait for a token.",
         lambda t: t.waiting),
    _Row("srtm_topic_throttled", "gauge", "1 while messages wait for tokens.",
         lambda t: float(t.throttled)),
    _Row("srtm_topic_backlog_bytes", "gauge", "Bytes of unanswered messages.",
         lambda t: t.backlog.bytes),
    _Row("srtm_topic_tokens", "gauge", "Tokens in the bucket; negative: a batch's debt.",
         lambda t: t.bucket.level(monotonic_ns()) if t.bucket else None),
    _Row("srtm_topic_rate_limit", "gauge", "Contract r on this broker, messages/s.",
         lambda t: t.limit.rate if t.limit else None),
    _Row("srtm_topic_burst_limit", "gauge", "Contract b on this broker, messages.",
         lambda t: t.limit.burst if t.limit else None),
)  # fmt: skip

GATEWAY_METRICS: dict[str, tuple[str, Callable[[Host], float]]] = {
    "srtm_connections": ("Client connections.", lambda g: len(g.clients)),
    "srtm_refused_connections": (
        "Connections over --max-connections.",
        lambda g: g.tcp.refused,
    ),
    "srtm_http_connections": ("HTTP connections.", lambda g: g.http.connections),
    "srtm_paused_connections": (
        "Clients that are not read: a backlog is full, or they do not read their answers.",
        lambda g: sum(client.paused for client in g.clients),
    ),
    "srtm_admitting": ("0 while nsqd is away or ill.", lambda g: float(g.watch.is_open)),
    "srtm_faults": (
        "Exceptions that were the gateway's own fault, since start; the log has each kind once.",
        lambda g: g.reactor.faults,
    ),
    "srtm_wall_clock_steps": ("Steps of the wall clock since start.", lambda g: g.wall.steps),
    "srtm_timestamp_degraded_bytes": (
        "Bytes without a segment's time, stamped by a worse source, since start.",
        lambda g: g.stamps.degraded_bytes,
    ),
    "srtm_timestamp_lost_records": (
        "Segments that came too fast to be recorded, since start.",
        lambda g: g.stamps.lost_records,
    ),
}

DISTRIBUTOR_METRICS: dict[str, tuple[str, Callable[[Agent], float]]] = {
    "srtm_distributor_contact": (
        "1 while the Load Distributor answers the reports.",
        lambda a: float(a.contact_at is not None and not a.failures),
    ),
    "srtm_share_epoch": ("Epoch of the shares in force.", lambda a: a.lease.epoch),
    "srtm_distributor_lease_seconds": (
        "What is left of the lease of the shares; 0: they have fallen to the safe shares.",
        lambda a: a.lease_left_seconds,
    ),
}
"""Metrics of the contact with the Load Distributor, only where there is one."""

ADMISSION_LOG_METRICS: dict[str, tuple[str, Callable[[AdmissionLog, LogFiles], float]]] = {
    "srtm_admission_log_written_bytes": (
        "Bytes of the admission log, since start.",
        lambda log, files: files.written_bytes,
    ),
    "srtm_admission_log_dropped_messages": (
        "Admitted messages that are not in the log, as the disk fell behind, since start.",
        lambda log, files: log.dropped,
    ),
    "srtm_admission_log_failing": (
        "1 while the log cannot be written.",
        lambda log, files: float(bool(files.failing)),
    ),
}
"""Metrics of the admission log, only with --admission-log."""

TRACE_METRICS: dict[str, tuple[str, Callable[[TraceProcess], float]]] = {
    "srtm_trace_handed_messages": (
        "Messages whose arrival was handed to the process that writes the trace, since start.",
        lambda trace: trace.handed_messages,
    ),
    "srtm_trace_written_messages": (
        "Messages whose arrival is in a file of the trace, since start.",
        lambda trace: trace.written_messages,
    ),
    "srtm_trace_written_bytes": (
        "Bytes of the trace's files, since start.",
        lambda trace: trace.written_bytes,
    ),
    "srtm_trace_dropped_messages": (
        "Messages whose arrival will not be in the trace, since start.",
        lambda trace: trace.dropped,
    ),
    "srtm_trace_failing": (
        "1 while the trace cannot be written.",
        lambda trace: float(bool(trace.failing)),
    ),
}
"""Metrics of the trace, only with --trace-dir."""


def _head(name: str, kind: str, text: str) -> str:
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"


def _gauges(table: Mapping[str, tuple[str, Callable[..., float]]], *of: object) -> list[str]:
    return [
        f"{_head(name, 'gauge', text)}{name} {float(value(*of))!r}\n"
        for name, (text, value) in table.items()
    ]


async def exposition(gateway: Host) -> bytes:
    """The text that Prometheus scrapes. Messages have their turn between the topics: ten thousand
    of them take two seconds."""
    parts = _gauges(GATEWAY_METRICS, gateway)
    if gateway.agent is not None:
        parts += _gauges(DISTRIBUTOR_METRICS, gateway.agent)
    if gateway.admissions is not None and gateway.log_files is not None:
        parts += _gauges(ADMISSION_LOG_METRICS, gateway.admissions, gateway.log_files)
    if gateway.trace_process is not None:
        parts += _gauges(TRACE_METRICS, gateway.trace_process)
    source = "srtm_timestamp_source"
    text = "1 for the source of arrival times in use; reason: why it is not a better one."
    parts.append(_head(source, "gauge", text))
    reason = gateway.stamps.reason.translate(_ESCAPES)
    parts.append(f'{source}{{source="{gateway.stamps.name}",reason="{reason}"}} 1.0\n')
    columns = {row.name: [_head(row.name, row.kind, row.help)] for row in TOPIC_METRICS}
    for name, text in SKETCHES.items():
        columns[name] = [_head(f"srtm_topic_{name}_seconds", "summary", f"Latency: {text}.")]
    for number, topic in enumerate(list(gateway.topics.by_name.values())):
        if number % TOPICS_PER_TURN == 0:
            await asyncio.sleep(0)
        label = f'topic="{topic.name.decode()}"'
        for row in TOPIC_METRICS:
            value = row.value(topic)
            if value is not None:
                columns[row.name].append(f"{row.name}{{{label}}} {float(value)!r}\n")
        for name in SKETCHES:
            columns[name] += _summary(name, label, topic)
    return "".join([*parts, *(line for column in columns.values() for line in column)]).encode()


def _summary(name: str, label: str, topic: Topic) -> Iterator[str]:
    """Quantiles of the last minute; count and sum since start."""
    full = f"srtm_topic_{name}_seconds"
    sketch = getattr(topic.meter, name)
    now = monotonic_ns()
    recent, total = sketch.recent(now), sketch.total(now)
    for quantile in QUANTILES:
        value = recent.get_quantile_value(quantile)
        if value is not None:
            yield f'{full}{{{label},quantile="{quantile}"}} {value!r}\n'
    yield f"{full}_count{{{label}}} {total.count!r}\n"
    yield f"{full}_sum{{{label}}} {total.sum!r}\n"
