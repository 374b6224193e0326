"""Migration in the distributor: in process, on a real store, in a time of its own."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from distributor.api import MigrationAsked, PlacementAsked, TopicAsked
from distributor.api_fields import MigrationMode, PublisherAsked
from distributor.control import migrations, topics
from distributor.control.committer import Committer
from distributor.control.placements import place
from distributor.control.restored import restored
from distributor.control.service import Distributor
from distributor.control.state import ControlState
from distributor.errors import Conflict, NotFound
from distributor.gateway_api import BrokerAsked, Report, TopicReport
from distributor.http.metrics import METRICS
from distributor.store import StoreError, open_store
from srtm.http.metrics import Text
from tests.support.asynchronous import asynchronous


def exposed(service: Distributor) -> str:
    """The service's metrics, as Prometheus reads them."""
    text = Text()
    text.add(METRICS, [({}, service)])
    return text.encode().decode()


CAPACITY = 200.0
CONTRACT = TopicAsked(rate=400.0, burst=40.0, slo="0.99@5ms")
WALL = 1_700_000_000.0


class Clock:
    now = 1_000.0


class Gateways:
    """Send what comes to where each publisher is placed, and report it once a second.

    rates: messages/s of each publisher, that it really sends; stray: of those nobody registered
    late:  broker -> share of messages that are late without their tokens
    deaf:  broker -> epoch that it goes on to acknowledge
    """

    def __init__(self, service: Distributor, clock: Clock) -> None:
        self.service, self.clock = service, clock
        self.rates = {f"p{number}": 20.0 for number in range(6)}
        self.stray: dict[str, float] = {}
        self.late: dict[str, float] = {}
        self.deaf: dict[str, int] = {}
        self.told: dict[str, Any] = {}
        self.tells = True

    async def seconds(self, count: int) -> None:
        for _ in range(count):
            self.clock.now += 1.0
            for name in sorted(self.service.state.gateways):
                await self._report(name)
            await migrations.decide(self.service)

    async def _report(self, name: str) -> None:
        service = self.service
        service.confirmed_at = self.clock.now
        counts = {
            each: self.rates[each]
            for each, (at, _) in service.topic("t").shown.items()
            if at == name
        }
        if name == "b0":
            counts |= self.stray
        came = sum(counts.values())
        is_asked = "t" in service.troubles.wants_publishers(name)
        report = Report(
            applied_epoch=self.deaf.get(name, service.state.gateways[name].epoch),
            seconds=1.0,
            topics=[
                TopicReport(
                    topic="t",
                    offered=came,
                    served=came,
                    late=came * self.late.get(name, 0.0),
                    late_at_broker=came * self.late.get(name, 0.0),
                    near=came,
                    publishers=list(counts.items()) if is_asked and self.tells else [],
                )
            ],
        )
        self.told[name] = await service.report(name, report)


@asynccontextmanager
async def world(
    folder: Path, mode: MigrationMode = "propose", brokers: int = 2
) -> AsyncIterator[Gateways]:
    """Topic t with p0 to p5 on b0, 20/s each."""
    clock = Clock()
    store = open_store(str(folder / "store.db"))
    store.lead()
    thread = ThreadPoolExecutor(1)
    try:
        yield await _begun(_led(store, thread, clock, ControlState()), clock, mode, brokers)
    finally:
        await asyncio.to_thread(thread.shutdown)
        store.close()


def _led(store: Any, thread: ThreadPoolExecutor, clock: Clock, state: ControlState) -> Distributor:
    committer = Committer(store, thread, lambda _: None)
    return Distributor(state, committer, 10.0, lambda: clock.now, lambda: WALL + clock.now)


async def _begun(service: Distributor, clock: Clock, mode: MigrationMode, brokers: int) -> Gateways:
    for number in range(brokers):
        await service.brokers.register(
            BrokerAsked(name=f"b{number}", tcp_address="h:1", http_address="h:2", capacity=CAPACITY)
        )
    await topics.put(service, "t", CONTRACT)
    await migrations.put(service, "t", MigrationAsked(mode=mode))
    gateways = Gateways(service, clock)
    rows = [PublisherAsked(id=each, rate=20.0) for each in gateways.rates]
    await service.registrations.register("t", rows)
    await place(service, "t", PlacementAsked())
    await gateways.seconds(3)
    assert set(service.topic("t").places.values()) == {"b0"}
    return gateways


def shares(gateways: Gateways) -> dict[str, tuple[float, float]]:
    targets = gateways.service.state.leases["t"].targets
    return {name: (each.rate, each.burst) for name, each in sorted(targets.items())}


