"""One topic's online fitting, carried out: publishers moved, brokers heard, until it is done."""

import asyncio
import json
import logging
from collections.abc import Iterable, Mapping
from math import fsum
from typing import Any

from distributor.api import FittingAsked, FittingShown, FittingState, Report, ShareShown
from distributor.errors import Conflict, NotFound
from distributor.fitting import CapacityModel, Done, Fitting, Meanwhile, Mode, Round, Settings
from distributor.observations import Observations
from distributor.placement import SubBucket
from distributor.placements import apply
from distributor.placing import asked_of, decide, moves, require_room
from distributor.service import Distributor
from distributor.state import InForce, Topic
from distributor.store import FittingRow, ModelRow, Statement, StoreError
from distributor.store.statements import put_fitting, put_model
from srtm.contract import Contract

log = logging.getLogger("srtm.distributor")

POLICY = "fit"
"""as placements of a fitting are named in the history"""
_CATCH_UP_SECONDS = 1.0
"""From when clients were told to move until they have, and brokers have caught up"""
_DRAIN_SECONDS = 10.0
_LOOK_SECONDS = 0.05
_LONGEST_LOOK_SECONDS = 1.0
"""A broker that is lost is noticed after so much at the latest."""
_RETRY_SECONDS = 1.0


class _ContractChanged(Exception):
    """What was measured is of no use."""


