"""The live DRL penalty of each topic that several brokers share, from their reports."""

from collections import Counter
from collections.abc import Iterator
from typing import Protocol

import numpy as np

from distributor.api import PenaltyShown, StrandedShown, WaitShown
from distributor.control.state import ControlState
from distributor.gateway_api import Report, TopicReport
from srtm.limits.queueing import Floats
from tb_adaptor.leases import NOTHING, Holder, TopicLeases
from tb_adaptor.penalty import Compared, Figures, Head, Heard, Host, Penalty, Stranded, Waits
from tb_adaptor.penalty.broker_level import NO_FLOATS
from tb_adaptor.penalty.penalty import NO_BOOLS, Bools
from tb_adaptor.share import Part


class Service(Protocol):
    """What they need of the distributor."""

    state: ControlState

    def now(self) -> float: ...


class Penalties:
    """Times are monotonic seconds of the distributor."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._topics: dict[str, Penalty] = {}
        self._hosts: dict[str, Host] = {}

    def forget(self, topic: str) -> None:
        self._topics.pop(topic, None)

    def receive(self, broker: str, report: Report, now: float) -> None:
        state, host = self._service.state, self._told(broker, report, now)
        for each in report.topics:
            topic, leases = state.topics.get(each.topic), state.leases.get(each.topic)
            if topic is None or leases is None or len(leases.targets) < 2 or topic.is_fitted:
                self.forget(each.topic)
                continue
            contract = Part(topic.contract.rate, topic.contract.burst)
            brokers = _brokers(leases, now)
            penalty = self._topics.get(each.topic)
            if penalty is None or penalty.contract != contract or penalty.brokers != brokers:
                penalty = Penalty(each.topic, contract, brokers, now, self._hosts)
                self._topics[each.topic] = penalty
            if broker in brokers:
                if host is not None and report.answered is not None:
                    heard = _heard(each, report, report.answered, _part(leases, broker), now)
                    penalty.receive(broker, heard)
                    _note(host, each.topic, heard)
            elif each.offered or each.backlog:
                penalty.restart(now, f"messages come to broker {broker}, which has no share")

    def _told(self, broker: str, report: Report, now: float) -> Host | None:
        """The gateway's host, with this report; None where it tells no clock."""
        host = self._hosts.get(broker)
        if host is None:
            host = self._hosts[broker] = Host()
        if len(self._hosts) > len(self._service.state.gateways):
            for gone in self._hosts.keys() - self._service.state.gateways.keys():
                del self._hosts[gone]
        if report.answered is None or report.clock is None:
            host.begin_anew("broker {} tells no clock")
            return None
        told = Head(now, report.clock / 1e3, report.answered, report.seconds, report.round_trip)
        host.report(told)
        return host

    # --- what is shown ------------------------------------------------------------------------

    def all(self) -> Iterator[tuple[str, Compared | str]]:
        """The penalties of the topics that several brokers share, by name: figures, or why there
        are none."""
        now = self._service.now()
        for name in sorted(self._topics):
            penalty = self._topics[name]
            if penalty.has_pending:
                penalty.catch_up(now)
            yield name, penalty.shown(now)

    def stranded(self) -> Iterator[tuple[str, Stranded]]:
        """Stranded tokens of the topics of which they are known, by name."""
        now = self._service.now()
        for name in sorted(self._topics):
            found = self._topics[name].stranded(now)
            if found is not None:
                yield name, found

    def shown(self, name: str) -> PenaltyShown:
        """Raises NotFound."""
        topic, leases = self._service.state.topic(name), self._service.state.leases.get(name)
        penalty = self._topics.get(name)
        if leases is None or len(leases.targets) < 2:
            return PenaltyShown(topic=name, unknown="no two brokers share the topic")
        if topic.is_fitted:
            return PenaltyShown(topic=name, unknown="the topic is being fitted")
        if penalty is None:
            return PenaltyShown(topic=name, unknown="no broker has reported yet")
        penalty.catch_up(self._service.now())
        found = penalty.shown(self._service.now())
        stranded = _stranded_shown(penalty.stranded(self._service.now()))
        if isinstance(found, str):
            return PenaltyShown(topic=name, unknown=found, stranded=stranded)
        return PenaltyShown(
            topic=name,
            seconds=found.seconds,
            messages=found.messages,
            token_wait=_shown(found.waits),
            unsplit=_shown(found.unsplit),
            penalty=_shown(found.penalty),
            error=_shown(found.error),
            stranded=stranded,
        )


def _brokers(leases: TopicLeases, now: float) -> frozenset[str]:
    """All brokers that may let messages of the topic through."""
    if leases.holders.keys() <= leases.targets.keys():
        return frozenset(leases.targets)
    holders = {name for name, each in leases.holders.items() if each.most(now) != NOTHING}
    return frozenset(holders | leases.targets.keys())


def _part(leases: TopicLeases, broker: str) -> Part:
    """The share that it had when it reported."""
    share = leases.holders.get(broker, Holder()).acknowledged
    return Part(share.rate, share.burst)


def _heard(topic: TopicReport, report: Report, number: int, part: Part, now: float) -> Heard:
    clock = topic.waits.clock if topic.waits else 0.0
    times, counts, batches = _arrivals(topic, clock)
    waits = None
    if topic.waits is not None:
        held = None if topic.waits.held is None else int(topic.waits.held)
        bins = Counter({key: int(count) for key, count in topic.waits.bins})
        tokens = None if topic.waits.tokens is None else topic.waits.tokens - topic.debt
        waits = Waits(bins, topic.waits.seconds, held, tokens)
    return Heard(
        now,
        clock / 1e3,
        number,
        report.seconds,
        report.round_trip,
        times,
        counts,
        batches,
        waits,
        part,
    )


def _note(host: Host, topic: str, heard: Heard) -> None:
    """Is the topic idle there? Then the gateway may tell no more of it until something comes."""
    waits, part = heard.waits, heard.part
    is_full = waits is not None and waits.tokens is not None and waits.tokens >= part.burst
    if is_full and waits is not None and not (waits.held or waits.bins or heard.times.size):
        host.idle[topic] = part
    else:
        host.idle.pop(topic, None)


def _arrivals(topic: TopicReport, clock: float) -> tuple[Floats, Floats, Bools]:
    """times, counts, batches as `Heard` has them. clock: milliseconds"""
    if not topic.arrivals:
        return NO_FLOATS, NO_FLOATS, NO_BOOLS
    batches = [(ago, count) for ago, count in topic.batches if count >= 1]
    singles: dict[float, float] = {}
    for ago, count in topic.arrivals:
        singles[ago] = singles.get(ago, 0.0) + count
    for ago, count in batches:
        singles[ago] = singles.get(ago, 0.0) - count
    rows = [((clock - ago) / 1e3, count, False) for ago, count in singles.items() if count >= 1]
    rows += [((clock - ago) / 1e3, count, True) for ago, count in batches]
    rows.sort()
    return (
        np.array([at for at, _, _ in rows]),
        np.array([float(int(count)) for _, count, _ in rows]),
        np.array([batch for _, _, batch in rows], dtype=np.bool_),
    )


def _shown(figures: Figures) -> WaitShown:
    return WaitShown(mean=figures.mean, p99=figures.p99)


def _stranded_shown(found: Stranded | None) -> StrandedShown | None:
    if found is None:
        return None
    return StrandedShown(seconds=found.seconds, least=found.least, most=found.most)
