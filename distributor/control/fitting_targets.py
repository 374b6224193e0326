"""The placements that a topic's fitting puts in force: those of its rounds, and its final one."""

import asyncio
import json
from collections.abc import Iterable, Mapping
from math import fsum
from typing import Any

from distributor.api import FittingAsked, FittingShown, ShareShown
from distributor.api_fields import FittingState
from distributor.control.placement_inputs import asked_of, decide, moves, require_room
from distributor.control.placements import apply
from distributor.control.service import Distributor
from distributor.control.state import InForce, RegisteredTopic
from distributor.errors import Conflict
from distributor.fitting import CapacityModel, Done, Fitting, Round
from distributor.placement.srtm import SubBucket
from distributor.store import FittingRow, ModelRow, Statement
from distributor.store.statements import put_fitting, put_model
from srtm.limits.contract import Contract
from srtm.text.words import counted

POLICY = "fit"
"""as placements of a fitting are named in the history"""


class Changed(Exception):
    """The contract, or nobody is left at a broker: what was measured is of no use."""


class Trials:
    """The trials of one topic's fitting. Each is in the topic's history of placements."""

    def __init__(self, service: Distributor, name: str, asked: FittingAsked) -> None:
        self._service = service
        self._name = name
        self._asked = asked
        self._began_at = service.now()
        self._fitting: Fitting | None = None
        self._contract: Contract | None = None

    def begin(self, fitting: Fitting, contract: Contract) -> None:
        """fitting: whose rounds come now; contract: that they are for"""
        self._fitting, self._contract = fitting, contract

    @property
    def seconds(self) -> float:
        """The seconds since the fitting started."""
        return self._service.now() - self._began_at

    def topic(self) -> RegisteredTopic:
        """Raises NotFound, Changed."""
        topic = self._service.topic(self._name)
        if topic.contract != self._contract:
            raise Changed("its contract changed")
        return topic

    def shown(
        self,
        state: FittingState = "running",
        reasons: Iterable[str] = (),
        brokers: Iterable[str] = (),
        **values: Any,
    ) -> FittingShown:
        """values: its other fields."""
        return FittingShown(
            topic=self._name,
            asked=self._asked,
            state=state,
            seconds=self.seconds,
            brokers=sorted(brokers),
            reasons=list(reasons),
            **values,
        )

    async def carry_out(self, what: Round) -> None:
        """Raises NotFound, Conflict, StoreError, Changed."""
        shown = self.shown(
            reasons=what.reasons,
            brokers=what.judged,
            round=what.epoch,
            held=len(what.held),
            elsewhere=len(what.elsewhere),
        )
        reasons = (f"round {what.epoch} of a fitting", *what.reasons)
        async with self._service.changing:
            topic = self.topic()
            await self._put_in_force(topic, what.assignment, what.held, what.shares, reasons, shown)

    def empty(self) -> None:
        """Its buckets, once everybody has moved."""
        state = self._service.state
        state.topic(self._name).emptied = state.next_epoch()
        state.stir(self._name)

    async def end(self, done: Done) -> None:
        """Raises NotFound, Conflict, StoreError, Changed."""
        state: FittingState = done.result.value
        async with self._service.changing:
            topic = self.topic()
            if not done.assignment:
                await self.release(state, done.reasons, done.rounds, done.rate, done.burst)
                return
            shown = self.shown(state, done.reasons, done.shares, round=done.rounds)
            await self._put_in_force(topic, done.assignment, (), done.shares, done.reasons, shown)

    async def release(
        self,
        state: FittingState,
        reasons: tuple[str, ...],
        rounds: int | None = None,
        rate: float | None = None,
        burst: int | None = None,
    ) -> None:
        """No design was found: whom a round holds gets a broker by rate, and nobody else moves.
        Where that cannot be, the reasons say so. Under the lock `changing`. Raises NotFound,
        StoreError."""
        service = self._service
        topic = service.topic(self._name)
        before = topic.in_force
        if rounds is None:
            rounds = topic.fitting.round if topic.fitting else 0
        values: dict[str, Any] = {"round": rounds, "rate": rate, "burst": burst}
        held = sum(each not in topic.places for each in topic.publishers)
        if held and before and before.policy == POLICY and before.unplaced:
            try:
                await self._place_held(topic, state, reasons, values)
                return
            except Conflict as error:
                values["held"] = held
                reasons += (
                    f"{counted(held, 'publisher')} still held, as there is no placement ({error}); "
                    f"srtm placement apply {self._name} places them",
                )
        there = before.targets if before and before.policy == POLICY else ()
        shown = self.shown(state, reasons, there, **values)
        await service.commit(self._written(shown))
        self._kept(topic, shown)

    async def _place_held(
        self,
        topic: RegisteredTopic,
        state: FittingState,
        reasons: tuple[str, ...],
        values: dict[str, Any],
    ) -> None:
        service = self._service
        asked = asked_of(service.state, self._name, service.now(), service.lease_seconds)
        if not asked[1]:
            raise Conflict("no broker takes publishers")
        placement = await asyncio.to_thread(decide, "srtm", asked, True)
        shares = {each.name: (each.r, each.b) for each in placement.brokers}
        reasons += ("those who were held are placed by rate", *placement.reasons)
        shown = self.shown(state, reasons, shares, held=len(placement.unplaced), **values)
        await self._put_in_force(
            topic, placement.assignment, placement.unplaced, shares, reasons, shown
        )

    async def _put_in_force(
        self,
        topic: RegisteredTopic,
        assignment: Mapping[str, str],
        unplaced: Iterable[str],
        shares: Mapping[str, SubBucket],
        reasons: tuple[str, ...],
        shown: FittingShown,
    ) -> None:
        """Under the lock `changing`. Raises Conflict, StoreError, Changed."""
        service, name = self._service, self._name
        leases = service.state.leases[name]
        there = {each: at for each, at in assignment.items() if each in topic.publishers}
        waiting = [each for each in unplaced if each in topic.publishers]
        deserted = shares.keys() - set(there.values())
        if deserted:
            raise Changed(f"the publishers that it placed at {min(deserted)} were deleted")
        require_room(leases, list(shares), topic.contract, service.now())
        applied = InForce(
            epoch=service.state.next_epoch(),
            at=service.wall(),
            policy=POLICY,
            brokers=_shares_shown(topic, there, shares),
            unplaced=len(waiting),
            unplaced_rate=fsum(topic.publishers[each][1] for each in waiting),
            reasons=reasons,
        )
        await apply(service, name, applied, moves(there, waiting, topic), self._written(shown))
        self._kept(topic, shown)

    def _kept(self, topic: RegisteredTopic, shown: FittingShown) -> None:
        topic.fitting = shown
        if shown.state != "running":
            topic.emptied = 0  # or a gateway that restarts later would lose the level it kept
        self._service.state.stir(self._name)
        self._service.state.model = self._model

    @property
    def _model(self) -> CapacityModel:
        return self._service.state.model if self._fitting is None else self._fitting.model

    def _written(self, shown: FittingShown) -> list[Statement]:
        model = self._model.document()
        return [
            put_fitting(FittingRow(self._name, shown.model_dump_json())),
            put_model(ModelRow(broker, json.dumps(sums)) for broker, sums in model.items()),
        ]


def _shares_shown(
    topic: RegisteredTopic, assignment: Mapping[str, str], shares: Mapping[str, SubBucket]
) -> tuple[ShareShown, ...]:
    rates: dict[str, list[float]] = {broker: [] for broker in shares}
    for publisher, broker in assignment.items():
        rates[broker].append(topic.publishers[publisher][1])
    return tuple(
        ShareShown(
            name=broker,
            rate=fsum(rates[broker]),
            quota=fsum(rates[broker]),
            publishers=len(rates[broker]),
            r=r,
            b=b,
        )
        for broker, (r, b) in shares.items()
    )
