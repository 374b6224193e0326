"""The Load Distributor while it leads: every request as a method, decisions by pure functions.

A change is written to the store before it is in memory and before it is answered. What a broker may
hold is the exception: it is in memory first, as the careful side of not knowing.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from math import fsum
from typing import Protocol

from distributor.api import (
    BrokerAnswer,
    BrokerAsked,
    BrokerShown,
    Desired,
    DesiredTopic,
    Place,
    Report,
    TopicAsked,
    TopicShown,
)
from distributor.committer import Committer
from distributor.errors import Conflict, NotFound, NotLeading
from distributor.leases import NOTHING, Holder, Share, TopicLeases
from distributor.placing import contract_changed
from distributor.registrations import Registrations, check_key
from distributor.state import Gateway, State, Topic
from distributor.store import BrokerRow, GrantRow, Statement
from distributor.store.statements import (
    delete_broker,
    delete_publisher,
    delete_topic,
    put_broker,
    put_epoch,
    put_grants,
    put_placement,
    put_topic,
)
from distributor.watches import Watches
from srtm.contract import Contract

REPORT_SECONDS = 1.0
_MEASURING_SECONDS = 0.25
_CHANGING_SECONDS = 0.1


class Fitter(Protocol):
    """A fitting that goes on."""

    def hear(self, broker: str, report: Report, now: float, lapsed: bool) -> None: ...

    async def stop(self) -> None: ...

    def cancel(self) -> None: ...


class Distributor:
    """now: monotonic seconds; wall: seconds since 1970."""

    def __init__(
        self,
        state: State,
        committer: Committer,
        lease_seconds: float,
        now: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self.state = state
        self.lease_seconds = lease_seconds
        self.now = now
        self.wall = wall
        self.watches = Watches()
        self.fitters: dict[str, Fitter] = {}
        """of topics that are being fitted"""
        self.changing = asyncio.Lock()
        """held by whoever changes brokers, topics or publishers, from its check to its effect"""
        self.confirmed_at = now()
        self.committer = committer
        self.registrations = Registrations(self.state, self.changing, self.commit, self.watches)

    # --- brokers ------------------------------------------------------------------------------

    async def register_broker(self, asked: BrokerAsked) -> BrokerAnswer:
        async with self.changing:
            known = self.state.gateways.get(asked.name)
            capacity = asked.capacity
            if capacity is None:
                capacity = known.row.capacity if known else 0.0
            row = BrokerRow(
                asked.name,
                asked.tcp_address,
                asked.http_address,
                capacity,
                known.row.draining if known else False,
            )
            if known is None or known.row != row:
                await self.commit([put_broker(row)])
                if known is None:
                    known = self.state.gateways[asked.name] = Gateway(row)
                elif known.row.tcp_address != row.tcp_address:
                    known.row = row
                    self._address_changed(row.name)
                known.row = row
            known.contact_at = self.now()
            return BrokerAnswer(name=row.name, epoch=known.epoch, lease_seconds=self.lease_seconds)

    async def report(self, name: str, report: Report) -> Desired:
        """What the broker is to have from now on, on disk before it is told. Raises NotFound,
        NotLeading, StoreError."""
        now, gateway = self.now(), self.gateway(name)
        if now > self.confirmed_at + self.lease_seconds / 3:
            raise NotLeading("the store has not confirmed that this distributor leads; ask again")
        lapsed = now >= gateway.lease_ends_at
        unknown = report.applied_epoch > self.state.epoch
        if unknown:  # the store is an older copy: what it told since is not to be told again
            self.state.epoch = report.applied_epoch
        gateway.contact_at = now
        for fitter in self.fitters.values():
            fitter.hear(name, report, now, lapsed)
        if report.applied_epoch >= gateway.applied:
            gateway.applied = report.applied_epoch
            for each in report.topics:
                if (each.offered or each.backlog) and each.topic in gateway.topics:
                    gateway.busy_at[each.topic] = now
        shares = {
            topic: self._share(gateway, topic, now, report.applied_epoch)
            for topic in sorted(gateway.topics)
        }
        document = [self._desired(topic, share) for topic, share in shares.items() if share.rate]
        if lapsed or unknown or document != gateway.document:
            gateway.epoch = self.state.next_epoch()
            gateway.document = document
        gateway.lease_ends_at = now + self.lease_seconds
        for topic, share in shares.items():
            holders = self.state.leases[topic].holders
            holders[name] = holders[name].told(gateway.epoch, share, gateway.lease_ends_at)
        self._let_go(gateway)
        epoch = gateway.epoch
        if gateway.saved < epoch:
            await self.commit([put_epoch(epoch), *put_grants(name, self._grants(gateway))])
            gateway.saved = max(gateway.saved, epoch)
        return Desired(
            epoch=epoch,
            lease_seconds=self.lease_seconds,
            topics=document,
            report_seconds=self._report_seconds(name, shares, now),
        )

    def desired(self, name: str) -> Desired:
        """What it was told last. It gives no lease."""
        gateway = self.gateway(name)
        return Desired(
            epoch=gateway.epoch,
            lease_seconds=self.lease_seconds,
            topics=gateway.document or [],
            report_seconds=REPORT_SECONDS,
        )

    async def drain(self, name: str, drain: bool) -> BrokerShown:
        async with self.changing:
            row = self.gateway(name).row
            changed = BrokerRow(row.name, row.tcp_address, row.http_address, row.capacity, drain)
            await self.commit([put_broker(changed)])
            self.gateway(name).row = changed
        return self.broker(name)

    async def forget_broker(self, name: str) -> None:
        """Its host is gone for good, somebody says: what it may hold is free. Raises Conflict."""
        async with self.changing:
            gateway = self.gateway(name)
            if gateway.state(self.now(), self.lease_seconds) != "lost":
                raise Conflict(f"broker {name} is in contact: stop its gateway first")
            serving = [each for each, its in self.state.leases.items() if name in its.targets]
            if serving:
                raise Conflict(f"broker {name} serves {serving[0]}: place that topic again first")
            await self.commit(delete_broker(name))
            del self.state.gateways[name]
            self.state.model = self.state.model.without(name)
            for leases in self.state.leases.values():
                leases.holders.pop(name, None)

    def broker(self, name: str) -> BrokerShown:
        gateway = self.gateway(name)
        return BrokerShown(
            name=name,
            tcp_address=gateway.row.tcp_address,
            http_address=gateway.row.http_address,
            capacity=gateway.row.capacity,
            allocated=self.state.allocated(name),
            state=gateway.state(self.now(), self.lease_seconds),  # type: ignore[arg-type]
            epoch=gateway.epoch,
            applied_epoch=gateway.applied,
            topics=sorted(gateway.topics),
        )

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
            leases = self.state.leases.setdefault(name, TopicLeases())
            changed = Topic(contract, keys)
            statements = [put_topic(changed.row())]
            placement = None
            if known and known.in_force and contract != known.contract:
                placement = contract_changed(
                    contract,
                    known.in_force,
                    leases,
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
            leases.total = Share(contract.rate, contract.burst)
            if placement:
                known.history.append(placement)
                leases.targets = placement.targets
        return self.topic_shown(name)

    async def delete_topic(self, name: str) -> None:
        async with self.changing:
            topic = self.topic(name)
            await self.commit(delete_topic(name))
            if name in self.fitters:
                self.fitters[name].cancel()
            del self.state.topics[name]
            self.state.leases[name].targets = {}
            self.state.leases[name].total = NOTHING
            self.watches.notify(name, topic.publishers)

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
            keys=None if topic.keys is None else sorted(topic.keys),
            publishers=len(topic.publishers),
            placed=len(topic.places),
            offered=fsum(rate for _, rate in topic.publishers.values()),
            epoch=topic.in_force.epoch if topic.in_force else None,
        )

    # --- publishers ---------------------------------------------------------------------------

    async def delete_publisher(self, name: str, publisher: str) -> None:
        async with self.changing:
            self.where(name, publisher)
            await self.commit([delete_publisher(name, publisher)])
            self.topic(name).forget(publisher)
            self.watches.notify(name, [publisher])

    def where(self, name: str, publisher: str) -> Place:
        """Raises NotFound."""
        if publisher not in self.topic(name).publishers:
            raise NotFound(f"topic {name} has no publisher {publisher}; register it first")
        return self.place_of(name, publisher)

    def place_of(self, name: str, publisher: str) -> Place:
        """Of any id: one that nobody registered has no rate and no broker."""
        topic = self.state.topics.get(name)
        if topic is None or publisher not in topic.publishers:
            return Place(id=publisher, key=None, rate=None, broker=None, tcp_address=None, epoch=0)
        key, rate = topic.publishers[publisher]
        broker, epoch = topic.shown.get(publisher, (None, 0))
        gateway = self.state.gateways.get(broker) if broker else None
        address = gateway.row.tcp_address if gateway else None
        return Place(
            id=publisher, key=key, rate=rate, broker=broker, tcp_address=address, epoch=epoch
        )

    # --- inside -------------------------------------------------------------------------------

    def gateway(self, name: str) -> Gateway:
        found = self.state.gateways.get(name)
        if found is None:
            raise NotFound(
                f"broker {name} is not registered; srtm broker list shows those that are"
            )
        return found

    def topic(self, name: str) -> Topic:
        return self.state.topic(name)

    async def commit(self, statements: Sequence[Statement]) -> None:
        await self.committer.write(statements)

    def _share(self, gateway: Gateway, topic: str, now: float, applied: int) -> Share:
        """Its share of one topic, with what its report tells about that taken in."""
        name, leases = gateway.row.name, self.state.leases.setdefault(topic, TopicLeases())
        holder = leases.holders.get(name, Holder()).heard(now, applied)
        leases.holders[name] = holder
        known = self.state.topics.get(topic)
        if known and holder.acknowledged != NOTHING and holder.granted[0][0] <= applied:
            self.watches.notify(topic, known.acknowledge(name))
        busy = now < gateway.busy_at.get(topic, -self.lease_seconds) + self.lease_seconds
        awaited = known is not None and any(
            each not in known.ready for each in leases.targets
        )  # publishers are still to leave for a broker that has no share yet
        return leases.share(name, now, keep_floor=known is not None and (busy or awaited))

    def _desired(self, name: str, share: Share) -> DesiredTopic:
        topic = self.state.topics[name]
        contract = topic.contract
        document = contract.document()
        return DesiredTopic(
            topic=name,
            rate=share.rate,
            burst=share.burst,
            mode=contract.mode,
            max_wait=document.get("max-wait"),
            slo=document.get("slo"),
            safe_rate=share.floor.rate,
            safe_burst=share.floor.burst,
            arrivals=topic.is_fitted,
            emptied=topic.emptied,
        )

    def _report_seconds(self, broker: str, shares: Mapping[str, Share], now: float) -> float:
        """Soon where it waits for others to shrink, or measures for a fitting."""
        for topic, share in shares.items():
            leases = self.state.leases.get(topic)
            if leases and broker in leases.targets and share != leases.target(broker, now):
                return _CHANGING_SECONDS
        return _MEASURING_SECONDS if shares.keys() & self.fitters.keys() else REPORT_SECONDS

    def _let_go(self, gateway: Gateway) -> None:
        """Topics of which it holds nothing and is to have nothing are none of its any more."""
        for topic in list(gateway.topics):
            leases = self.state.leases[topic]
            holder = leases.holders[gateway.row.name]
            if gateway.row.name not in leases.targets and holder.settled and holder.last == NOTHING:
                del leases.holders[gateway.row.name]
                gateway.topics.discard(topic)
                gateway.busy_at.pop(topic, None)
                if topic in self.state.topics:
                    self.state.topics[topic].ready.discard(gateway.row.name)
                elif not leases.holders:
                    del self.state.leases[topic]

    def _grants(self, gateway: Gateway) -> list[GrantRow]:
        name = gateway.row.name
        return [
            GrantRow(topic, name, epoch, share.rate, share.burst)
            for topic in sorted(gateway.topics)
            for epoch, share in self.state.leases[topic].holders[name].granted
            if epoch
        ]

    def _address_changed(self, broker: str) -> None:
        for name, topic in self.state.topics.items():
            there = (each for each, (place, _) in topic.shown.items() if place == broker)
            self.watches.notify(name, list(there))
