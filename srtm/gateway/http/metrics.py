"""/metrics of a gateway, from the tables that name its metrics."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from srtm.gateway.agent import Agent
from srtm.gateway.host import Host
from srtm.gateway.measure.admissions import AdmissionLog
from srtm.gateway.measure.log_files import LogFiles
from srtm.gateway.measure.meter import SKETCHES
from srtm.gateway.measure.trace_process import TraceProcess
from srtm.gateway.topic import Topic
from srtm.host.certificates import Renewed
from srtm.host.clock import boottime_ns, monotonic_ns
from srtm.http.metrics import Histogram, Row, Text, latencies

_TOPICS_PER_TURN = 2
"""So many take about a millisecond."""


def _latency(name: str) -> Callable[[Topic], Histogram | None]:
    def value(topic: Topic) -> Histogram | None:
        bins, seconds = getattr(topic.meter, name).counted(monotonic_ns())
        return latencies(bins, seconds) if bins else None

    return value


TOPIC_METRICS: tuple[Row[Topic], ...] = (
    Row("srtm_topic_offered_messages_total", "counter", "Messages that arrived.",
         lambda t: t.meter.offered),
    Row("srtm_topic_admitted_messages_total", "counter", "Messages that nsqd stored.",
         lambda t: t.meter.admitted),
    Row("srtm_topic_rejected_messages_total", "counter",
         "Messages refused: over the limit, or nsqd away.", lambda t: t.meter.rejected),
    Row("srtm_topic_abandoned_messages_total", "counter",
         "Messages dropped before they were sent to nsqd: their client left, or an error ended it.",
         lambda t: t.meter.abandoned),
    Row("srtm_topic_failed_messages_total", "counter",
         "Messages that nsqd answered with an error.", lambda t: t.meter.failed),
    Row("srtm_topic_unknown_messages_total", "counter",
         "Messages whose outcome is unknown: nsqd went away before it answered.",
         lambda t: t.meter.unknown),
    Row("srtm_topic_unmatched_deliveries_total", "counter",
         "Messages of batches whose probe did not come back; no broker latency counts them.",
         lambda t: t.meter.unmatched),
    Row("srtm_topic_waiting_messages", "gauge", "Messages that wait for a token.",
         lambda t: t.waiting),
    Row("srtm_topic_throttled", "gauge", "1 while messages wait for tokens.",
         lambda t: float(t.throttled)),
    Row("srtm_topic_backlog_bytes", "gauge", "Bytes of unanswered messages.",
         lambda t: t.backlog.bytes),
    Row("srtm_topic_tokens", "gauge", "Tokens in the bucket; negative: a batch's debt.",
         lambda t: t.bucket.level(monotonic_ns()) if t.bucket else None),
    Row("srtm_topic_rate_limit", "gauge", "Contract r on this broker, messages/s.",
         lambda t: t.limit.rate if t.limit else None),
    Row("srtm_topic_burst_limit", "gauge", "Contract b on this broker, messages.",
         lambda t: t.limit.burst if t.limit else None),
    *(
        Row(f"srtm_topic_{name}_seconds", "histogram", f"Latency: {text}.", _latency(name))
        for name, text in SKETCHES.items()
    ),
)  # fmt: skip

GATEWAY_METRICS: tuple[Row[Host], ...] = (
    Row("srtm_connections", "gauge", "Client connections.", lambda g: len(g.clients)),
    Row("srtm_refused_connections_total", "counter",
        "Connections closed at once: over --max-connections, or no file descriptor was left.",
        lambda g: g.tcp.refused),
    Row("srtm_tls_handshakes_total", "counter", "TLS handshakes done at the TCP and HTTPS doors.",
        lambda g: g.handshakes.done),
    Row("srtm_tls_failed_handshakes_total", "counter",
        "TLS handshakes at these doors that failed, or of which nothing came within 5 s.",
        lambda g: g.handshakes.failed),
    Row("srtm_http_connections", "gauge", "HTTP connections.", lambda g: g.http.connections),
    Row("srtm_paused_connections", "gauge",
        "Clients that are not read: a backlog is full, or they do not read their answers.",
        lambda g: sum(client.paused for client in g.clients)),
    Row("srtm_admitting", "gauge", "0 while nsqd is away or ill.", lambda g: g.watch.is_open),
    Row("srtm_faults_total", "counter",
        "Exceptions that were the gateway's own fault; the log has each kind once.",
        lambda g: g.reactor.faults),
    Row("srtm_audit_lost_total", "counter",
        "Changes that could not be written to the audit log.",
        lambda g: None if g.audit is None else g.audit.lost),
    Row("srtm_wall_clock_steps_total", "counter", "Steps of the wall clock.",
        lambda g: g.wall.steps),
    Row("srtm_timestamp_degraded_bytes_total", "counter",
        "Bytes without a time of their segment, which got the time of a worse source.",
        lambda g: g.stamps.degraded_bytes),
    Row("srtm_timestamp_lost_records_total", "counter",
        "Segments that came too fast to be recorded.", lambda g: g.stamps.lost_records),
)  # fmt: skip

TLS_METRICS: tuple[Row[Renewed], ...] = (
    Row("srtm_certificate_end_seconds", "gauge",
        "When the certificate ends, in seconds since 1970.", lambda t: t.expires_at),
    Row("srtm_certificate_failing", "gauge",
        "1 while the certificate's files do not work and what they held before is in use.",
        lambda t: bool(t.failed)),
)  # fmt: skip
"""Metrics of the certificate, only with --tls-cert."""

SOURCE_METRICS: tuple[Row[Host], ...] = (
    Row("srtm_timestamp_source", "gauge",
        "1 for the source of arrival times in use; reason: why it is not a better one.",
        lambda _: 1),
)  # fmt: skip

DISTRIBUTOR_METRICS: tuple[Row[Agent], ...] = (
    Row("srtm_distributor_contact", "gauge",
        "1 while the Load Distributor answers the reports.",
        lambda a: a.contact_at is not None and not a.failures),
    Row("srtm_share_epoch", "gauge", "Epoch of the shares in force.", lambda a: a.lease.epoch),
    Row("srtm_distributor_lease_seconds", "gauge",
        "Seconds left of the lease of the shares; 0: the gateway has its safe shares, and whole "
        "ones of topics with a lease grace.",
        lambda a: a.lease_left_seconds),
)  # fmt: skip
"""Metrics of the contact with the Load Distributor, only where there is one."""

GRACE_METRICS: tuple[Row[float], ...] = (
    Row("srtm_topic_lease_grace_seconds", "gauge",
        "Seconds for which the lease grace still keeps the topic's share here, as no distributor "
        "answers; only of topics whose share is kept.",
        lambda seconds: seconds),
)  # fmt: skip
"""Metrics of topics that keep their share after the lease, by topic."""


class Logged(NamedTuple):
    """The admission log and the files that it is written to."""

    log: AdmissionLog
    files: LogFiles


ADMISSION_LOG_METRICS: tuple[Row[Logged], ...] = (
    Row("srtm_admission_log_written_bytes_total", "counter", "Bytes of the admission log.",
        lambda a: a.files.written_bytes),
    Row("srtm_admission_log_dropped_messages_total", "counter",
        "Admitted messages that are not in the log, because the disk fell behind.",
        lambda a: a.log.dropped),
    Row("srtm_admission_log_failing", "gauge", "1 while the log cannot be written.",
        lambda a: bool(a.files.failing)),
)  # fmt: skip
"""Metrics of the admission log, only with --admission-log."""

TRACE_METRICS: tuple[Row[TraceProcess], ...] = (
    Row("srtm_trace_handed_messages_total", "counter",
        "Messages whose arrival was handed to the process that writes the trace.",
        lambda t: t.handed_messages),
    Row("srtm_trace_written_messages_total", "counter",
        "Messages whose arrival is in a file of the trace.", lambda t: t.written_messages),
    Row("srtm_trace_written_bytes_total", "counter", "Bytes of the trace's files.",
        lambda t: t.written_bytes),
    Row("srtm_trace_dropped_messages_total", "counter",
        "Messages whose arrival will not be in the trace.", lambda t: t.dropped),
    Row("srtm_trace_failing", "gauge", "1 while the trace cannot be written.",
        lambda t: bool(t.failing)),
)  # fmt: skip
"""Metrics of the trace, only with --trace-dir."""


async def exposition(gateway: Host, is_gone: Callable[[], bool]) -> bytes | None:
    """The text that Prometheus scrapes; None where it has gone meanwhile. Messages have their turn
    between the topics: ten thousand of them take seconds."""
    text = Text()
    text.add(GATEWAY_METRICS, [({}, gateway)])
    if gateway.tls is not None:
        text.add(TLS_METRICS, [({}, gateway.tls)])
    if gateway.agent is not None:
        agent = gateway.agent
        text.add(DISTRIBUTOR_METRICS, [({}, agent)])
        kept = agent.lease.kept_seconds(boottime_ns())
        text.add(GRACE_METRICS, [({"topic": name}, left) for name, left in kept.items()])
    if gateway.admissions is not None and gateway.log_files is not None:
        text.add(ADMISSION_LOG_METRICS, [({}, Logged(gateway.admissions, gateway.log_files))])
    if gateway.trace_process is not None:
        text.add(TRACE_METRICS, [({}, gateway.trace_process)])
    source = {"source": gateway.stamps.name, "reason": gateway.stamps.reason}
    text.add(SOURCE_METRICS, [(source, gateway)])
    topics = list(gateway.topics.by_name.values())
    text.add(TOPIC_METRICS, [])
    for first in range(0, len(topics), _TOPICS_PER_TURN):
        await asyncio.sleep(0)
        if is_gone():
            return None
        turn = topics[first : first + _TOPICS_PER_TURN]
        text.add(TOPIC_METRICS, [({"topic": each.name.decode()}, each) for each in turn])
    return text.encode()
