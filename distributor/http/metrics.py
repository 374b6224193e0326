"""/metrics: one table of names, Prometheus text made from it."""

from collections.abc import Callable
from typing import NamedTuple

from distributor.api import BrokerShown
from distributor.control.service import Distributor
from tb_adaptor.penalty import Compared


class _Row(NamedTuple):
    name: str
    kind: str
    help: str
    value: Callable[[Distributor], float]


METRICS = (
    _Row("srtm_distributor_epoch", "counter", "The largest epoch handed out.",
         lambda s: s.state.epoch),
    _Row("srtm_distributor_topics", "gauge", "Topics registered.", lambda s: len(s.state.topics)),
    _Row("srtm_distributor_publishers", "gauge", "Publishers registered.",
         lambda s: sum(len(each.publishers) for each in s.state.topics.values())),
    _Row("srtm_distributor_placed_publishers", "gauge", "Publishers that have a broker.",
         lambda s: sum(len(each.places) for each in s.state.topics.values())),
    _Row("srtm_distributor_leads_seconds", "gauge", "Since this distributor began to lead.",
         lambda s: s.now() - s.leads_since),
    _Row("srtm_distributor_unsure", "gauge",
         "1 while gateways tell what a lost or older store does not: nothing is granted.",
         lambda s: s.state.unsure),
    _Row("srtm_distributor_warnings", "gauge", "What /v1/health warns of.",
         lambda s: len(s.warnings())),
    _Row("srtm_distributor_refused_epochs_total", "counter",
         "Epochs that gateways showed and nobody had given out.",
         lambda s: s.state.refused_epochs),
    _Row("srtm_distributor_fittings", "gauge", "Topics that are being fitted.",
         lambda s: len(s.fitters)),
    _Row("srtm_distributor_rescales_total", "counter", "Splits that followed the traffic.",
         lambda s: s.adaptor.rescales),
    _Row("srtm_distributor_brokers_in_trouble", "gauge",
         "Brokers that are late or get more than they hold, whatever their tokens.",
         lambda s: len(s.troubles.ill)),
    _Row("srtm_distributor_proposed_moves", "gauge", "Publishers whose move is proposed.",
         lambda s: sum(len(each.moves) for each in s.troubles.proposals.values())),
    _Row("srtm_distributor_migrated_publishers_total", "counter",
         "Publishers that left a broker in trouble.", lambda s: s.troubles.moved),
    _Row("srtm_distributor_watches", "gauge", "Watch streams open.", lambda s: len(s.watches)),
    _Row("srtm_distributor_watched_publishers", "gauge", "Publishers over all watch streams.",
         lambda s: s.watches.watched),
    _Row("srtm_distributor_commits_total", "counter", "Transactions of the store.",
         lambda s: s.committer.commits),
    _Row("srtm_distributor_writes_total", "counter",
         "Changes that they wrote; registrations that came together are one.",
         lambda s: s.committer.writes),
    _Row("srtm_distributor_commit_seconds_total", "counter", "Time that they took.",
         lambda s: s.committer.seconds),
    _Row("srtm_distributor_commit_longest_seconds", "gauge", "The longest of them.",
         lambda s: s.committer.longest_seconds),
)  # fmt: skip
STATES = ("up", "draining", "lost")
_BROKER_METRICS: tuple[tuple[str, str, Callable[[BrokerShown], float]], ...] = (
    ("capacity", "messages/s that it holds within its SLO.", lambda b: b.capacity),
    ("allocated", "Declared messages/s of the publishers placed there.", lambda b: b.allocated),
)

_TOPIC_METRICS: tuple[tuple[str, str, Callable[[Compared], float]], ...] = (
    ("token_wait_mean_seconds", "Wait for tokens, of the last minute, as gateways measured it.",
     lambda c: c.waits.mean),
    ("token_wait_p99_seconds", "Its 99th percentile.", lambda c: c.waits.p99),
    ("unsplit_wait_mean_seconds", "That of the same messages in one bucket.",
     lambda c: c.unsplit.mean),
    ("unsplit_wait_p99_seconds", "Its 99th percentile.", lambda c: c.unsplit.p99),
    ("penalty_mean_seconds", "What the split costs in waiting; may be below 0.",
     lambda c: c.penalty.mean),
    ("penalty_p99_seconds", "The same at the 99th percentile.", lambda c: c.penalty.p99),
    ("penalty_error_mean_seconds", "By how much clocks and delays may make the mean wrong.",
     lambda c: c.error.mean),
    ("penalty_error_p99_seconds", "The same of the 99th percentile.", lambda c: c.error.p99),
    ("penalty_messages", "Messages that the figures are of.", lambda c: c.messages),
)  # fmt: skip
"""of topics that several brokers share; a topic of which nothing is known has none of them"""


def exposition(service: Distributor | None) -> str:
    """service: None where another distributor leads."""
    lines = [
        "# HELP srtm_distributor_leading 1 where this distributor leads.",
        "# TYPE srtm_distributor_leading gauge",
        f"srtm_distributor_leading {int(service is not None)}",
    ]
    if service is not None:
        for row in METRICS:
            lines += [f"# HELP {row.name} {row.help}", f"# TYPE {row.name} {row.kind}"]
            lines.append(f"{row.name} {row.value(service):.17g}")
        lines += _of_brokers(service)
        lines += _of_topics(service)
    return "\n".join(lines) + "\n"


def _of_brokers(service: Distributor) -> list[str]:
    brokers = [service.brokers.shown(each) for each in sorted(service.state.gateways)]
    lines = [
        "# HELP srtm_distributor_brokers Brokers by state.",
        "# TYPE srtm_distributor_brokers gauge",
    ]
    for state in STATES:
        count = sum(each.state == state for each in brokers)
        lines.append(f'srtm_distributor_brokers{{state="{state}"}} {count}')
    for name, help_, of in _BROKER_METRICS:
        lines += [
            f"# HELP srtm_distributor_broker_{name} {help_}",
            f"# TYPE srtm_distributor_broker_{name} gauge",
        ]
        lines += [
            f'srtm_distributor_broker_{name}{{broker="{each.name}"}} {of(each):.17g}'
            for each in brokers
        ]
    return lines


def _of_topics(service: Distributor) -> list[str]:
    shown = dict(service.penalties.all())
    lines = [
        "# HELP srtm_distributor_topic_penalty_known 1 where the penalty of a shared topic is.",
        "# TYPE srtm_distributor_topic_penalty_known gauge",
    ]
    for name, found in shown.items():
        known = int(isinstance(found, Compared))
        lines.append(f'srtm_distributor_topic_penalty_known{{topic="{name}"}} {known}')
    for metric, help_, of in _TOPIC_METRICS:
        lines += [
            f"# HELP srtm_distributor_topic_{metric} {help_}",
            f"# TYPE srtm_distributor_topic_{metric} gauge",
        ]
        lines += [
            f'srtm_distributor_topic_{metric}{{topic="{name}"}} {of(each):.17g}'
            for name, each in shown.items()
            if isinstance(each, Compared)
        ]
    return lines
