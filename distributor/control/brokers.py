"""The brokers that a distributor knows: they register, are drained, and are forgotten."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from distributor.api import BrokerShown
from distributor.control import learning
from distributor.control.identity import count_replaced, leave_behind, require_one, take
from distributor.control.lineage import Standing
from distributor.control.shares import grants
from distributor.control.state import FORMER, ControlState, Gateway
from distributor.control.watches import Watches
from distributor.errors import Conflict
from distributor.gateway_api import BrokerAnswer, BrokerAsked
from distributor.store import BrokerRow, Statement, StoreError
from distributor.store.statements import (
    delete_broker,
    put_broker,
    put_epoch,
    put_grants,
    put_lineage,
)


class Service(Protocol):
    """What they need of the distributor."""

    state: ControlState
    watches: Watches
    changing: asyncio.Lock
    lease_seconds: float
    forget_others: bool

    def now(self) -> float: ...

    def gateway(self, name: str) -> Gateway: ...

    def names_changed(self) -> None: ...

    async def commit(self, statements: Sequence[Statement]) -> None: ...


class BrokerRegistry:
    """Times are monotonic seconds of the distributor.

    registering: the name that a gateway is being registered with; "": none is
    """

    def __init__(self, service: Service) -> None:
        self.registering = ""
        self._service = service
        self._state = service.state

    async def register(self, asked: BrokerAsked) -> BrokerAnswer:
        """Raises Conflict for a second gateway of a name, UsageError for an epoch that nobody has
        given out."""
        async with self._service.changing:
            known = self._state.gateways.get(asked.name)
            if known is not None and known.row.instance and not asked.instance:
                return await self._set_capacity(known, asked)
            self.registering = asked.name
            try:
                standing = await self._admitted(known, asked)
                gateway = await self._written(known, asked)
                if standing is not Standing.CURRENT and not self._service.forget_others:
                    await self._learn(gateway, standing, asked)
                elif standing is not Standing.CURRENT:
                    learning.leave_behind_epochs(self._state, asked)
                self._begin(gateway, asked)
            finally:
                self.registering = ""
            return self._known_as(gateway)

    async def _admitted(self, known: Gateway | None, asked: BrokerAsked) -> Standing:
        """What our store is to a gateway that may have the name. What one that may not have it
        could still hold is counted first. Raises Conflict, UsageError."""
        now = self._service.now()
        replaced = known and count_replaced(self._state, known, asked)
        if replaced:
            await self._keep_former(replaced)
        standing = learning.standing(self._state, asked)
        try:
            if known is not None:
                require_one(known, asked, now, self._service.lease_seconds)
        except Conflict:
            if standing is Standing.BEHIND and not self._service.forget_others:
                await self._learn_of_refused(asked)
            raise
        return standing

    async def _written(self, known: Gateway | None, asked: BrokerAsked) -> Gateway:
        """The broker as it is on disk from now on; what an instance that had its name before may
        still hold is kept under another one."""
        row = _row_of(asked, known.row if known else None)
        former = known and leave_behind(self._state, known, asked.instance)
        if former:
            await self._keep_former(former, put_grants(row.name, ()))
        if known is not None and known.row == row:
            return known
        await self._service.commit([put_broker(row)])
        if known is None:
            known = self._state.gateways[row.name] = Gateway(row)
        before, known.row = known.row, row
        if before.tcp_address != row.tcp_address:
            self._address_changed(row.name)
        return known

    def _begin(self, gateway: Gateway, asked: BrokerAsked) -> None:
        """Its process is in contact from now on, with what it says that it holds."""
        take(self._state, gateway, asked.process)
        held = learning.shares(asked.held)
        gateway.has = {topic: held[topic] for topic in held if topic in self._state.topics}
        gateway.topics |= gateway.has.keys()
        self._state.unheard.discard(gateway.row.name)
        gateway.document = None
        gateway.resting.clear()
        gateway.written = (gateway.epoch, [], [])
        gateway.contact_at = self._service.now()

    async def _keep_former(self, former: Gateway, also: Sequence[Statement] = ()) -> None:
        """What a gateway that lost its name may still hold."""
        name = former.row.name
        held = put_grants(name, grants(self._state, former))
        await self._service.commit(
            [put_broker(former.row), *held, put_epoch(self._state.epoch), *also]
        )

    async def _set_capacity(self, gateway: Gateway, asked: BrokerAsked) -> BrokerAnswer:
        """No gateway, but somebody who has measured one. Raises Conflict for another address."""
        row = gateway.row
        if (asked.tcp_address, asked.http_address) != (row.tcp_address, row.http_address):
            raise Conflict(f"broker {row.name} is at {row.tcp_address}; measure it there")
        if asked.capacity is not None:
            changed = replace(row, capacity=asked.capacity)
            await self._service.commit([put_broker(changed)])
            gateway.row = changed
        return self._known_as(gateway)

    def _known_as(self, gateway: Gateway) -> BrokerAnswer:
        return BrokerAnswer(
            name=gateway.row.name,
            epoch=gateway.epoch,
            lease_seconds=self._service.lease_seconds,
            store=self._state.lineage.id,
        )

    async def _learn(self, gateway: Gateway, standing: Standing, asked: BrokerAsked) -> None:
        """Take in what a gateway knows and the store does not. In memory first, as that is the
        careful side; where the write fails the gateway registers again."""
        state, now = self._state, self._service.now()
        is_late = standing is not Standing.BEHIND and now >= state.sure_at
        if is_late:  # every lease of before has ended, but for this one's
            learning.leave_behind_epochs(state, asked)
        else:
            learning.begin(state, gateway.row.name, standing, asked, now)
        known, lost = set(state.topics), set(state.lost)
        statements = learning.contracts(state, asked)
        learning.hold(
            state, gateway, asked, now + max(self._service.lease_seconds, asked.lease_seconds)
        )
        if is_late:
            statements += learning.keep_back(state, sorted(state.topics.keys() - known), now)
        self._service.names_changed()
        try:
            await self._service.commit(
                [
                    *put_lineage(state.lineage_row()),
                    put_epoch(state.epoch),
                    *statements,
                    *put_grants(gateway.row.name, grants(self._state, gateway)),
                ]
            )
        except StoreError:  # what the store lacks is learnt again, and nothing refers to it
            learning.unlearn(state, asked, known, lost)
            self._service.names_changed()
            raise

    async def _learn_of_refused(self, asked: BrokerAsked) -> None:
        """Its name is another gateway's by this store, an older copy of the one by which it is its
        own: what it holds is counted under a name of its own until somebody forgets it."""
        name = f"{asked.name}{FORMER}{asked.instance[:8]}"
        row = BrokerRow(name, asked.tcp_address, asked.http_address, 0.0, True, asked.instance)
        former = self._state.gateways.get(name)
        if former is None:
            await self._service.commit([put_broker(row)])
            former = self._state.gateways[name] = Gateway(row)
        await self._learn(former, Standing.BEHIND, asked)

    async def drain(self, name: str, drain: bool) -> BrokerShown:
        async with self._service.changing:
            row = self._service.gateway(name).row
            changed = replace(row, draining=drain)
            await self._service.commit([put_broker(changed)])
            self._service.gateway(name).row = changed
        return self._shown(name, self._state.allocated())

    async def forget(self, name: str) -> None:
        """Its host is gone for good, somebody says: what it may hold is free. Raises Conflict."""
        async with self._service.changing:
            gateway = self._service.gateway(name)
            left = gateway.silent_until(self._service.lease_seconds) - self._service.now()
            if left > 0:
                raise Conflict(
                    f"broker {name} is in contact, or may have been until now: stop its gateway "
                    f"and ask again in {left:.0f} s"
                )
            serving = [each for each, its in self._state.leases.items() if name in its.targets]
            if serving:
                raise Conflict(f"broker {name} serves {serving[0]}: place that topic again first")
            # Should it come back in this moment: it registers first, and that waits for us.
            gateway.process = None
            await self._service.commit(delete_broker(name))
            del self._state.gateways[name]
            self._state.unheard.discard(name)
            self._state.model = self._state.model.without(name)
            for leases in self._state.leases.values():
                leases.holders.pop(name, None)
                leases.claims.discard(name)

    def all(self) -> list[BrokerShown]:
        """All brokers, by name."""
        loads = self._state.allocated()
        return [self._shown(name, loads) for name in sorted(self._state.gateways)]

    def _shown(self, name: str, loads: Mapping[str, float]) -> BrokerShown:
        """loads: `ControlState.allocated`"""
        gateway = self._service.gateway(name)
        return BrokerShown(
            name=name,
            tcp_address=gateway.row.tcp_address,
            http_address=gateway.row.http_address,
            capacity=gateway.row.capacity,
            allocated=loads.get(name, 0.0),
            state=self._contact(gateway),  # type: ignore[arg-type]
            epoch=gateway.epoch,
            applied_epoch=gateway.applied,
            topics=sorted(gateway.topics),
        )

    def _contact(self, gateway: Gateway) -> str:
        if self._state.is_replica:
            return "unknown"
        return gateway.state(self._service.now(), self._service.lease_seconds)

    def _address_changed(self, broker: str) -> None:
        for name, topic in self._state.topics.items():
            there = (each for each, (place, _) in topic.shown.items() if place == broker)
            self._service.watches.notify(name, list(there))


def _row_of(asked: BrokerAsked, known: BrokerRow | None) -> BrokerRow:
    """What is stored of a gateway that registers; one that does not know its capacity keeps it."""
    capacity = asked.capacity
    if capacity is None:
        capacity = known.capacity if known else 0.0
    return BrokerRow(
        asked.name,
        asked.tcp_address,
        asked.http_address,
        capacity,
        known.draining if known else False,
        asked.instance,
    )
