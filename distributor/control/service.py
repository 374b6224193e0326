"""The Load Distributor while it leads: every request as a method, decisions by pure functions.

A change is written to the store before it is in memory and before it is answered. What a broker may
hold is the exception: it is in memory first, as the careful side of not knowing.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from math import fsum
from typing import Protocol

from distributor.api import AdaptationAsked, AdaptationShown, TopicAsked, TopicShown
from distributor.api_fields import MAX_TOPICS, Unplaced
from distributor.control import learning
from distributor.control.adaptor import Adaptor, checked
from distributor.control.brokers import BrokerRegistry
from distributor.control.committer import Committer
from distributor.control.penalties import Penalties
from distributor.control.placement_inputs import contract_changed
from distributor.control.places import where
from distributor.control.registrations import Registrations, check_key
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
from distributor.control.topic_names import Names
from distributor.control.troubles import Troubles
from distributor.control.watches import Watches
from distributor.errors import Conflict, NotFound, NotLeading
from distributor.gateway_api import Desired, DesiredTopic, Report
from distributor.store import Statement
from distributor.store.statements import (
    delete_lost,
    delete_publisher,
    delete_topic,
    put_adaptation,
    put_epoch,
    put_grants,
    put_lease,
    put_placement,
    put_topic,
)
from srtm.limits.contract import Contract
from srtm.text.errors import UsageError
from tb_adaptor.leases import NOTHING, Share, TopicLeases
from tb_adaptor.turns import Turns

log = logging.getLogger("srtm.distributor")

REPORT_SECONDS = 1.0
_MEASURING_SECONDS = 0.25
_CHANGING_SECONDS = 0.1


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
        if not self.state.unsure or self.now() < self.state.sure_at:
            return
        async with self.changing:
            placements = learning.recovered(self.state, self.wall())
            kept_back = learning.keep_back(self.state, self.state.topics, self.now())
            await self.commit([*kept_back, *learning.settled(self.state, placements)])
            for name, placement in placements:
                self.state.topics[name].history.append(placement)
                self.state.leases[name].place(placement.targets)
                for broker in placement.targets:
                    self.state.gateways[broker].topics.add(name)
            self.state.unsure = False
            log.warning("gateways have been heard: shares are granted again")

    def warnings(self) -> list[str]:
        return learning.warnings(self.state, self.now())

    async def report(self, name: str, report: Report) -> Desired:
        """What the broker is to have from now on, on disk before it is told. Raises NotFound,
        NotLeading, UsageError, StoreError."""
        now, gateway = self.now(), self.gateway(name)
        if now > self.confirmed_at + self.lease_seconds / 3:
            raise NotLeading("the store has not confirmed that this distributor leads; ask again")
        if report.process != gateway.process:
            raise NotFound(f"broker {name} has not registered since this distributor leads")
        if self._was_led_elsewhere(gateway, report):
            raise NotFound(f"broker {name} has obeyed another distributor since it registered")
        applied = self._applied(gateway, report)
        lapsed = now >= gateway.lease_ends_at
        gateway.contact_at = now
        for fitter in self.fitters.values():
            fitter.receive(name, report, now, lapsed)
        if applied >= gateway.applied:
            gateway.applied = applied
            see(self.state, gateway, report, now, may_claim=self.unplaced == "floor")
        shares = {
            topic: self._share(gateway, topic, now, applied) for topic in sorted(gateway.topics)
        }
        wanted = self.adaptor.wants_arrivals(shares)
        asked = self.troubles.wants_publishers(name)
        document = [
            desired_topic(self.state.topics[topic], share, topic in wanted, topic in asked)
            for topic, share in shares.items()
            if share.rate
        ]
        held_up = suspended(self.state, gateway, shares)
        if lapsed or (document, held_up) != (gateway.document, gateway.suspended):
            gateway.epoch = self.state.next_epoch()
            gateway.document, gateway.suspended = document, held_up
        self.adaptor.receive(name, report, now)
        self.penalties.receive(name, report, now)
        self.troubles.receive(name, report, now)
        gateway.lease_ends_at = now + self.lease_seconds
        gateway.has = {topic: share for topic, share in shares.items() if share.rate}
        for topic, share in shares.items():
            holders = self.state.leases[topic].holders
            holders[name] = holders[name].told(gateway.epoch, share, gateway.lease_ends_at)
        let_go(self.state, gateway)
        epoch = gateway.epoch
        if gateway.saved < epoch:
            await self.commit([put_epoch(epoch), *put_grants(name, grants(self.state, gateway))])
            gateway.saved = max(gateway.saved, epoch)
        if epoch >= gateway.written[0]:
            gateway.written = (epoch, document, held_up)
        return self._answer(
            epoch, document, held_up, self._report_seconds(name, shares, now), report.names_version
        )

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
        document: list[DesiredTopic],
        suspended: list[str],
        seconds: float,
        has_names: str = "",
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
        )

    def desired(self, name: str) -> Desired:
        """What it was told last. It gives no lease."""
        return self._answer(*self.gateway(name).written, REPORT_SECONDS)

    # --- topics -------------------------------------------------------------------------------

    async def put_topic(self, name: str, asked: TopicAsked) -> TopicShown:
        """Raises UsageError for a bad contract, Conflict where it does not fit what is there."""
        values = asked.model_dump(exclude={"keys"}, exclude_none=True)
        if "max_wait" in values and not isinstance(values["max_wait"], str):
            values["max_wait"] = float(values["max_wait"])
        contract = Contract.read({"topic": name, **values}, f"topic {name}")
        keys = None if asked.keys is None else frozenset(asked.keys)
        async with self.changing:
            known = self.state.topics.get(name)
            if known and keys is not None:
                for publisher, (key, _) in known.publishers.items():
                    check_key(name, publisher, key, keys)
            if known is None and len(self.state.topics) >= MAX_TOPICS:
                raise Conflict(
                    f"topic {name}: {MAX_TOPICS:,} topics are registered, the most of one "
                    "distributor; delete some"
                )
            changed = RegisteredTopic(contract, keys)
            statements = [put_topic(changed.row()), delete_lost(name)]
            placement = None
            if known and known.in_force and contract != known.contract:
                placement = contract_changed(
                    contract,
                    known.in_force,
                    self.state.leases[name],
                    self.now(),
                    self.wall(),
                    self.state.next_epoch(),
                )
                statements += put_placement(placement.row(name), {})
                statements.append(put_epoch(placement.epoch))
            await self.commit(statements)
            if known:
                known.contract, known.keys = contract, keys
            else:
                known = self.state.topics[name] = changed
                self.state.lost.discard(name)
                self.names_changed()
            # Not before the commit: a report that comes meanwhile forgets those of a topic that was
            # deleted, once no broker holds any of it.
            leases = self.state.leases.setdefault(name, TopicLeases())
            leases.agree(contract)
            if placement:
                known.history.append(placement)
                leases.place(placement.targets)
        return self.topic_shown(name)

    async def delete_topic(self, name: str) -> None:
        async with self.changing:
            if name in self.state.lost:
                await self.commit(delete_topic(name))
                self.state.lost.discard(name)
                self.names_changed()
                return
            topic = self.topic(name)
            await self.commit(delete_topic(name))
            self.names_changed()
            if name in self.fitters:
                self.fitters[name].cancel()
            del self.state.topics[name]
            self.state.leases[name].place({})
            self.state.leases[name].total = NOTHING
            self.state.leases[name].turns = Turns()
            self.adaptor.forget(name)
            self.penalties.forget(name)
            self.troubles.forget(name)
            self.watches.notify(name, topic.publishers)

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

    def topic_shown(self, name: str) -> TopicShown:
        topic = self.topic(name)
        contract = topic.contract.document()
        return TopicShown(
            topic=name,
            rate=topic.contract.rate,
            burst=topic.contract.burst,
            slo=contract.get("slo"),
            mode=topic.contract.mode,
            max_wait=contract.get("max-wait"),
            batch=topic.contract.batch,
            batches=topic.contract.batches,
            largest_batch=self.state.leases[name].seen,
            keys=None if topic.keys is None else sorted(topic.keys),
            publishers=len(topic.publishers),
            placed=len(topic.places),
            offered=fsum(rate for _, rate in topic.publishers.values()),
            epoch=topic.in_force.epoch if topic.in_force else None,
        )

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

    def _report_seconds(self, broker: str, shares: Mapping[str, Share], now: float) -> float:
        """Soon where it waits for others to shrink, or measures for a fitting."""
        if not self.state.listens(now) and any(
            waits(self.state.leases.get(topic), broker, share, now)
            for topic, share in shares.items()
        ):
            return _CHANGING_SECONDS
        return _MEASURING_SECONDS if shares.keys() & self.fitters.keys() else REPORT_SECONDS