@asynchronous
async def test_what_has_grown_is_proposed_and_moved_when_a_person_says_so(tmp_path: Path) -> None:
    async with world(tmp_path) as gateways:
        service = gateways.service
        await gateways.seconds(20)
        assert not service.troubles.ill
        gateways.rates["p1"] = 150.0
        await gateways.seconds(8)
        assert migrations.show(service, "t").proposed is None, "not a whole window yet"
        await gateways.seconds(12)
        found = migrations.show(service, "t")
        assert found.trouble == {
            "b0": "250 messages/s come to it, and it holds 200 messages/s within its SLO"
        }
        assert found.proposed is not None
        [move] = found.proposed.moves
        assert (move.publisher, move.rate, move.source, move.target) == ("p1", 150.0, "b0", "b1")
        assert "srtm_distributor_proposed_moves 1" in exposed(service)
        assert service.topic("t").places["p1"] == "b0", "only proposed"
        first = found.proposed
        await gateways.seconds(15)
        assert migrations.show(service, "t").proposed == first, "it stands as it was read"

        assert await migrations.accept(service, "t") == first
        assert service.topic("t").places["p1"] == "b1"
        assert shares(gateways) == {
            "b0": (pytest.approx(160.0), pytest.approx(16.0)),
            "b1": (pytest.approx(240.0), pytest.approx(24.0)),
        }, "what it sends takes its part of r and b along"
        await gateways.seconds(60)
        after = migrations.show(service, "t")
        assert (after.trouble, after.proposed, after.blocked) == ({}, None, [])
        assert after.applied[0].moves == first.moves
        assert after.applied[0].reasons[0] == "moved p1 from b0 to b1"
        assert "srtm_distributor_migrated_publishers_total 1" in exposed(service)
        with pytest.raises(Conflict, match="nothing is proposed"):
            await migrations.accept(service, "t")


@asynchronous
async def test_it_moves_by_itself_and_nobody_goes_back(tmp_path: Path) -> None:
    async with world(tmp_path, "auto") as gateways:
        service = gateways.service
        gateways.rates["p1"] = 150.0
        await gateways.seconds(20)
        assert service.topic("t").places["p1"] == "b1"
        [applied] = migrations.show(service, "t").applied
        gateways.rates["p1"] = 20.0
        gateways.rates["p2"] = 50.0
        await gateways.seconds(300)
        assert len(migrations.show(service, "t").applied) == 1
        gateways.rates["p1"] = 260.0  # too much for b1 too, and it came from b0
        await gateways.seconds(60)
        found = migrations.show(service, "t")
        assert found.applied == [applied]
        assert found.blocked[1] == (
            "other brokers have room for 50 messages/s, and 80 messages/s have to leave: add one"
        )


@asynchronous
async def test_lateness_at_the_broker_is_trouble_and_that_of_tokens_is_not(tmp_path: Path) -> None:
    async with world(tmp_path) as gateways:
        service = gateways.service
        gateways.late["b0"] = 0.2
        await gateways.seconds(40)
        found = migrations.show(service, "t")
        assert "late there even without their token wait" in found.trouble["b0"]
        assert found.proposed is not None
        assert len(found.proposed.moves) == 1, "a fifth of the publishers at once, one here"
        gateways.late["b0"] = 0.0
        await gateways.seconds(15)
        found = migrations.show(service, "t")
        assert (found.trouble, found.proposed) == ({}, None)


@asynchronous
async def test_publishers_are_asked_for_only_in_trouble(tmp_path: Path) -> None:
    async with world(tmp_path) as gateways:
        asked = lambda: {n: each.topics and each.topics[0].publishers  # noqa: E731
                         for n, each in gateways.told.items()}  # fmt: skip
        await gateways.seconds(15)
        assert asked()["b0"] is False
        gateways.rates["p1"] = 150.0
        gateways.tells = False
        await gateways.seconds(20)
        assert asked()["b0"] is True
        assert migrations.show(gateways.service, "t").blocked == [
            "broker b0 is asked who sends to it, and has not told for long enough"
        ]
        gateways.rates["p1"] = 20.0
        await gateways.seconds(15)
        assert asked()["b0"] is False


@asynchronous
async def test_strangers_cannot_be_moved_and_are_named(tmp_path: Path) -> None:
    async with world(tmp_path, "auto") as gateways:
        gateways.stray = {"cron\x1b[2J@192.0.2.7": 290.0}
        await gateways.seconds(25)
        found = migrations.show(gateways.service, "t")
        assert not found.applied
        assert any(each.endswith("cannot be moved: cron?[2J@192.0.2.7") for each in found.blocked)


@asynchronous
async def test_off_is_off(tmp_path: Path) -> None:
    async with world(tmp_path, "off") as gateways:
        gateways.rates["p1"] = 150.0
        await gateways.seconds(40)
        found = migrations.show(gateways.service, "t")
        assert (found.proposed, found.blocked, found.applied) == (None, [], [])
        assert gateways.service.troubles.wants_publishers("b0") == frozenset()


