"""A share that is not looked at again is the one that another look would give: two distributors
get the same requests, of which one looks at everything each time."""

import asyncio
import copy
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from distributor.api import AdaptationAsked, PlacementAsked, TopicAsked
from distributor.api_fields import PublisherAsked
from distributor.control import placements, topics
from distributor.control.restored import restored
from distributor.control.service import Distributor
from distributor.errors import Conflict
from distributor.gateway_api import BrokerAsked, Desired, Report
from distributor.store.statements import put_leader, put_lease, put_lineage
from srtm.text.errors import SrtmError
from tb_adaptor.leases import Holder, TopicLeases
from tests.distributor.lease_faults import Committer, Disk
from tests.support.cases import LONG

LEASE = 10.0
BROKERS, TOPICS = ("b1", "b2", "b3"), ("t1", "t2", "t3", "t4", "t5", "t6")
STEPS = 150


class Twin:
    """A distributor in memory, and what its brokers were told last."""

    def __init__(self, *, looks_at_all: bool) -> None:
        disk = Disk()
        disk.lead()
        disk.write([put_leader("x", "term")])
        self.now = 1000.0
        state = restored(disk.snapshot(), 0.0)
        disk.write([put_lease(LEASE), *put_lineage(state.lineage_row())])
        self.service = Distributor(
            state,
            Committer(disk, "term"),
            LEASE,
            lambda: self.now,
            lambda: self.now,  # type: ignore[arg-type]
        )
        self.told: dict[str, Desired] = {}
        self.quiet: Counter[bool] = Counter()
        receive = self.service.receive

        def received(name: str, report: Report) -> Any:
            gateway = self.service.gateway(name)
            self.quiet[bool(gateway.resting)] += 1
            if looks_at_all:
                gateway.resting.clear()
            return receive(name, report)

        self.service.receive = received  # type: ignore[method-assign]

    async def do(self, name: str, *arguments: Any) -> Any:
        """What came of it: an answer, or a refusal."""
        try:
            return await getattr(self, name)(*arguments)
        except (SrtmError, Conflict) as error:
            return str(error)

    def leases(self) -> dict[str, TopicLeases]:
        """What brokers may hold. With which epoch they were told the same share once more, as
        another topic of theirs changed, makes no difference."""
        return {
            name: replace(
                leases,
                holders={broker: _held(each) for broker, each in leases.holders.items()},
            )
            for name, leases in self.service.state.leases.items()
        }

    async def registers(self, broker: str, process: str) -> Any:
        asked = BrokerAsked(
            name=broker,
            tcp_address=f"{broker}:1",
            http_address=f"{broker}:2",
            capacity=150.0,
            instance=broker,
            process=process,
        )
        self.told.pop(broker, None)
        return (await self.service.brokers.register(asked)).epoch

    async def reports(self, broker: str, process: str, rows: list[dict[str, Any]]) -> Any:
        told = self.told.get(broker)
        placed = {each.topic for each in told.topics or ()} if told else set()
        strays = [row for row in rows if row.pop("is_stray")]
        rows = [row for row in rows if row["topic"] in placed] + [
            row for row in strays if row["topic"] not in placed
        ]
        self.service.confirmed_at = self.now
        answer = await self.service.report(
            broker,
            Report.model_validate(
                {
                    "applied_epoch": told.epoch if told else 0,
                    "store": told.store if told else None,
                    "names_version": told.names_version if told else "",
                    "process": process,
                    "whole": told is None,
                    "seconds": 1.0,
                    "topics": rows,
                }
            ),
        )
        same = told and answer.topics is None and answer.epoch == told.epoch
        self.told[broker] = answer.model_copy(update={"topics": told.topics}) if same else answer  # type: ignore[union-attr]
        return answer.model_dump(exclude={"store", "proof"})

    async def sets(self, topic: str, rate: float, burst: float) -> Any:
        return await topics.put(self.service, topic, TopicAsked(rate=rate, burst=burst))

    async def drops(self, topic: str) -> Any:
        return await topics.delete(self.service, topic)

    async def joins(self, topic: str, publisher: str, rate: float) -> Any:
        asked = [PublisherAsked(id=publisher, rate=rate)]
        return await self.service.registrations.register(topic, asked)

    async def places(self, topic: str, policy: str) -> Any:
        return await placements.place(self.service, topic, PlacementAsked(policy=policy))

    async def drains(self, broker: str, drain: bool) -> Any:
        return (await self.service.brokers.drain(broker, drain)).state

    async def adapts(self, topic: str, policy: str) -> Any:
        asked = AdaptationAsked.model_validate({"policy": policy})
        return (await self.service.set_adaptation(topic, asked)).policy

    async def decides(self) -> None:
        await self.service.settle()
        await self.service.adapt()


