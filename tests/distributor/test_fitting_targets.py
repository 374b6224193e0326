"""How fittings end: stopped, given up, overtaken by a change. In process, on a real store."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic

import pytest

from distributor.api import FittingAsked, PlacementAsked, TopicAsked
from distributor.api_fields import PublisherAsked
from distributor.control import fitting_run as fitter_module
from distributor.control import fittings, topics
from distributor.control.committer import Committer
from distributor.control.fitting_run import Fitter
from distributor.control.fitting_targets import Changed, Trials
from distributor.control.placements import place
from distributor.control.restored import restored
from distributor.control.service import Distributor
from distributor.control.state import ControlState
from distributor.errors import Conflict, NotFound
from distributor.fitting import Load, Round
from distributor.gateway_api import BrokerAsked, Report
from distributor.store import ModelRow, Statement, StoreError, open_store
from distributor.store.statements import put_model
from tests.support.asynchronous import asynchronous

CONTRACT = TopicAsked(rate=150.0, burst=20.0, slo="0.99@1ms")
OTHER = CONTRACT.model_copy(update={"rate": 160.0})


class InProcess(Distributor):
    """later: seconds that have passed for it; faults: what the store answers to the next writes;
    let_write: what the store waits for."""

    def __init__(self, folder: Path) -> None:
        self.later = 0.0
        self.faults: list[StoreError] = []
        self.let_write = asyncio.Event()
        self.let_write.set()
        self.store = open_store(str(folder / "store.db"))
        self.store.lead()
        self.thread = ThreadPoolExecutor(1)
        committer = Committer(self.store, self.thread, lambda _: None)
        super().__init__(ControlState(), committer, 10.0, self._now, self._now)

    def _now(self) -> float:
        return monotonic() + self.later

    async def commit(self, statements: Sequence[Statement]) -> None:
        await self.let_write.wait()
        if self.faults:
            raise self.faults.pop()
        await super().commit(statements)

    async def reported(self, name: str) -> None:
        """The broker is in contact."""
        self.confirmed_at = self.now()
        await self.report(name, Report(applied_epoch=self.state.gateways[name].epoch))


@asynccontextmanager
async def service_in(folder: Path, brokers: int = 2) -> AsyncIterator[InProcess]:
    """With topic t and its publishers p0 to p9; only b0 is in contact."""
    service = InProcess(folder)
    for number in range(brokers):
        await service.brokers.register(
            BrokerAsked(name=f"b{number}", tcp_address="h:1", http_address="h:2", capacity=1000.0)
        )
    await topics.put(service, "t", CONTRACT)
    ids = [f"p{number}" for number in range(10)]
    await service.registrations.register("t", [PublisherAsked(id=i, rate=10.0) for i in ids])
    await service.reported("b0")
    try:
        yield service
    finally:
        fittings.cancel(service)
        service.let_write.set()
        await asyncio.sleep(0)
        await asyncio.to_thread(service.thread.shutdown)
        service.store.close()


def a_round(service: Distributor) -> tuple[Fitter, Round]:
    """One that holds half of the publishers, and who would carry it out."""
    fitter = Fitter(service, "t", FittingAsked())
    what = fitter.prepare().next((), 0.0)
    assert isinstance(what, Round)
    ids = sorted(what.assignment)
    half = {each: what.assignment[each] for each in ids[:5]}
    return fitter, replace(what, assignment=half, held=tuple(ids[5:]))


async def holding(service: Distributor) -> Fitter:
    """It is in force; nothing measures it."""
    fitter, what = a_round(service)
    await fitter._trials.carry_out(what)
    service.fitters["t"] = fitter
    assert len(service.topic("t").places) == 5
    return fitter


async def ended(service: Distributor) -> str:
    """The state of the fitting, once nobody carries it out."""
    async with asyncio.timeout(10):
        while "t" in service.fitters:
            await asyncio.sleep(0.01)
    fitting = service.topic("t").fitting
    assert fitting is not None
    return fitting.state


def as_stored(service: InProcess) -> None:
    """What a restart would find is what is in memory."""
    topic, kept = service.topic("t"), service.store.snapshot()
    assert {each.id: each.broker for each in kept.publishers if each.broker} == topic.places
    assert kept.placements[-1].epoch == (topic.in_force.epoch if topic.in_force else None)
    assert topic.fitting is not None
    assert kept.fittings[0].document == topic.fitting.model_dump_json()


async def change_contract(service: Distributor) -> None:
    await topics.put(service, "t", OTHER)


async def take_slo_away(service: Distributor) -> None:
    await topics.put(service, "t", CONTRACT.model_copy(update={"slo": None}))


async def nothing(service: Distributor) -> None: ...


@pytest.mark.parametrize("before", [nothing, change_contract, take_slo_away])
@asynchronous
async def test_stopped_after_a_change(
    tmp_path: Path, before: Callable[[Distributor], Awaitable[None]]
) -> None:
    async with service_in(tmp_path) as service:
        await holding(service)
        await before(service)
        shown = await fittings.stop(service, "t")
        assert (shown.state, shown.brokers) == ("stopped", ["b0"])
        assert len(service.topic("t").places) == 10
        as_stored(service)
        with pytest.raises(Conflict, match="is not being fitted"):
            await fittings.stop(service, "t")
        await place(service, "t", PlacementAsked())


@asynchronous
async def test_stopped_before_the_next_leader_has_begun_again(tmp_path: Path) -> None:
    async with service_in(tmp_path) as service:
        await holding(service)
        Fitter(service, "t", FittingAsked()).start(None)  # b1 is not in contact: it waits
        assert (await fittings.stop(service, "t")).state == "stopped"
        assert len(service.topic("t").places) == 10


@asynchronous
async def test_whom_no_broker_takes_is_told_to_be_held(tmp_path: Path) -> None:
    async with service_in(tmp_path) as service:
        await holding(service)
        service.later = 1000.0  # everybody is lost
        shown = await fittings.stop(service, "t")
        assert (shown.state, shown.held) == ("stopped", 5)
        assert "5 publishers still held" in shown.reasons[-1]
        assert "srtm placement apply t" in shown.reasons[-1]


@asynchronous
async def test_a_full_store_does_not_end_it_half(tmp_path: Path) -> None:
    async with service_in(tmp_path) as service:
        await holding(service)
        service.faults = [StoreError("the disk is full")]
        with pytest.raises(StoreError):
            await fittings.stop(service, "t")
        assert service.topic("t").is_fitted
        as_stored(service)
        assert (await fittings.stop(service, "t")).state == "stopped"


@pytest.mark.parametrize("faults", [0, 2], ids=["", "the-store-is-full-for-a-while"])
@asynchronous
async def test_one_that_cannot_go_on_ends_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faults: int
) -> None:
    monkeypatch.setattr(fitter_module, "_RETRY_SECONDS", 0.01)
    async with service_in(tmp_path, brokers=1) as service:
        fitter = await holding(service)
        await take_slo_away(service)
        service.faults = [StoreError("the disk is full") for _ in range(faults)]
        fitter.start(None)
        assert await ended(service) == "stopped"
        assert not service.faults
        assert len(service.topic("t").places) == 10
        as_stored(service)


@asynchronous
async def test_with_no_broker_in_contact_it_waits_for_one(tmp_path: Path) -> None:
    """A new leader that gave up would leave those held whom the last one held."""
    async with service_in(tmp_path, brokers=2) as service:
        fitter = await holding(service)
        service.later = 1000.0  # everybody is lost
        fitter.start(None)
        await asyncio.sleep(0.01)
        service.later = 2000.0  # for more than a lease
        await asyncio.sleep(0.1)
        assert service.topic("t").is_fitted
        await service.reported("b1")
        async with asyncio.timeout(10):
            while len(service.topic("t").places) < 10:
                await asyncio.sleep(0.01)
        assert set(service.topic("t").places.values()) == {"b1"}


@pytest.mark.parametrize(
    ("away", "unconfirmed", "lost"),
    [
        pytest.param(0.0, 0.0, None, id="in-contact"),
        pytest.param(1.0, 0.0, "b0", id="silent-for-a-lease"),
        pytest.param(1.0, 4.0, None, id="the-store-did-not-answer-and-reports-were-refused"),
        pytest.param(6.0, 0.0, None, id="the-distributor-was-stopped-itself"),
    ],
)
@asynchronous
async def test_which_broker_is_lost(
    tmp_path: Path, away: float, unconfirmed: float, lost: str | None
) -> None:
    """Of a lease of 10 s. away: seconds between two looks, with no report since a lease."""
    async with service_in(tmp_path, brokers=1) as service:
        fitter, what = a_round(service)
        assert fitter._lost(what) is None
        if away:
            service.state.gateways["b0"].contact_at -= 10.0
        service.later += away
        service.confirmed_at = service.now() - unconfirmed
        assert fitter._lost(what) == lost
        for _ in range(11):  # it has had a lease to come back
            service.later += 1.0
            service.confirmed_at = service.now()
            found = fitter._lost(what)
        assert found == "b0"


@asynchronous
async def test_only_brokers_of_the_fitted_topic_report_more_often(tmp_path: Path) -> None:
    async with service_in(tmp_path) as service:
        await holding(service)
        report = Report(applied_epoch=0)
        found = [(await service.report(each, report)).report_seconds for each in ("b0", "b1")]
        assert found[0] < 1.0 == found[1]


@asynchronous
async def test_what_a_forgotten_broker_has_taught_is_forgotten(tmp_path: Path) -> None:
    """Another one may get its name."""
    async with service_in(tmp_path) as service:
        for each in ("b0", "b1"):
            service.state.model = service.state.model.learnt(each, Load(1.0, 1.0, 1), 1, 10)
        service.later = 1000.0  # they are lost
        await service.brokers.forget("b1")
        assert service.state.model.document().keys() == {"b0"}


@asynchronous
async def test_a_spoilt_model_keeps_nobody_from_leading(tmp_path: Path) -> None:
    async with service_in(tmp_path) as service:
        await service.commit([put_model([ModelRow("b0", "{"), ModelRow("b1", "{}")])])
        assert restored(service.store.snapshot(), 0.0).model.rounds == 0


@asynchronous
async def test_a_topic_beside_it_that_cannot_be_judged_is_left_out(tmp_path: Path) -> None:
    """Two thirds of its messages may be late."""
    async with service_in(tmp_path, brokers=1) as service:
        await topics.put(service, "u", CONTRACT.model_copy(update={"slo": "0.3@1ms"}))
        await service.registrations.register("u", [PublisherAsked(id="p", rate=10.0)])
        await place(service, "u", PlacementAsked())
        assert not Fitter(service, "t", FittingAsked()).prepare()._settings.others


@pytest.mark.parametrize("times", [1, 3])
@asynchronous
async def test_an_interrupted_broker_is_measured_again_and_lost_at_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    monkeypatch.setattr(fitter_module, "_CATCH_UP_SECONDS", 0.0)
    monkeypatch.setattr(fitter_module, "_LONGEST_LOOK_SECONDS", 0.01)
    async with service_in(tmp_path, brokers=1) as service:
        fitter = Fitter(service, "t", FittingAsked())
        fitting = fitter.prepare()
        what = fitting.next((), service.now())
        assert isinstance(what, Round)
        moves = 0

        async def moved(_: Round) -> None:
            nonlocal moves
            moves += 1

        monkeypatch.setattr(fitter, "_moved", moved)
        after = asyncio.create_task(fitter._after(fitting, what))
        for time in range(1, times + 1):
            async with asyncio.timeout(5):
                while moves < time:
                    await asyncio.sleep(0.005)
            await asyncio.sleep(0.02)
            fitter.receive("b0", Report(applied_epoch=1), service.now(), lapsed=True)
        async with asyncio.timeout(5):
            while moves <= times and not after.done():
                await asyncio.sleep(0.005)
        assert after.done() == (times == 3)
        if after.done():
            assert "b0 is lost" in after.result().reasons[0]
        after.cancel()


@asynchronous
async def test_stopped_while_a_round_is_written(tmp_path: Path) -> None:
    """The round is applied whole, and then what it held is released."""
    async with service_in(tmp_path, brokers=1) as service:
        fitter, what = a_round(service)
        service.fitters["t"] = fitter
        service.let_write.clear()
        fitter._task = asyncio.create_task(fitter._trials.carry_out(what))
        while not service.changing.locked():
            await asyncio.sleep(0.001)
        stopping = asyncio.create_task(fittings.stop(service, "t"))
        await asyncio.sleep(0.01)
        service.let_write.set()
        assert (await stopping).state == "stopped"
        assert len(service.topic("t").places) == 10
        as_stored(service)


@asynchronous
async def test_stopped_where_nobody_was_held(tmp_path: Path) -> None:
    """Everybody stays where the round put them."""
    async with service_in(tmp_path) as service:
        fitter, _ = a_round(service)
        what = fitter.prepare().next((), 0.0)
        assert isinstance(what, Round)
        await fitter._trials.carry_out(what)
        service.fitters["t"] = fitter
        with pytest.raises(Conflict, match=r"fitted: srtm placement explain t .* fit t --stop"):
            await fittings.start(service, "t", FittingAsked())
        shown = await fittings.stop(service, "t")
        assert (shown.state, shown.brokers) == ("stopped", sorted(what.shares))
        as_stored(service)


@asynchronous
async def test_a_deleted_topic_is_not_fitted_any_more(tmp_path: Path) -> None:
    """Nor is another one that gets its name."""
    async with service_in(tmp_path, brokers=1) as service:
        await fittings.start(service, "t", FittingAsked())
        await topics.delete(service, "t")
        assert not service.fitters
        await topics.put(service, "t", CONTRACT)
        with pytest.raises(NotFound, match="never fitted"):
            fittings.show(service, "t")


@asynchronous
async def test_a_broker_whose_publishers_are_gone_gets_no_share(tmp_path: Path) -> None:
    """A share of nobody could not be split anew with the next contract."""
    async with service_in(tmp_path, brokers=1) as service:
        trials = Trials(service, "t", FittingAsked())
        fitting = Fitter(service, "t", FittingAsked()).prepare()
        trials.begin(fitting, service.topic("t").contract)
        what = fitting.next((), 0.0)
        assert isinstance(what, Round)
        for each in list(service.topic("t").publishers):
            await service.delete_publisher("t", each)
        with pytest.raises(Changed, match="b0 were deleted"):
            await trials.carry_out(what)
        await change_contract(service)