class Fitter:
    """Of one topic, from `start` to its end. What it does is in the topic's history of placements,
    a round an entry."""

    def __init__(self, service: Distributor, name: str, asked: FittingAsked) -> None:
        self._service = service
        self._name = name
        self._asked = asked
        self._began_at = service.now()
        self._task: asyncio.Task[None] | None = None
        self._fitting: Fitting | None = None
        self._contract: Contract | None = None
        self._seen = Observations(name, ())

    def start(self, fitting: Fitting | None) -> None:
        """Carry out what `prepare` gave; None: prepare it once brokers are in contact."""
        self._service.fitters[self._name] = self
        self._task = asyncio.create_task(self._run(fitting))

    def hear(self, broker: str, report: Report, now: float) -> None:
        """A broker's report that came at `now`."""
        self._seen.hear(broker, report, now)

    async def stop(self) -> None:
        """By somebody's wish: the publishers that it held get a broker by their rates. Raises
        StoreError."""
        self.cancel()
        await self._release("stopped", ("somebody stopped it",))

    def cancel(self) -> None:
        """Leave everything as it is."""
        self._service.fitters.pop(self._name, None)
        if self._task is not None:
            self._task.cancel()

    async def _run(self, fitting: Fitting | None) -> None:
        try:
            if fitting is None:
                await self._contact()
            while True:
                try:
                    await self._end(await self._rounds(fitting or self.prepare()))
                    return
                except _ContractChanged:
                    log.info("topic %s: its contract changed, so it is fitted anew", self._name)
                except StoreError as error:
                    log.warning("topic %s: %s; it is fitted anew", self._name, error)
                    await asyncio.sleep(_RETRY_SECONDS)
                fitting = None
        except NotFound as error:
            log.info("its fitting ends: %s", error)
        except Conflict as error:
            await self._release("stopped", (str(error),))
        except Exception as error:
            log.exception("topic %s: its fitting failed", self._name)
            await self._release("stopped", (f"a fault of the distributor: {error!r}",))
        finally:
            self._service.fitters.pop(self._name, None)

    # --- rounds -------------------------------------------------------------------------------

    async def _contact(self) -> None:
        """Until all brokers have reported to a new leader, or are lost."""
        service = self._service
        until = service.now() + service.lease_seconds
        while service.now() < until and any(
            each.state(service.now(), service.lease_seconds) == "lost"
            for each in service.state.gateways.values()
        ):
            await asyncio.sleep(_LOOK_SECONDS)

    def prepare(self) -> Fitting:
        """Of the topic as it is now. Raises NotFound, Conflict for one that cannot be fitted."""
        service = self._service
        service.topic(self._name)
        contract, brokers, publishers, _ = asked_of(
            service.state, self._name, service.now(), service.lease_seconds
        )
        others = {
            name: topic.contract.slo.allowed_late_share
            for name, topic in service.state.topics.items()
            if name != self._name and topic.in_force and topic.contract.slo is not None
        }
        settings = Settings(
            mode=Mode(self._asked.mode),
            meanwhile=Meanwhile(self._asked.meanwhile),
            settle_seconds=_CATCH_UP_SECONDS,
            others=others,
        )
        if not publishers:
            raise Conflict(f"topic {self._name} has no publishers: register at least one")
        try:
            self._fitting = Fitting(
                contract, brokers, publishers, settings, service.state.model, self._asked.batch
            )
        except ValueError as error:
            raise Conflict(str(error)) from None
        self._contract = contract
        self._seen = Observations(self._name, others)
        return self._fitting

    async def _rounds(self, fitting: Fitting) -> Done:
        now = self._service.now
        what = await asyncio.to_thread(fitting.next, (), now())
        while isinstance(what, Round):
            await self._carry_out(what)
            lost = await self._moved(what)
            if lost is None:
                what = fitting.settled(now() + _CATCH_UP_SECONDS)
                self._seen.begin(what.epoch, what.settled_at, what.judged)
                measured = await self._measured(fitting, what)
            else:
                measured = await asyncio.to_thread(fitting.lost, lost, now())
            what = measured
        return what

    async def _measured(self, fitting: Fitting, what: Round) -> Round | Done:
        """What comes after the round."""
        now, found = self._service.now, what
        while found.epoch == what.epoch:
            pause = min(found.look_again_at - now(), _LONGEST_LOOK_SECONDS)
            await asyncio.sleep(max(0.0, pause))
            self._same_topic()
            lost = self._lost(what)
            if lost is not None:
                return await asyncio.to_thread(fitting.lost, lost, now())
            if now() >= found.look_again_at:
                samples, arrivals = self._seen.take_samples(), self._seen.arrivals(now())
                after = await asyncio.to_thread(fitting.next, samples, now(), arrivals)
                if isinstance(after, Done):
                    return after
                found = after
        return found

    async def _moved(self, what: Round) -> str | None:
        """Wait until every broker has its share, every publisher is told where to go, and what
        gathered meanwhile has drained: None; or the name of a broker that is lost. Not for ever:
        whoever has not got its share after a few leases is measured with what it has, and whoever
        cannot drain may be overloaded."""
        service = self._service
        leases = service.state.leases[self._name]
        until = service.now() + 3 * service.lease_seconds
        drained_by: float | None = None
        self._seen.move()
        while service.now() < until:
            topic, now = self._same_topic(), service.now()
            lost = self._lost(what)
            if lost is not None:
                return lost
            holders = {name: leases.holders.get(name) for name in what.shares}
            if not any(topic.waiting.values()) and all(
                held is not None and held.settled and held.last == leases.target(name, now)
                for name, held in holders.items()
            ):
                drained_by = drained_by or now + _DRAIN_SECONDS
                if self._seen.calm(what.shares) or now > drained_by:
                    return None
            await asyncio.sleep(_LOOK_SECONDS)
        return None

    def _lost(self, what: Round) -> str | None:
        service = self._service
        for name in sorted(what.shares):
            gateway = service.state.gateways.get(name)
            if gateway is None or gateway.state(service.now(), service.lease_seconds) != "up":
                return name
        return None

    def _same_topic(self) -> Topic:
        topic = self._service.topic(self._name)
        if topic.contract != self._contract:
            raise _ContractChanged
        return topic

    # --- what is applied ----------------------------------------------------------------------

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
            seconds=self._service.now() - self._began_at,
            brokers=sorted(brokers),
            reasons=list(reasons),
            **values,
        )

    async def _carry_out(self, what: Round) -> None:
        state = self._service.state
        if what.warm_up.empty_first:
            state.topic(self._name).emptied = state.next_epoch()
        shown = self.shown(
            reasons=what.reasons,
            brokers=what.judged,
            round=what.epoch,
            held=len(what.held),
            elsewhere=len(what.elsewhere),
        )
        reasons = (f"round {what.epoch} of a fitting", *what.reasons)
        await self._put_in_force(what.assignment, what.held, what.shares, reasons, shown)

    async def _end(self, done: Done) -> None:
        if not done.assignment:
            state: FittingState = done.result.value
            await self._release(state, done.reasons, done.rounds, done.rate, done.burst)
            return
        shown = self.shown(done.result.value, done.reasons, done.shares, round=done.rounds)
        await self._put_in_force(done.assignment, (), done.shares, done.reasons, shown)

    async def _release(
        self,
        state: FittingState,
        reasons: tuple[str, ...],
        rounds: int | None = None,
        rate: float | None = None,
        burst: int | None = None,
    ) -> None:
        """No design was found: whom a round holds gets a broker by rate, and nobody else moves."""
        service = self._service
        topic = service.topic(self._name)
        before = topic.fitting
        if rounds is None:
            rounds = before.round if before else 0
        held = bool(topic.in_force and topic.in_force.policy == POLICY and topic.in_force.unplaced)
        values = asked_of(service.state, self._name, service.now(), service.lease_seconds)
        if held and values[1]:
            placement = await asyncio.to_thread(decide, "srtm", values, True)
            shares = {each.name: (each.r, each.b) for each in placement.brokers}
            reasons = (*reasons, "those who were held are placed by rate", *placement.reasons)
            shown = self.shown(state, reasons, shares, round=rounds, rate=rate, burst=burst)
            await self._put_in_force(
                placement.assignment, placement.unplaced, shares, reasons, shown
            )
            return
        shown = self.shown(state, reasons, round=rounds, rate=rate, burst=burst)
        async with service.changing:
            await service.commit(self._written(shown))
            topic.fitting = shown
            service.state.model = self._model

    async def _put_in_force(
        self,
        assignment: Mapping[str, str],
        unplaced: Iterable[str],
        shares: Mapping[str, SubBucket],
        reasons: tuple[str, ...],
        shown: FittingShown,
    ) -> None:
        """Raises NotFound, Conflict, StoreError, _ContractChanged."""
        service, name = self._service, self._name
        async with service.changing:
            topic, leases = self._same_topic(), service.state.leases[name]
            there = {each: at for each, at in assignment.items() if each in topic.publishers}
            waiting = [each for each in unplaced if each in topic.publishers]
            require_room(leases, list(shares), leases.total, name, service.now())
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
            topic.fitting = shown
            service.state.model = self._model

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
    topic: Topic, assignment: Mapping[str, str], shares: Mapping[str, SubBucket]
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
