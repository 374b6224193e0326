"""/metrics of a distributor: what its tables name."""

from distributor.api import BrokerShown
from distributor.control.service import Distributor
from distributor.http.handler import Shared
from srtm.host.clock import monotonic_ns
from srtm.http.metrics import Row, Text, latencies
from tb_adaptor.penalty import Compared, Stranded

LEADING_METRICS: tuple[Row[Distributor | None], ...] = (
    Row("srtm_distributor_leading", "gauge", "1 while this distributor leads.",
        lambda s: s is not None),
)  # fmt: skip
DOOR_METRICS: tuple[Row[Shared], ...] = (
    Row("srtm_distributor_strangers_total", "counter",
        "Requests that showed no token, or a wrong one, where one is needed.",
        lambda s: s.access.strangers),
    Row("srtm_distributor_audit_lost_total", "counter",
        "Changes that could not be written to the audit log.",
        lambda s: None if s.audit is None else s.audit.lost),
    Row("srtm_distributor_certificate_end_seconds", "gauge",
        "When the certificate ends, in seconds since 1970.",
        lambda s: None if s.tls is None else s.tls.expires_at),
    Row("srtm_distributor_certificate_failing", "gauge",
        "1 while the certificate's files do not work and what they held before is in use.",
        lambda s: None if s.tls is None else bool(s.tls.failed)),
)  # fmt: skip
METRICS: tuple[Row[Distributor], ...] = (
    Row("srtm_distributor_epoch", "gauge", "The largest epoch handed out.",
        lambda s: s.state.epoch),
    Row("srtm_distributor_topics", "gauge", "Topics registered.", lambda s: len(s.state.topics)),
    Row("srtm_distributor_publishers", "gauge", "Publishers registered.",
        lambda s: sum(len(each.publishers) for each in s.state.topics.values())),
    Row("srtm_distributor_placed_publishers", "gauge", "Publishers that have a broker.",
        lambda s: sum(len(each.places) for each in s.state.topics.values())),
    Row("srtm_distributor_leads_seconds", "gauge", "Seconds since this distributor began to lead.",
        lambda s: s.now() - s.leads_since),
    Row("srtm_distributor_unsure", "gauge",
        "1 while the store may be new or old and gateways tell their shares: nothing is granted.",
        lambda s: s.state.unsure),
    Row("srtm_distributor_warnings", "gauge", "Number of warnings in /v1/health.",
        lambda s: len(s.warnings())),
    Row("srtm_distributor_refused_epochs_total", "counter",
        "Epochs reported by gateways that no distributor had given out.",
        lambda s: s.state.refused_epochs),
    Row("srtm_distributor_fittings", "gauge", "Topics that are being fitted.",
        lambda s: len(s.fitters)),
    Row("srtm_distributor_rescales_total", "counter", "Rescales of shares by the TB Adaptor.",
        lambda s: s.adaptor.rescales),
    Row("srtm_distributor_brokers_in_trouble", "gauge",
        "Brokers that get more than their capacity, or are late apart from token waits.",
        lambda s: len(s.troubles.ill)),
    Row("srtm_distributor_proposed_moves", "gauge", "Publishers whose move is proposed.",
        lambda s: sum(len(each.moves) for each in s.troubles.proposals.values())),
    Row("srtm_distributor_migrated_publishers_total", "counter",
        "Publishers that left a broker in trouble.", lambda s: s.troubles.moved),
    Row("srtm_distributor_watches", "gauge", "Watch streams open.", lambda s: len(s.watches)),
    Row("srtm_distributor_watched_publishers", "gauge", "Publishers over all watch streams.",
        lambda s: s.watches.watched),
    Row("srtm_distributor_writes_total", "counter",
        "Changes written to the store; registrations that came together count as one.",
        lambda s: s.committer.writes),
    Row("srtm_distributor_commit_seconds", "histogram", "How long a transaction of the store took.",
        lambda s: latencies(*s.committer.times.counted(monotonic_ns()))),
)  # fmt: skip
STATES = ("up", "draining", "lost")
STATE_METRICS: tuple[Row[int], ...] = (
    Row("srtm_distributor_brokers", "gauge", "Brokers by state.", lambda count: count),
)
BROKER_METRICS: tuple[Row[BrokerShown], ...] = (
    Row("srtm_distributor_broker_capacity", "gauge",
        "Messages/s that the broker can take within its SLO.",
        lambda b: b.capacity),
    Row("srtm_distributor_broker_allocated", "gauge",
        "Declared messages/s of the publishers placed there.", lambda b: b.allocated),
)  # fmt: skip
PENALTY_METRICS: tuple[Row[Compared | str], ...] = (
    Row("srtm_distributor_topic_penalty_known", "gauge",
        "1 if the penalty of a shared topic is known.",
        lambda found: isinstance(found, Compared)),
)  # fmt: skip
TOPIC_METRICS: tuple[Row[Compared], ...] = (
    Row("srtm_distributor_topic_token_wait_mean_seconds", "gauge",
        "The mean wait for tokens in the last minute, as gateways measured it.",
        lambda c: c.waits.mean),
    Row("srtm_distributor_topic_token_wait_p99_seconds", "gauge",
        "The 99th percentile of the wait for tokens in the last minute.",
        lambda c: c.waits.p99),
    Row("srtm_distributor_topic_unsplit_wait_mean_seconds", "gauge",
        "The mean wait that the same messages would have had in one bucket.",
        lambda c: c.unsplit.mean),
    Row("srtm_distributor_topic_unsplit_wait_p99_seconds", "gauge",
        "The 99th percentile of the wait that the same messages would have had in one bucket.",
        lambda c: c.unsplit.p99),
    Row("srtm_distributor_topic_penalty_mean_seconds", "gauge",
        "How much longer the mean wait is because of the split; may be below 0.",
        lambda c: c.penalty.mean),
    Row("srtm_distributor_topic_penalty_p99_seconds", "gauge",
        "How much longer the 99th percentile of the wait is because of the split.",
        lambda c: c.penalty.p99),
    Row("srtm_distributor_topic_penalty_error_mean_seconds", "gauge",
        "Largest error of the mean's penalty, from clocks and delays.",
        lambda c: c.error.mean),
    Row("srtm_distributor_topic_penalty_error_p99_seconds", "gauge",
        "Largest error of the 99th percentile's penalty, from clocks and delays.",
        lambda c: c.error.p99),
    Row("srtm_distributor_topic_penalty_messages", "gauge",
        "Messages from which the penalty was computed.",
        lambda c: c.messages),
)  # fmt: skip
"""of topics that several brokers share; a topic of which nothing is known has none of them"""
STRANDED_METRICS: tuple[Row[Stranded], ...] = (
    Row("srtm_distributor_topic_stranded_tokens", "gauge",
        "Tokens that lay unused at some brokers of the topic while its messages waited at others, "
        "at least: the mean of the last minute.",
        lambda s: s.least),
    Row("srtm_distributor_topic_stranded_tokens_most", "gauge",
        "The same mean at most, as clocks and delays allow.",
        lambda s: s.most),
)  # fmt: skip


def exposition(service: Distributor | None, shared: Shared) -> Text:
    """What Prometheus scrapes. service: None where another distributor leads."""
    text = Text()
    text.add(LEADING_METRICS, [({}, service)])
    text.add(DOOR_METRICS, [({}, shared)])
    if service is None:
        return text
    text.add(METRICS, [({}, service)])
    brokers = service.brokers.all()
    counts = {state: sum(each.state == state for each in brokers) for state in STATES}
    text.add(STATE_METRICS, [({"state": state}, count) for state, count in counts.items()])
    text.add(BROKER_METRICS, [({"broker": each.name}, each) for each in brokers])
    penalties = [({"topic": name}, found) for name, found in service.penalties.all()]
    text.add(PENALTY_METRICS, penalties)
    known = [(label, found) for label, found in penalties if isinstance(found, Compared)]
    text.add(TOPIC_METRICS, known)
    stranded = service.penalties.stranded()
    text.add(STRANDED_METRICS, [({"topic": name}, found) for name, found in stranded])
    return text
