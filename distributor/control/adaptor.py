"""The TB Adaptor of a distributor that leads: it follows the reports of each topic that several
brokers serve, and gives the topic another split when its policy asks for one.

A rescale changes what the placement in force gives each broker; leases carry it out, so that the
contract holds whatever is lost. It rests while a topic is fitted, while gateways tell what a lost
store did not know, just after a placement, and while a broker that should report does not.
"""

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import fsum
from typing import Any, Protocol

import numpy as np

from distributor.api import AdaptationAsked, AdaptationShown, RescaleShown
from distributor.control.state import ControlState, InForce, RegisteredTopic
from distributor.gateway_api import Report, TopicReport
from distributor.store import Statement
from distributor.store.statements import put_rescale
from srtm.limits.queueing import Floats
from srtm.text.duration import format_duration, parse_duration
from srtm.text.errors import SrtmError, UsageError
from tb_adaptor.leases import NOTHING, Share
from tb_adaptor.policies import POLICIES, Policy
from tb_adaptor.policies.policy import EARLIEST_SECONDS
from tb_adaptor.share import Part
from tb_adaptor.turns import NOBODY
from tb_adaptor.window import Window, WindowReport, nothing_of, unfinished

log = logging.getLogger("srtm.distributor")

MOST_ASKED = 200
"""topics of a broker whose arrivals are asked for: a busy second of one is 11 kB of a report"""
_SETTLING_SECONDS = 2.0
"""after a placement: publishers are on their way to other brokers"""
_SILENT_SECONDS = 2.5
"""A broker that reported later than that and is not lost: wait for it."""
_MOST_SECONDS = 0.02
"""of a tenth of a second, for decisions: gateways wait meanwhile for their answers"""
_REMEMBERED = 20
"""rescales of a topic that can be explained"""


class Service(Protocol):
    """What the adaptor needs of the distributor."""

    state: ControlState
    lease_seconds: float

    def now(self) -> float: ...

    def wall(self) -> float: ...

    async def commit(self, statements: Sequence[Statement]) -> None: ...


@dataclass
class _Adapted:
    """One topic.

    every:     seconds from one decision to the next
    levels:    tokens of each broker's bucket, less its waiting messages, by its reports
    placed_at: when the placement in force was first seen, by its epoch
    """

    policy: Policy
    window: Window
    every: float
    levels: dict[str, float] = field(default_factory=dict)
    waits: bool = False
    decided_at: float = 0.0
    placed: int = -1
    placed_at: float = 0.0

    def notice(self, epoch: int, now: float) -> None:
        """epoch: of the placement in force"""
        if epoch != self.placed:
            self.placed, self.placed_at = epoch, now


