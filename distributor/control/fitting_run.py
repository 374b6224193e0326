"""One topic's online fitting, carried out: it moves publishers and reads reports until done."""

import asyncio
import logging
from collections import Counter

from distributor.api import FittingAsked, FittingShown
from distributor.control.fitting_targets import Changed, Trials
from distributor.control.observations import Observations
from distributor.control.placement_inputs import asked_of
from distributor.control.service import Distributor
from distributor.errors import Conflict, NotFound
from distributor.fitting import MOST_ALLOWED, Done, Fitting, Meanwhile, Mode, Round, Settings
from distributor.gateway_api import Report
from distributor.store import StoreError
from srtm.text.words import counted

log = logging.getLogger("srtm.distributor")

_CATCH_UP_SECONDS = 1.0
"""Seconds from when clients were told to move until they have, and brokers have caught up."""
_DRAIN_SECONDS = 10.0
_LOOK_SECONDS = 0.05
_LONGEST_LOOK_SECONDS = 1.0
"""A broker that is lost is noticed after so much at the latest."""
_RETRY_SECONDS = 1.0
_STALLED_SECONDS = 2.0
"""without a look: the process was stopped, or its host was"""
_MOST_INTERRUPTED = 3
"""times that a round is measured; a broker that does not stay so long counts as lost"""


