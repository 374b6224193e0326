"""What is asked for while a write is under way: nobody is told what a restart would not know."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from distributor.api import PlacementAsked, TopicAsked
from distributor.api_fields import PublisherAsked
from distributor.control import placements, topics
from distributor.control.restored import restored
from distributor.control.service import Distributor
from distributor.errors import Conflict, NotFound
from distributor.gateway_api import BrokerAsked, Report
from distributor.store import Statement, open_store
from distributor.store.statements import put_lineage
from tests.support.asynchronous import asynchronous


class Disk:
    """A real store; a write that is held is kept once it is let go."""

    def __init__(self, path: Path) -> None:
        self.store = open_store(str(path))
        assert self.store.lead()
        self.free = asyncio.Event()
        self.free.set()

    async def write(self, statements: Sequence[Statement]) -> None:
        await self.free.wait()
        self.store.write(statements)


def service_on(disk: Disk, now: list[float]) -> Distributor:
    state = restored(disk.store.snapshot(), assumed_until=0.0)
    disk.store.write(put_lineage(state.lineage_row()))
    committer: Any = disk
    return Distributor(state, committer, 1.0, lambda: now[0], lambda: now[0])


ASKED = BrokerAsked(name="b1", tcp_address="h:1", http_address="h:2", instance="i", process="p")
REPORT = Report(applied_epoch=0, process="p")


@asynchronous
async def test_epochs_are_told_once_they_are_on_disk(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "store.db")
    service = service_on(disk, [10.0])
    for name in ("b1", "b2"):
        await service.brokers.register(ASKED.model_copy(update={"name": name}))
        await service.report(name, REPORT)
    told = await service.report("b2", REPORT)
    disk.free.clear()
    service.gateway("b1").document = None  # so that its next report brings a new epoch
    reporting = asyncio.create_task(service.report("b1", REPORT))
    await asyncio.sleep(0)
    assert service.state.epoch == told.newest + 1
    again = await service.report("b2", REPORT)  # writes nothing
    assert again.newest == told.newest == disk.store.snapshot().epoch
    assert service.desired("b1").epoch <= told.newest
    disk.free.set()
    assert (await reporting).newest == service.desired("b1").epoch == told.newest + 1


@asynchronous
async def test_a_broker_that_reports_while_it_is_forgotten_is_forgotten(tmp_path: Path) -> None:
    disk, now = Disk(tmp_path / "store.db"), [10.0]
    service = service_on(disk, now)
    await service.brokers.register(ASKED)
    await service.report("b1", REPORT)
    with pytest.raises(Conflict, match="ask again in 1 s"):
        await service.brokers.forget("b1")
    now[0] = 20.0
    service.confirmed_at = now[0]
    disk.free.clear()
    forgetting = asyncio.create_task(service.brokers.forget("b1"))
    await asyncio.sleep(0)
    with pytest.raises(NotFound):
        await service.report("b1", REPORT)
    disk.free.set()
    await forgetting
    assert disk.store.snapshot().brokers == ()


@asynchronous
async def test_a_broker_is_not_forgotten_before_the_leases_of_the_last_leader_end(
    tmp_path: Path,
) -> None:
    disk = Disk(tmp_path / "store.db")
    await service_on(disk, [10.0]).brokers.register(ASKED)
    later: Any = disk
    state = restored(disk.store.snapshot(), assumed_until=80.0)
    service = Distributor(state, later, 1.0, lambda: 20.0, lambda: 20.0)
    with pytest.raises(Conflict, match="ask again in 60 s"):
        await service.brokers.forget("b1")


@asynchronous
async def test_a_topic_that_is_made_again_while_the_last_broker_lets_it_go(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "store.db")
    service = service_on(disk, [10.0])
    contract = TopicAsked(rate=100.0, burst=10.0)
    await service.brokers.register(ASKED.model_copy(update={"capacity": 1000.0}))

    async def report() -> None:
        """What it was told last is what it has."""
        told = service.desired("b1").epoch
        await service.report("b1", REPORT.model_copy(update={"applied_epoch": told}))

    async def placed() -> None:
        await service.registrations.register("t", [PublisherAsked(id="p", rate=10.0)])
        await placements.place(service, "t", PlacementAsked())

    await report()
    await topics.put(service, "t", contract)
    await placed()
    await report()
    await topics.delete(service, "t")
    await report()
    disk.free.clear()
    making = asyncio.create_task(topics.put(service, "t", contract))
    await asyncio.sleep(0)
    letting_go = asyncio.create_task(report())
    await asyncio.sleep(0)
    disk.free.set()
    await asyncio.gather(making, letting_go)
    await placed()
    await topics.delete(service, "t")