class Adaptor:
    """Times are monotonic seconds of the distributor."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._topics: dict[str, _Adapted] = {}
        self._rescales: dict[str, deque[RescaleShown]] = {}
        self.rescales = 0

    # --- settings -----------------------------------------------------------------------------

    def forget(self, topic: str) -> None:
        """Drop what is known of a topic that is gone."""
        self._topics.pop(topic, None)
        self._rescales.pop(topic, None)

    def begin_anew(self, topic: str) -> None:
        """Forget what the topic's policy saw, so that it begins anew, as with other settings. What
        was done stays to be explained."""
        self._topics.pop(topic, None)

    def wants_arrivals(self, topics: Iterable[str]) -> set[str]:
        """Those of `topics` whose arrivals brokers are to report: topics that several brokers
        share, at most MOST_ASKED. Those that are left as they are count too: what that costs is
        shown."""
        state = self._service.state
        shared = (
            name
            for name in sorted(topics)
            if name in state.topics and len(state.leases[name].targets) > 1
        )
        return set(islice(shared, MOST_ASKED))

    # --- reports ------------------------------------------------------------------------------

    def receive(self, broker: str, report: Report, now: float) -> None:
        for each in report.topics:
            topic = self._service.state.topics.get(each.topic)
            leases = self._service.state.leases.get(each.topic)
            if topic is None or leases is None or broker not in leases.targets:
                continue
            if topic.adaptation.policy == "off" or len(leases.targets) < 2:
                continue
            if leases.turns.broker is not None:
                continue  # nobody has the share that the placement gives
            share = leases.holders[broker].acknowledged
            if share != NOTHING:
                self._keep(self._of(each.topic, topic), broker, each, share, report.seconds, now)

    def _of(self, name: str, topic: RegisteredTopic) -> _Adapted:
        found = self._topics.get(name)
        if found is None:
            asked = topic.adaptation
            window = Window(parse_duration(asked.window))
            policy, every = POLICIES[asked.policy].make(), parse_duration(asked.every)
            found = self._topics[name] = _Adapted(policy, window, every)
            found.decided_at = self._service.now()
        if topic.in_force is not None:
            found.notice(topic.in_force.epoch, self._service.now())
        return found

    def _keep(
        self,
        adapted: _Adapted,
        broker: str,
        report: TopicReport,
        share: Share,
        seconds: float,
        now: float,
    ) -> None:
        part = Part(share.rate, share.burst)
        times, counts = _arrivals(report, seconds, now)
        level = min(adapted.levels.get(broker, part.burst), part.burst)
        most, level = unfinished(level, part, now - seconds, times, counts, now)
        tokens = report.waits.tokens if report.waits else None
        if tokens is not None and tokens >= part.burst:
            level = part.burst  # it may not be told again until something comes
        adapted.levels[broker] = -report.waiting if report.waiting else max(0.0, level)
        adapted.window.add(
            broker,
            WindowReport(now, part, times, counts, report.waiting, max(most, report.waiting)),
        )
        adapted.waits = adapted.waits or report.waiting > 0

    # --- decisions ----------------------------------------------------------------------------

    async def decide(self) -> None:
        """Decide for the topics of which a decision is due, for as many as there is time for;
        under the lock `changing`. Raises StoreError."""
        begun = self._service.now()
        for name in list(self._topics):
            now = self._service.now()
            if now > begun + _MOST_SECONDS:
                break  # who was decided for goes to the end, so the others come first next time
            topic = self._service.state.topics.get(name)
            if topic is None:
                self.forget(name)
            elif topic.adaptation.policy == "off":
                self.begin_anew(name)
            elif _is_due(self._topics[name], now):
                self._topics[name] = self._topics.pop(name)
                try:
                    if await self._decide(name, topic, self._topics[name], now):
                        begun = self._service.now()  # others had their turn as it was written
                except SrtmError:
                    raise
                except Exception:  # the other topics go on
                    log.exception("topic %s: its shares stay as they are", name)
                    self.begin_anew(name)

    def resting(self, name: str, topic: RegisteredTopic, now: float) -> str:
        """Why nothing is moved; empty where it may be."""
        state, adapted = self._service.state, self._topics.get(name)
        targets = state.leases[name].targets if name in state.leases else {}
        if topic.adaptation.policy == "off":
            return "it is off"
        if topic.in_force is None or len(targets) < 2:
            return "no two brokers share the topic"
        if topic.is_fitted:
            return "the topic is being fitted"
        if state.leases[name].turns.broker == NOBODY:
            return "nobody sends until it is paid what a broker owed that is gone"
        if state.leases[name].turns.broker is not None:
            return "a batch bigger than a share has the whole contract for a moment"
        if state.listens(now):
            return "gateways tell what they hold"
        if adapted is None:
            return "it waits for the first reports"
        adapted.notice(topic.in_force.epoch, now)
        if now < adapted.placed_at + _SETTLING_SECONDS:
            return "the topic was placed just now"
        for broker in targets:
            silent = now - state.gateways[broker].contact_at
            if _SILENT_SECONDS < silent < self._service.lease_seconds:
                return f"broker {broker} has not reported for {silent:.1f} s"
        return ""

    async def _decide(
        self, name: str, topic: RegisteredTopic, adapted: _Adapted, now: float
    ) -> bool:
        """Was it rescaled?"""
        if self.resting(name, topic, now):
            return False
        adapted.decided_at, adapted.waits = now, False
        targets = self._service.state.leases[name].targets
        seen, gateways = adapted.window.seen(now), self._service.state.gateways
        for broker in seen.keys() - targets.keys():
            adapted.window.forget(broker)
            del seen[broker]
        for broker, its in seen.items():  # since it named the topic nothing has come
            seen[broker] = replace(its, until=max(its.until, gateways[broker].contact_at))
        for broker in targets.keys() - seen.keys():  # it is lost, or nothing has come to it
            seen[broker] = nothing_of(Part(targets[broker].rate, targets[broker].burst), now)
        whole = Part(
            fsum(each.rate for each in targets.values()),
            fsum(each.burst for each in targets.values()),
        )
        found = adapted.policy.rescale(whole, seen, now)
        if found is None:
            return False
        assert topic.in_force is not None
        before = {broker: (each.rate, each.burst) for broker, each in targets.items()}
        after = {broker: (part.rate, part.burst) for broker, part in found.split.items()}
        changed = _with(topic.in_force, after)
        await self._service.commit([put_rescale(changed.row(name))])
        topic.history[-1] = changed
        self._service.state.leases[name].place(changed.targets)
        self._service.state.stir(name)
        self.rescales += 1
        self._rescales.setdefault(name, deque(maxlen=_REMEMBERED)).append(
            RescaleShown(
                at=self._service.wall(), before=before, after=after, reasons=list(found.reasons)
            )
        )
        log.info("topic %s: rescaled: %s", name, "; ".join(found.reasons))
        return True

    # --- what is shown ------------------------------------------------------------------------

    def shown(self, name: str, topic: RegisteredTopic) -> AdaptationShown:
        leases = self._service.state.leases.get(name)
        targets = leases.targets if leases else {}
        rescales = list(self._rescales.get(name, ()))[::-1]
        changes = [topic.in_force.at] if topic.in_force else []
        changes += [each.at for each in rescales[:1]]
        return AdaptationShown(
            topic=name,
            policy=topic.adaptation.policy,
            window=topic.adaptation.window,
            every=topic.adaptation.every,
            resting=self.resting(name, topic, self._service.now()),
            since=max(changes, default=None),
            shares={broker: (each.rate, each.burst) for broker, each in sorted(targets.items())},
            rescales=rescales,
        )


def _is_due(adapted: _Adapted, now: float) -> bool:
    since = now - adapted.decided_at
    early = adapted.waits and adapted.policy.acts_early and since >= EARLIEST_SECONDS
    return early or since >= adapted.every


def checked(asked: AdaptationAsked) -> AdaptationAsked:
    """Raises UsageError for a duration that is none, or too short."""
    values: dict[str, Any] = {}
    for name in ("window", "every"):
        text = getattr(asked, name)
        try:
            seconds = parse_duration(text)
        except ValueError as error:
            raise UsageError(f"{name} {text}: {error}") from None
        if not 1 <= seconds <= 3600:
            raise UsageError(f"{name} {text}: from 1s to 1h")
        values[name] = format_duration(seconds)
    return asked.model_copy(update=values)


def _with(before: InForce, parts: dict[str, tuple[float, float]]) -> InForce:
    return replace(
        before,
        brokers=tuple(
            each.model_copy(update={"r": parts[each.name][0], "b": parts[each.name][1]})
            for each in before.brokers
        ),
    )


def _arrivals(report: TopicReport, seconds: float, now: float) -> tuple[Floats, Floats]:
    """When its messages came. A broker that was not asked yet says only how many: they are taken
    to have come evenly."""
    if report.arrivals:
        pairs = sorted((now - ago / 1e3, count) for ago, count in report.arrivals if count)
        return np.array([at for at, _ in pairs]), np.array([count for _, count in pairs])
    count = round(report.offered * seconds)
    steps = min(count, _STEPS)
    if not steps:
        return np.empty(0), np.empty(0)
    times = now - seconds + (np.arange(steps) + 1) * seconds / steps
    return times, np.full(steps, count / steps)


_STEPS = 1_000
