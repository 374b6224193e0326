"""The Load Distributor while it leads: every request as a method, decisions by pure functions.

People change topics, publishers and placements now and then, one change at a time (`changing`).
Each gateway reports once a second, and the answer is all that it is to have from now on; reports
take no lock. So a placement or a rescale only changes what brokers are to have, and the next
reports carry it out: whoever is to have less is told first, and whoever is to have more gets it
once the others have confirmed.

    people, commands                                     gateways
        │ topics.put, placements.place, ...                 │ register, report
        ▼                                                   ▼
    Distributor ── registrations, brokers ──────────▶ shares.py, leases ──▶ Desired
        │              adaptor, penalties, troubles ◀── reports
        ▼
    committer ──▶ store         state (memory)       watches ──▶ clients

A change is written to the store before it is in memory and before it is answered. What a broker may
hold is the exception: it is in memory first, as the careful side of not knowing.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import uniform
from typing import NamedTuple, Protocol

from distributor.api import AdaptationAsked, AdaptationShown
from distributor.api_fields import Unplaced
from distributor.control import fair_keys, learning, quiet
from distributor.control.adaptor import Adaptor, checked
from distributor.control.brokers import BrokerRegistry
from distributor.control.committer import Committer
from distributor.control.penalties import Penalties
from distributor.control.places import where
from distributor.control.registrations import Registrations
from distributor.control.shares import (
    desired_topic,
    grants,
    let_go,
    see,
    share_of,
    suspended,
    waits,
)
from distributor.control.state import ControlState, Gateway, RegisteredTopic
from distributor.control.troubles import Troubles
from distributor.control.watches import Watches
from distributor.errors import NotFound, NotLeading
from distributor.gateway_api import Desired, DesiredTopic, Report, TopicKeys
from distributor.store import Statement
from distributor.store.statements import (
    delete_publisher,
    put_adaptation,
    put_epoch,
    put_grants,
    put_lease,
    put_lineage,
)
from srtm.text.errors import UsageError
from tb_adaptor.leases import Share

log = logging.getLogger("srtm.distributor")

REPORT_SECONDS = 1.0
_LOOK_SECONDS = (150.0, 300.0)
"""from one look at all shares of a broker to the next: some, so that brokers take turns"""
_MEASURING_SECONDS = 0.25
_CHANGING_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Names:
    """The names of all topics that have a contract: gateways let none of them pass unlimited.
    version: the same for the same names, whoever leads."""

    all: tuple[str, ...]
    version: str

    @classmethod
    def of(cls, names: Iterable[str]) -> "Names":
        found = tuple(sorted(names))
        return cls(found, hashlib.sha256("\n".join(found).encode()).hexdigest()[:16])


class Received(NamedTuple):
    """A report that was taken in, and what its broker is to have from now on.

    epoch:    of `document`, its topics, and of `held_up`, those that it is to hold up
    applied:  the epoch that the broker has
    seconds:  until its next report
    """

    gateway: Gateway
    report: Report
    epoch: int
    applied: int
    document: list[DesiredTopic]
    held_up: list[str]
    seconds: float

    @property
    def is_new(self) -> bool:
        """Is it to be written before it is told?"""
        return self.gateway.saved < self.epoch


class RunningFitter(Protocol):
    """A fitting that goes on."""

    def receive(self, broker: str, report: Report, now: float, lapsed: bool) -> None: ...

    async def stop(self) -> None: ...

    def cancel(self) -> None: ...


class Distributor:
    """now: monotonic seconds; wall: seconds since 1970."""

    def __init__(
        self,
        state: ControlState,
        committer: Committer,
        lease_seconds: float,
        now: Callable[[], float],
        wall: Callable[[], float],
        unplaced: Unplaced = "floor",
        forget_others: bool = False,
        longest_lease: float = 0.0,
    ) -> None:
        """forget_others: what gateways know by another store counts for nothing; longest_lease:
        seconds, of those that leaders before may have given, where that is longer than ours"""
        self.unplaced = unplaced
        self.forget_others = forget_others
        self._names: Names | None = None
        self.state = state
        self.lease_seconds = lease_seconds
        self.now = now
        self._longest_lease = longest_lease
        self._longest_until = now() + longest_lease * 4 / 3
        self.wall = wall
        self.watches = Watches()
        self.fitters: dict[str, RunningFitter] = {}
        """of topics that are being fitted"""
        self.changing = asyncio.Lock()
        """held by whoever changes brokers, topics or publishers, from its check to its effect"""
        self.confirmed_at = self.leads_since = now()
        self.committer = committer
        self.adaptor = Adaptor(self)
        self.penalties = Penalties(self)
        self.troubles = Troubles(state, lease_seconds, now, wall)
        self.brokers = BrokerRegistry(self)
        self.registrations = Registrations(self.state, self.changing, self.commit, self.watches)

    # --- brokers ------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Grant shares again once all that could hold something by a better store have been heard,
        or their leases have ended; called once a second or more often. Raises StoreError."""
        if self._longest_lease > self.lease_seconds and self.now() >= self._longest_until:
            await self.commit([put_lease(self.lease_seconds)])
            self._longest_lease = self.lease_seconds
        is_sure = not (self.state.copied or self.state.unsure)
        if is_sure or self.now() < self.state.sure_at:
            return
        async with self.changing:
            if self.now() < self.state.sure_at:  # somebody has shown something newer meanwhile
                return
            if self.state.copied:
                await self.commit(put_lineage(learning.known(self.state)))
                self.state.copied = False
            if not self.state.unsure:
                return
            placements = learning.recovered(self.state, self.wall())
            kept_back = learning.keep_back(self.state, self.state.topics, self.now())
            await self.commit([*kept_back, *learning.settled(self.state, placements)])
            for name, placement in placements:
                self.state.topics[name].history.append(placement)
                self.state.leases[name].place(placement.targets)
                self.state.stir(name)
                for broker in placement.targets:
                    self.state.gateways[broker].topics.add(name)
            self.state.unsure = False
            log.warning("gateways have been heard: shares are granted again")

    def warnings(self) -> list[str]:
        return learning.warnings(self.state, self.now())

    async def report(self, name: str, report: Report) -> Desired:
        """What the broker is to have from now on, on disk before it is told. Raises NotFound,
        NotLeading, UsageError, StoreError."""
        while self.brokers.registering == name:  # whose the name is shows then
            async with self.changing:
                pass
        return await self.finish(self.receive(name, report))

    def receive(self, name: str, report: Report) -> Received:
        """Take a report in, of a broker that is not being registered. Raises NotFound, NotLeading,
        UsageError."""
        now, gateway = self.now(), self._reporting(name, report)
        applied = self._applied(gateway, report)
        lapsed = now >= gateway.lease_ends_at
        gateway.contact_at = now
        for fitter in self.fitters.values():
            fitter.receive(name, report, now, lapsed)
        if self._begins_anew(gateway, now, applied, lapsed):
            gateway.resting.clear()
        quiet.wake(gateway, report)
        told = {each.topic for each in report.topics}
        calm = quiet.calm(self.state, (gateway.topics | told) - gateway.resting)
        if applied >= gateway.applied:
            gateway.applied = applied
            see(self.state, gateway, report, now, may_claim=self.unplaced == "floor")
        shares = {
            topic: self._share(gateway, topic, now, applied)
            for topic in sorted(gateway.topics - gateway.resting)
        }
        document, held_up = self._document(gateway, shares)
        if lapsed or (document, held_up) != (gateway.document, gateway.suspended):
            gateway.epoch = self.state.next_epoch()
            gateway.document, gateway.suspended = document, held_up
            gateway.keyed = fair_keys.keyed(document)
        self.adaptor.receive(name, report, now)
        self.penalties.receive(name, report, now)
        self.troubles.receive(name, report, now)
        self._lease(gateway, shares, now + self.lease_seconds)
        quiet.stir_changed(self.state, calm)
        seconds = self._report_seconds(gateway, shares, now)
        return Received(gateway, report, gateway.epoch, applied, document, held_up, seconds)

    async def finish(self, received: Received) -> Desired:
        """The answer to a report that was taken in, on disk before it is told. Raises
        StoreError."""
        gateway, epoch = received.gateway, received.epoch
        if received.is_new:
            held = put_grants(gateway.row.name, grants(self.state, gateway))
            await self.commit([put_epoch(epoch), *held])
            gateway.saved = max(gateway.saved, epoch)
        return self.answer(received)

    def answer(self, received: Received) -> Desired:
        """What a broker is told whose report was taken in, and written where it is new."""
        gateway, report, epoch, applied, document, held_up, seconds = received
        if epoch >= gateway.written[0]:
            gateway.written = (epoch, document, held_up)
        keys = fair_keys.changed(self.state, gateway, report.keys)
        has_it = applied == epoch and not report.whole
        told = None if has_it else document
        return self._answer(epoch, told, held_up, seconds, report.names_version, keys)

    def _reporting(self, name: str, report: Report) -> Gateway:
        """The gateway that reports. Raises NotFound for one that has to register first, NotLeading
        where another distributor may lead."""
        gateway = self.gateway(name)
        if self.now() > self.confirmed_at + self.lease_seconds / 3:
            raise NotLeading("the store has not confirmed that this distributor leads; ask again")
        if report.process != gateway.process:
            raise NotFound(f"broker {name} has not registered since this distributor leads")
        if self._was_led_elsewhere(gateway, report):
            raise NotFound(f"broker {name} has obeyed another distributor since it registered")
        return gateway

    def _begins_anew(self, gateway: Gateway, now: float, applied: int, lapsed: bool) -> bool:
        """Is more in doubt than what its report tells, or was nothing looked at for minutes? (That
        is not needed, and would mend what should have been stirred and was not.)"""
        if now >= gateway.look_at:
            gateway.look_at = now + uniform(*_LOOK_SECONDS)
            return True
        has_all = gateway.document is not None and applied == gateway.epoch
        return lapsed or not has_all or self.state.listens(now)

    def _document(
        self, gateway: Gateway, shares: Mapping[str, Share]
    ) -> tuple[list[DesiredTopic], list[str]]:
        """What the gateway is told: its topics, and those that it is to hold up. shares: of those
        that were looked at"""
        asked = self.troubles.wants_publishers(gateway.row.name)
        # A topic that was looked at last time may be none of its any more.
        is_same = not shares and gateway.is_still and asked == gateway.asked
        gateway.asked, gateway.is_still = asked, not shares
        if is_same and gateway.document is not None:
            return gateway.document, gateway.suspended
        if gateway.resting:
            shares = {**shares, **{name: gateway.has[name] for name in gateway.resting}}
            shares = {name: shares[name] for name in sorted(shares)}
        wanted = self.adaptor.wants_arrivals(shares)
        document = [
            desired_topic(self.state.topics[topic], share, topic in wanted, topic in asked)
            for topic, share in shares.items()
            if share.rate
        ]
        return document, suspended(self.state, gateway, shares)

    def _lease(self, gateway: Gateway, shares: Mapping[str, Share], ends_at: float) -> None:
        """The gateway may hold these shares, and those that rest, until the lease ends."""
        name = gateway.row.name
        gateway.lease_ends_at = gateway.term.ends_at = ends_at
        if not shares:
            return
        has = {topic: gateway.has[topic] for topic in gateway.resting}
        gateway.has = has | {topic: share for topic, share in shares.items() if share.rate}
        for topic, share in shares.items():
            holders = self.state.leases[topic].holders
            holders[name] = holders[name].told(gateway.epoch, share, ends_at)
        let_go(self.state, gateway, shares)
        quiet.rest(self.state, gateway, shares.keys() & gateway.topics)

    def _was_led_elsewhere(self, gateway: Gateway, report: Report) -> bool:
        """Has the gateway obeyed another distributor since it registered? It would ignore our
        epochs for ever: it has to register, and theirs are left behind. One that has had no answer
        since it registered may still show theirs."""
        is_foreign = report.store not in (None, "", self.state.lineage.id)
        return is_foreign and gateway.document is not None and report.applied_epoch > gateway.epoch

    def _applied(self, gateway: Gateway, report: Report) -> int:
        """The epoch of ours that it has. Raises UsageError for one that nobody gave out."""
        if report.store not in (None, self.state.lineage.id):
            return 0
        if report.applied_epoch > self.state.epoch:
            self.state.refused_epochs += 1
            raise UsageError(
                f"broker {gateway.row.name} shows epoch {report.applied_epoch}, and "
                f"{self.state.epoch} is the largest that was given out"
            )
        return report.applied_epoch

    def _answer(
        self,
        epoch: int,
        document: list[DesiredTopic] | None,
        suspended: list[str],
        seconds: float,
        has_names: str = "",
        keys: Sequence[TopicKeys] = (),
    ) -> Desired:
        names = self.names
        changed = has_names != names.version and not self.state.unsure
        return Desired(
            epoch=epoch,
            lease_seconds=self.lease_seconds,
            topics=document,
            suspended=suspended,
            report_seconds=seconds,
            store=self.state.lineage.id,
            newest=self.state.kept_epoch,
            proof=self.state.lineage.proof(self.state.kept_epoch),
            unplaced=self.unplaced,
            names_version=has_names if self.state.unsure else names.version,
            names=list(names.all) if changed else None,
            keys=list(keys),
        )

    def desired(self, name: str) -> Desired:
        """What it was told last. It gives no lease."""
        return self._answer(*self.gateway(name).written, REPORT_SECONDS)

    # --- adaptation ---------------------------------------------------------------------------

    async def adapt(self) -> None:
        """Several times a second: rescale where it is due. Raises StoreError."""
        async with self.changing:
            await self.adaptor.decide()

    async def set_adaptation(self, name: str, asked: AdaptationAsked) -> AdaptationShown:
        """Raises NotFound, UsageError, StoreError."""
        settings = checked(asked)
        async with self.changing:
            topic = self.topic(name)
            await self.commit([put_adaptation(name, settings.model_dump_json())])
            topic.adaptation = settings
            self.adaptor.begin_anew(name)
        return self.adaptation(name)

    def adaptation(self, name: str) -> AdaptationShown:
        return self.adaptor.shown(name, self.topic(name))

    # --- publishers ---------------------------------------------------------------------------

    async def delete_publisher(self, name: str, publisher: str) -> None:
        async with self.changing:
            where(self.state, name, publisher)
            await self.commit([delete_publisher(name, publisher)])
            self.topic(name).forget(publisher)
            self.watches.notify(name, [publisher])

    # --- inside -------------------------------------------------------------------------------

    @property
    def names(self) -> Names:
        """The names of all topics that have a contract, as gateways are told them; none where
        topics without a share pass."""
        if self._names is None:
            all_ = () if self.unplaced == "pass" else self.state.topics.keys() | self.state.lost
            self._names = Names.of(all_)
        return self._names

    def names_changed(self) -> None:
        self._names = None

    def gateway(self, name: str) -> Gateway:
        found = self.state.gateways.get(name)
        if found is None:
            raise NotFound(
                f"broker {name} is not registered; srtm broker list shows those that are"
            )
        return found

    def topic(self, name: str) -> RegisteredTopic:
        return self.state.topic(name)

    async def commit(self, statements: Sequence[Statement]) -> None:
        """Write the statements with the newest epoch, so that nobody is told an epoch that a
        restart would not know."""
        state, epoch = self.state, self.state.epoch
        if epoch > state.kept_epoch:
            statements = [*statements, put_epoch(epoch)]
        await self.committer.write(statements)
        state.kept_epoch = max(state.kept_epoch, epoch)

    def _share(self, gateway: Gateway, topic: str, now: float, applied: int) -> Share:
        """Its share of one topic, with what its report tells about that taken in."""
        share, ready = share_of(self.state, gateway, topic, now, applied, self.lease_seconds)
        self.watches.notify(topic, ready)
        return share

    def _report_seconds(self, gateway: Gateway, shares: Mapping[str, Share], now: float) -> float:
        """Soon where it waits for others to shrink, or measures for a fitting. shares: of topics
        that are not quiet"""
        if not self.state.listens(now) and any(
            waits(self.state.leases.get(topic), gateway.row.name, share, now)
            for topic, share in shares.items()
        ):
            return _CHANGING_SECONDS
        return _MEASURING_SECONDS if gateway.topics & self.fitters.keys() else REPORT_SECONDS