def _held(holder: Holder) -> Any:
    epoch, burst = holder.had_all
    had_all = burst if holder.granted[0][0] <= epoch else None
    shares = tuple(dict.fromkeys(share for _, share in holder.granted))
    return shares, holder.lease_ends_at, had_all


def steps(seed: int) -> list[tuple[float, tuple[Any, ...]]]:
    """Seconds until each, and what is asked for: long stretches in which little happens, as most
    of a deployment's life is."""
    drawn = random.Random(seed)
    found: list[tuple[float, tuple[Any, ...]]] = []

    def add(*asked: Any, after: float = 0.0) -> None:
        found.append((after, asked))

    processes = dict.fromkeys(BROKERS, 0)
    for broker in BROKERS:
        add("registers", broker, f"{broker}-0")
    for topic in TOPICS:
        add("sets", topic, 120.0, drawn.choice([3.0, 40.0]))
        for number in range(drawn.randint(1, 4)):
            add("joins", topic, f"p{number}", 30.0)
        add("places", topic, "srtm")
    for _ in range(STEPS):
        if drawn.random() < 0.12:
            topic, broker = drawn.choice(TOPICS), drawn.choice(BROKERS)
            kind = drawn.choice(
                ["sets", "sets", "drops", "joins", "places", "drains", "adapts", "restarts"]
            )
            if kind == "sets":
                add("sets", topic, drawn.choice([60.0, 120.0, 300.0]), drawn.choice([3.0, 40.0]))
            elif kind == "drops":
                add("drops", topic)
            elif kind == "joins":
                add("joins", topic, f"q{drawn.randrange(9)}", 30.0)
            elif kind == "places":
                add("places", topic, drawn.choice(["srtm", "max-min"]))
            elif kind == "drains":
                add("drains", broker, drawn.random() < 0.5)
            elif kind == "adapts":
                add("adapts", topic, drawn.choice(["srtm", "paper", "off"]))
            else:
                processes[broker] += 1
                add("registers", broker, f"{broker}-{processes[broker]}")
        away = drawn.choice([None, None, None, *BROKERS])
        for _ in range(drawn.randint(1, 5)):
            add("decides", after=drawn.choice([0.3, 1.0, 1.0, 1.0]))
            for broker in BROKERS:
                if broker != away:
                    rows = [_row(drawn, topic) for topic in TOPICS if drawn.random() < 0.3]
                    add("reports", broker, f"{broker}-{processes[broker]}", rows)
        if away and drawn.random() < 0.1:
            add("decides", after=1.5 * LEASE)
    return found


def _row(drawn: random.Random, topic: str) -> dict[str, Any]:
    rate = drawn.choice([0.0, 10.0, 50.0])
    row = {"topic": topic, "offered": rate, "admitted": rate, "served": rate}
    row["is_stray"] = drawn.random() < 0.01
    if drawn.random() < 0.05:
        row |= {"waiting": 5.0, "backlog": 5.0, "batch": drawn.choice([1, 4, 60])}
    return row


@pytest.mark.parametrize("seed", range(300 if LONG else 10))
def test_two_that_look_more_and_less_say_the_same(seed: int) -> None:
    async def compare() -> None:
        for number, (after, asked) in enumerate(steps(seed)):
            for twin in (one, all_):
                twin.now += after
            said = await one.do(*copy.deepcopy(asked))
            assert said == await all_.do(*copy.deepcopy(asked)), (number, asked)
            assert one.leases() == all_.leases(), (number, asked)

    one, all_ = Twin(looks_at_all=False), Twin(looks_at_all=True)
    asyncio.run(compare())
    assert one.quiet[True] > 100
    assert one.quiet[True] > one.quiet[False] / 2