@asynchronous
async def test_a_drained_target_ends_the_proposal(tmp_path: Path) -> None:
    async with world(tmp_path) as gateways:
        service = gateways.service
        gateways.rates["p1"] = 150.0
        await gateways.seconds(20)
        assert migrations.show(service, "t").proposed
        await service.brokers.drain("b1", True)
        with pytest.raises(Conflict, match="p1 cannot go from b0 to b1 any more"):
            await migrations.accept(service, "t")
        await gateways.seconds(11)
        found = migrations.show(service, "t")
        assert found.proposed is None
        assert "broker b1 is drained" in found.blocked


@asynchronous
async def test_two_proposals_do_not_land_on_the_same_emptiest_broker(tmp_path: Path) -> None:
    """b0 and b1 have 220/s each; b2 has room for 180, and one of 100 goes there."""
    async with world(tmp_path, brokers=3) as gateways:
        service = gateways.service
        await topics.put(service, "t", CONTRACT.model_copy(update={"rate": 900.0}))
        await service.brokers.drain("b2", True)
        await place(service, "t", PlacementAsked(policy="lb"))
        await service.brokers.drain("b2", False)
        places = service.topic("t").places
        for broker in ("b0", "b1"):
            first, second, _ = sorted(each for each, at in places.items() if at == broker)
            gateways.rates[first] = gateways.rates[second] = 100.0
        await gateways.seconds(30)
        found = migrations.show(service, "t")
        assert set(found.trouble) == {"b0", "b1"}
        assert found.proposed is not None
        assert [each.target for each in found.proposed.moves] == ["b2"]
        assert found.blocked


@asynchronous
async def test_a_restart_forgets_no_move(tmp_path: Path) -> None:
    async with world(tmp_path, "auto") as gateways:
        gateways.rates["p1"] = 150.0
        await gateways.seconds(20)
        service, clock = gateways.service, gateways.clock
        [applied] = migrations.show(service, "t").applied
        store = service.committer._store
        again = restored(await asyncio.to_thread(store.snapshot), clock.now)
        second = _led(store, service.committer._thread, clock, again)
        found = migrations.show(second, "t")
        assert (found.mode, found.applied) == ("auto", [applied])
        assert second.troubles.memory.rests("t", "p1", clock.now) > 200
        assert not second.troubles.memory.may_go("t", "p1", "b0", clock.now + 400)


@asynchronous
async def test_while_they_are_on_their_way_nobody_else_moves(tmp_path: Path) -> None:
    """b1 does not take its share for long, so p1 still sends to b0."""
    async with world(tmp_path, "auto") as gateways:
        service = gateways.service
        gateways.rates["p1"] = 150.0
        gateways.deaf["b1"] = service.state.gateways["b1"].epoch
        await gateways.seconds(60)
        assert service.topic("t").places["p1"] == "b1"
        assert service.topic("t").shown["p1"][0] == "b0"
        assert len(migrations.show(service, "t").applied) == 1
        del gateways.deaf["b1"]
        await gateways.seconds(60)
        assert service.topic("t").shown["p1"][0] == "b1"
        assert len(migrations.show(service, "t").applied) == 1


@asynchronous
async def test_a_failing_store_moves_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, "auto") as gateways:
        service = gateways.service
        gateways.rates["p1"] = 150.0

        async def full(_: object) -> None:
            raise StoreError("the disk is full")

        await gateways.seconds(10)
        monkeypatch.setattr(service, "commit", full)
        with pytest.raises(StoreError):
            await gateways.seconds(20)
        assert service.topic("t").places["p1"] == "b0"


@asynchronous
async def test_whoever_asks_for_nothing_that_is_there_is_told(tmp_path: Path) -> None:
    async with world(tmp_path) as gateways:
        with pytest.raises(NotFound):
            migrations.show(gateways.service, "nosuch")
        with pytest.raises(Conflict, match="nothing is proposed"):
            await migrations.accept(gateways.service, "t")
        await topics.delete(gateways.service, "t")
        await asyncio.sleep(0)


@asynchronous
async def test_next_to_nothing_is_no_load_and_no_fault(tmp_path: Path) -> None:
    """A rate that its seconds make 0 once divided the contract by 0, for all topics."""
    async with world(tmp_path) as there:
        service = there.service
        await there.seconds(2)
        tiny = TopicReport(topic="t", offered=5e-324)
        for name in sorted(service.state.gateways):
            there.clock.now += 0.5
            report = Report(applied_epoch=0, seconds=0.5, topics=[tiny])
            for _ in range(30):
                there.clock.now += 0.5
                service.confirmed_at = there.clock.now
                await service.report(name, report)
        assert service.troubles.carried() == {"t": 1.0}
