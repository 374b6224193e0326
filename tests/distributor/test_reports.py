"""Reports and answers by turns on one connection."""

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from srtm.gateway.agent import Agent, Identity
from srtm.http.client import Endpoint
from tests.gateway.test_agent_report import Topics
from tests.support.distributors import DistributorProcess


class Line:
    """A connection to a distributor that goes on with reports, or what was answered instead."""

    def __init__(self, address: str, broker: str, *headers: str) -> None:
        host, port = address.split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=20)
        head = [f"GET /v1/brokers/{broker}/reports HTTP/1.1", f"Host: {address}", *headers, "", ""]
        self.socket.sendall("\r\n".join(head).encode())
        self.file = self.socket.makefile("rb")
        self.status = int(self.file.readline().split()[1])
        self.headers = dict(
            line.decode().rstrip().split(": ", 1) for line in iter(self.file.readline, b"\r\n")
        )

    def tell(self, report: object) -> tuple[int, Any]:
        line = report if isinstance(report, bytes) else json.dumps(report).encode()
        self.socket.sendall(line + b"\n")
        status, length = map(int, self.file.readline().split())
        return status, json.loads(self.file.read(length))

    def ended(self) -> bool:
        return self.file.read() == b""


@contextmanager
def line(distributor: DistributorProcess, broker: str, *headers: str) -> Iterator[Line]:
    found = Line(distributor.address, broker, *headers)
    try:
        yield found
    finally:
        found.socket.close()


UPGRADE = ("Connection: Upgrade", "Upgrade: srtm-reports/1")


def test_each_line_is_a_report_and_has_an_answer(distributor: DistributorProcess) -> None:
    with line(distributor, "b1", *UPGRADE) as told:
        assert (told.status, told.headers["Upgrade"]) == (101, "srtm-reports/1")
        status, said = told.tell({"applied_epoch": 0})
        assert status == 404  # it has to register, and goes on then
        assert "b1 is not registered" in said["error"]
        [broker] = distributor.placed(1000.0, publishers=2)
        for _ in range(20):
            status, said = told.tell({"applied_epoch": broker.epoch})
            assert (status, said["epoch"]) == (200, broker.epoch)
        assert [each["topic"] for each in said["topics"]] == ["t"]
        shown = distributor.ok("GET", "/brokers")["brokers"][0]
        assert (shown["state"], shown["applied_epoch"]) == ("up", broker.epoch)


@pytest.mark.parametrize(
    ("report", "said"),
    [
        pytest.param({"applied_epoch": -1}, "report of broker b1: applied_epoch", id="field"),
        pytest.param(b"nonsense", "report of broker b1: ", id="no-json"),
        pytest.param(b"", "report of broker b1: ", id="nothing"),
        pytest.param(b'{"topics": [' + b"{}," * 20_000 + b"{}]}", "", id="long"),
    ],
)
def test_a_line_that_is_no_report_is_the_last(
    distributor: DistributorProcess, report: object, said: str
) -> None:
    distributor.placed(1000.0, publishers=2)
    with line(distributor, "b1", *UPGRADE) as told:
        status, answer = told.tell(report)
        assert status == 400
        assert said in answer["error"]
        assert told.ended()
    assert distributor.ok("GET", "/topics/t")["publishers"] == 2


def test_a_line_without_an_end_is_cut_off(distributor: DistributorProcess) -> None:
    with line(distributor, "b1", *UPGRADE) as told:
        told.socket.sendall(b"x" * 70_000)
        assert told.ended()


@pytest.mark.parametrize(
    "headers", [(), ("Connection: Upgrade", "Upgrade: websocket"), ("Upgrade: srtm-reports/2",)]
)
def test_another_protocol_is_refused(
    distributor: DistributorProcess, headers: tuple[str, ...]
) -> None:
    with line(distributor, "b1", *headers) as told:
        assert (told.status, told.headers["Upgrade"]) == (426, "srtm-reports/1")


def test_those_who_only_open_connections_leave_room_for_others(
    distributor: DistributorProcess,
) -> None:
    lines = [Line(distributor.address, f"b{n}", *UPGRADE) for n in range(300)]
    assert {each.status for each in lines} == {101}
    distributor.topic()
    for each in lines:
        each.socket.close()


def test_a_gateway_reports_on_one_connection_and_finds_a_new_one(
    distributor: DistributorProcess,
) -> None:
    agent = Agent(Endpoint(distributor.address), Identity("b", "h:2", "h:3", 0), Topics())

    async def report() -> None:
        for _ in range(3):
            assert await agent._exchange()
        kept = agent._exchanged
        assert kept is not None
        assert (await kept.ask(b"nonsense", 20)).status == 400
        assert await kept._connection._reader.read() == b""  # closed by the distributor
        assert await agent._exchange()
        assert agent._exchanged is not kept
        agent.close()

    asyncio.run(report())
    assert distributor.ok("GET", "/brokers")["brokers"][0]["state"] == "up"


def test_a_gateway_goes_on_at_a_distributor_that_came_anew(
    distributor: DistributorProcess,
) -> None:
    agent = Agent(Endpoint(distributor.address), Identity("b", "h:2", "h:3", 0), Topics())

    async def report() -> None:
        assert await agent._exchange()
        distributor.process.kill()
        distributor.process.start()
        await asyncio.to_thread(distributor.wait_leading)
        assert await agent._exchange()
        agent.close()

    asyncio.run(report())
