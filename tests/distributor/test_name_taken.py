"""A gateway that comes back while another takes its name over."""

import asyncio
from pathlib import Path

import pytest

from distributor.api import PlacementAsked, TopicAsked
from distributor.api_fields import PublisherAsked
from distributor.control import placements, topics
from distributor.errors import NotFound
from tests.distributor.test_before_the_disk import ASKED, REPORT, Disk, service_on
from tests.support.asynchronous import asynchronous


@asynchronous
async def test_the_name_is_of_one_gateway_while_another_is_written(tmp_path: Path) -> None:
    disk, now = Disk(tmp_path / "store.db"), [10.0]
    service = service_on(disk, now)
    await service.brokers.register(ASKED.model_copy(update={"capacity": 1000.0}))
    await topics.put(service, "t", TopicAsked(rate=100.0, burst=10.0))
    await service.registrations.register("t", [PublisherAsked(id="p", rate=10.0)])
    await placements.place(service, "t", PlacementAsked())
    assert (await service.report("b1", REPORT)).topics

    now[0] = 20.0  # it was silent for more than a lease
    service.confirmed_at = now[0]
    disk.free.clear()
    another = ASKED.model_copy(update={"instance": "j", "process": "q", "capacity": 1000.0})
    registering = asyncio.create_task(service.brokers.register(another))
    await asyncio.sleep(0)
    reporting = asyncio.create_task(service.report("b1", REPORT))
    await asyncio.sleep(0)
    assert not reporting.done()
    disk.free.set()
    await registering
    with pytest.raises(NotFound, match="has not registered"):
        await reporting
    await service.report("b1", REPORT.model_copy(update={"process": "q"}))
    holders = service.state.leases["t"].holders.values()
    assert sum(each.most(now[0]).burst for each in holders) <= 10.0