class Fitter:
    """The online fitting of one topic, from `start` to its end."""

    def __init__(self, service: Distributor, name: str, asked: FittingAsked) -> None:
        self._service = service
        self._name = name
        self._asked = asked
        self._trials = Trials(service, name, asked)
        self._task: asyncio.Task[None] | None = None
        self._seen = Observations(name, ())
        self._looked_at = self._away_until = service.now()

    @property
    def seconds(self) -> float:
        """The seconds since the fitting started."""
        return self._trials.seconds

    def shown(self) -> FittingShown:
        """The fitting as it is shown before its first round."""
        return self._trials.shown()

    def start(self, fitting: Fitting | None) -> None:
        """Carry out what `prepare` gave; None: prepare it once brokers are in contact."""
        self._service.fitters[self._name] = self
        self._task = asyncio.create_task(self._run(fitting))

    def receive(self, broker: str, report: Report, now: float, lapsed: bool) -> None:
        """A broker's report that came at `now`; lapsed: after the lease of the one before."""
        self._seen.receive(broker, report, now, lapsed)

    async def stop(self) -> None:
        """Stop by somebody's wish, under the lock `changing`, so that no round is half applied: the
        publishers that it held get a broker by their rates. Raises StoreError; it goes on then."""
        await self._trials.release("stopped", ("somebody stopped it",))
        self.cancel()

    def cancel(self) -> None:
        """Leave everything as it is."""
        self._forget()
        if self._task is not None:
            self._task.cancel()

    def _forget(self) -> None:
        if self._service.fitters.get(self._name) is self:
            del self._service.fitters[self._name]

    async def _run(self, fitting: Fitting | None) -> None:
        try:
            why = await self._fitted(fitting)
            while why is not None:
                try:
                    async with self._service.changing:
                        await self._trials.release("stopped", (why,))
                    return
                except StoreError as error:
                    log.warning("topic %s: %s; its fitting cannot end", self._name, error)
                    await asyncio.sleep(_RETRY_SECONDS)
        except NotFound as error:
            log.info("its fitting ends: %s", error)
        finally:
            self._forget()

    async def _fitted(self, fitting: Fitting | None) -> str | None:
        """Fit the topic until it is done: None; or why it had to be given up. Raises NotFound."""
        while True:
            try:
                if fitting is None:
                    await self._contact()
                    fitting = self.prepare()
                await self._trials.end(await self._rounds(fitting))
                return None
            except Changed as changed:
                log.info("topic %s: %s, so it is fitted anew", self._name, changed)
            except StoreError as error:
                log.warning("topic %s: %s; it is fitted anew", self._name, error)
                await asyncio.sleep(_RETRY_SECONDS)
            except NotFound:
                raise
            except Conflict as error:
                return str(error)
            except Exception as error:
                log.exception("topic %s: its fitting failed", self._name)
                return f"a fault of the distributor: {error!r}"
            fitting = None

    # --- rounds -------------------------------------------------------------------------------

    async def _contact(self) -> None:
        """Wait until all brokers have reported to a new leader, or some have and the others are
        lost."""
        service = self._service
        until = service.now() + service.lease_seconds
        while True:
            now, gateways = service.now(), service.state.gateways.values()
            states = {each.state(now, service.lease_seconds) for each in gateways}
            if "lost" not in states or ("up" in states and now >= until):
                return
            await asyncio.sleep(_LOOK_SECONDS)

    def prepare(self) -> Fitting:
        """Make the fitting of the topic as it is now. Raises NotFound, Conflict for one that cannot
        be fitted."""
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
        others = {name: late for name, late in others.items() if late < MOST_ALLOWED}
        settings = Settings(
            mode=Mode(self._asked.mode),
            meanwhile=Meanwhile(self._asked.meanwhile),
            settle_seconds=_CATCH_UP_SECONDS,
            others=others,
        )
        if not publishers:
            raise Conflict(f"topic {self._name} has no publishers: register at least one")
        try:
            fitting = Fitting(
                contract, brokers, publishers, settings, service.state.model, self._asked.batch
            )
        except ValueError as error:
            raise Conflict(str(error)) from None
        self._trials.begin(fitting, contract)
        self._seen = Observations(self._name, others)
        return fitting

    async def _rounds(self, fitting: Fitting) -> Done:
        now = self._service.now
        what = await asyncio.to_thread(fitting.next, (), now())
        while isinstance(what, Round):
            await self._trials.carry_out(what)
            what = await self._after(fitting, what)
        return what

    async def _after(self, fitting: Fitting, what: Round) -> Round | Done:
        """What comes after the round; it is measured again where a broker is interrupted in it."""
        now, lost = self._service.now, None
        for _ in range(_MOST_INTERRUPTED):
            lost = await self._moved(what)
            if lost is not None:
                break
            if what.warm_up.empty_first:
                self._trials.empty()
            what = fitting.settled(now() + _CATCH_UP_SECONDS)
            self._seen.begin(what.epoch, what.settled_at, what.judged, what.helping)
            after = await self._measured(fitting, what)
            if after is not None:
                return after
            lost = self._seen.interrupted
            log.info("topic %s: %s was interrupted in round %d", self._name, lost, what.epoch)
        assert lost is not None
        return await asyncio.to_thread(fitting.lost, lost, now())

    async def _measured(self, fitting: Fitting, what: Round) -> Round | Done | None:
        """What comes after the round; None: a broker was interrupted, and it tells nothing."""
        now, found = self._service.now, what
        while found.epoch == what.epoch:
            pause = min(found.look_again_at - now(), _LONGEST_LOOK_SECONDS)
            await asyncio.sleep(max(0.0, pause))
            self._trials.topic()
            lost = self._lost(what)
            if lost is not None:
                return await asyncio.to_thread(fitting.lost, lost, now())
            if self._seen.interrupted:
                return None
            self._require_followed(what)
            if now() >= found.look_again_at:
                samples, arrivals = self._seen.take_samples(), self._seen.arrivals(now())
                after = await asyncio.to_thread(fitting.next, samples, now(), arrivals)
                if isinstance(after, Done):
                    return after
                found = after
        return found

    def _require_followed(self, what: Round) -> None:
        """Raises Conflict: who stays where it was says nothing of the brokers of the round."""
        topic, rates = self._trials.topic(), dict.fromkeys(what.shares, 0.0)
        there: Counter[str] = Counter(what.assignment.values())
        for publisher, broker in what.assignment.items():
            rates[broker] += topic.publishers[publisher][1] if publisher in topic.publishers else 0
        name = self._seen.deserted(rates)
        if name is not None:
            raise Conflict(
                f"nothing was judged in round {what.epoch}: the messages of the "
                f"{counted(there[name], 'publisher')} placed on {name} come through other brokers; "
                "publishers have to follow their placement, as those of srtm.client and of srtm "
                "load --distributor-address do"
            )

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
            topic, now = self._trials.topic(), service.now()
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
        """A broker that is out of contact, or drained. Not when it is this distributor that was
        away: it hears of its brokers within a lease."""
        service, now = self._service, self._service.now()
        unconfirmed = now > service.confirmed_at + service.lease_seconds / 3
        if unconfirmed or now > self._looked_at + max(_STALLED_SECONDS, service.lease_seconds / 2):
            self._away_until = now + service.lease_seconds
        self._looked_at = now
        if now < self._away_until:
            return None
        for name in sorted(what.shares):
            gateway = service.state.gateways.get(name)
            if gateway is None or gateway.state(now, service.lease_seconds) != "up":
                return name
        return None
