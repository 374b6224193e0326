"""Watch streams, and very many publishers at once."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import psutil
import pytest
from tornado.netutil import bind_sockets

from distributor.control import watches
from distributor.control.committer import Committer
from distributor.control.service import Distributor
from distributor.control.state import ControlState, RegisteredTopic
from distributor.control.watches import Watches
from distributor.errors import TooMany
from distributor.http import handlers
from distributor.http.connections import Connections
from distributor.http.door import Door
from distributor.http.handler import Shared
from distributor.http.replica import Replica
from srtm.http.access import Access
from srtm.limits.contract import Contract
from tests.support.distributors import DistributorProcess, distributors_in, settle


@pytest.fixture(scope="module")
def distributor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DistributorProcess]:
    with distributors_in(tmp_path_factory.mktemp("watch")) as start:
        running = start()
        running.wait_leading()
        yield running


@asynccontextmanager
async def watching(
    distributor: DistributorProcess, topic: str, ids: list[str]
) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """The lines of a stream."""
    host, _, port = distributor.address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    body = json.dumps({"ids": ids}).encode()
    head = f"POST /v1/topics/{topic}/watch HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
    writer.write(head.encode() + b"\r\n" + body)
    answer = await reader.readuntil(b"\r\n\r\n")
    if not answer.startswith(b"HTTP/1.1 200"):
        pytest.fail(f"{answer!r} {await reader.read(1000)!r} {distributor.process.text()[-2000:]}")

    async def lines() -> AsyncIterator[dict[str, Any]]:
        left = b""
        while size := int(await reader.readline() or b"0", 16):
            left += (await reader.readexactly(size + 2))[:-2]
            *whole, left = left.split(b"\n")
            for each in whole:
                yield json.loads(each)

    try:
        yield lines()
    finally:
        writer.close()


async def take(lines: AsyncIterator[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    async def some() -> list[dict[str, Any]]:
        return [await anext(lines) for _ in range(count)]

    return await asyncio.wait_for(some(), 20)


async def next_rate(lines: AsyncIterator[dict[str, Any]]) -> Any:
    """A beat may come first, where all of this takes more than ten seconds."""
    while "rate" not in (found := (await take(lines, 1))[0]):
        assert found == {"beat": True}
    return found["rate"]


def test_a_watch_tells_where_everybody_is_and_every_move(distributor: DistributorProcess) -> None:
    async def follow() -> None:
        async with watching(distributor, "moves", ["p0", "p1", "nobody"]) as lines:
            first = {each["id"]: each for each in await take(lines, 3)}
            assert first["nobody"]["rate"] is None
            assert first["p0"]["broker"] is None
            await asyncio.to_thread(lambda: (distributor.place("moves"), settle(b1, b2)))
            moved = {each["id"]: each["broker"] for each in await take(lines, 2)}
            assert moved == {"p0": "b1", "p1": "b1"}
            await asyncio.to_thread(
                lambda: (
                    distributor.ok("POST", "/brokers/b1/drain", {"drain": True}),
                    distributor.place("moves"),
                    settle(b1, b2),
                )
            )
            again = await take(lines, 2)
            assert {each["tcp_address"] for each in again} == {"b2:4150"}
            await asyncio.to_thread(lambda: distributor.ok("DELETE", "/topics/moves/publishers/p0"))
            (gone,) = await take(lines, 1)
            assert (gone["id"], gone["rate"], gone["broker"]) == ("p0", None, None)

    b1, b2 = distributor.broker("b1", 100.0), distributor.broker("b2", 90.0)
    distributor.topic("moves")
    distributor.publishers(2, "moves")
    asyncio.run(follow())


def test_a_beat_comes_when_nothing_else_does(
    distributor: DistributorProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process, so that the beat can be quick."""
    monkeypatch.setattr(handlers, "BEAT_SECONDS", 0.01)

    async def follow() -> None:
        state = ControlState(
            topics={"t": RegisteredTopic(Contract(topic="t", rate=1, burst=1), None)}
        )
        committer = Committer(None, None, lambda _: None)  # type: ignore[arg-type]
        service = Distributor(state, committer, 30.0, lambda: 0.0, lambda: 0.0)
        connections = Connections(100)
        access = Access("", "", logging.getLogger())
        replica = Replica("", 30.0, lambda: 0.0, lambda: 0.0)
        shared = Shared(connections, access, None, None, lambda: 0.0, replica)
        server = Door(handlers.application(lambda: service, shared), connections)
        (door,) = bind_sockets(0, "127.0.0.1")
        server.add_sockets([door])
        here = replace(distributor, address=f"127.0.0.1:{door.getsockname()[1]}")
        async with watching(here, "t", ["p"]) as lines:
            assert (await take(lines, 3))[1:] == [{"beat": True}, {"beat": True}]
        server.stop()
        await server.close_all_connections()

    asyncio.run(follow())


def test_ten_thousand_publishers_register_at_once(distributor: DistributorProcess) -> None:
    """One request each, 500 connections."""

    async def connection(numbers: range) -> int:
        host, _, port = distributor.address.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        good = 0
        for number in numbers:
            row = {"id": f"p{number}", "key": f"k{number % 100}", "rate": 1.0}
            body = json.dumps({"publishers": [row]}).encode()
            head = "POST /v1/topics/many/publishers HTTP/1.1\r\nHost: x\r\n"
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(len(b'{"registered":1}'))
            good += answer.startswith(b"HTTP/1.1 200")
        writer.close()
        return good

    async def everybody() -> int:
        parts = [range(first, 10_000, 500) for first in range(500)]
        return sum(await asyncio.gather(*map(connection, parts)))

    distributor.topic("many")
    assert asyncio.run(everybody()) == 10_000
    assert distributor.ok("GET", "/topics/many")["publishers"] == 10_000


def test_two_thousand_watchers_cost_little_and_a_stalled_one_nobody(
    distributor: DistributorProcess,
) -> None:
    """One of them reads nothing; all others hear of a change."""
    process = psutil.Process(distributor.process.popen.pid)

    async def follow() -> None:
        before = process.memory_info().rss
        async with watching(distributor, "crowd", [f"p{n}" for n in range(5000)]):
            streams = [watching(distributor, "crowd", [f"p{n}"]) for n in range(2000)]
            lines = [await each.__aenter__() for each in streams]
            await asyncio.gather(*(take(each, 1) for each in lines))
            assert process.memory_info().rss - before < 200 * 1024 * 1024
            await asyncio.to_thread(distributor.publishers, 5000, "crowd", 20.0)
            rates = await asyncio.gather(*(next_rate(each) for each in lines))
            assert set(rates) == {20.0}
            for each in streams:
                await each.__aexit__(None, None, None)

    distributor.topic("crowd", rate=1e6)
    distributor.publishers(5000, "crowd")
    asyncio.run(follow())


def test_watches_are_bounded_and_give_back_what_they_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "MOST_WATCHED", 5)
    found = Watches()
    most = found.add("t", map(str, range(5)))
    with pytest.raises(TooMany, match="share one watch"):
        found.add("t", ["one"])
    found.remove(most)
    found.remove(most)
    assert (len(found), found.watched) == (0, 0)
    found.add("t", ["one"])


def test_a_watcher_that_does_not_look_holds_each_id_once() -> None:
    found = Watches()
    watch = found.add("t", ["a", "b", "a"])
    assert watch.take(10) == ["a", "b"]
    for _ in range(1000):
        found.notify("t", ["a"])
    found.notify("u", ["b"])
    assert watch.take(10) == ["a"]
    assert watch.take(10) == []
