"""Reports and answers by turns on one connection."""

import asyncio
import hashlib
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from srtm.gateway.agent import Agent, Identity
from srtm.http.client import Endpoint
from tests.gateway.test_agent_report import Topics
from tests.support.distributors import DistributorProcess, Starter
from tests.support.servers import wait_for


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
        assert told.status == 404
    [broker] = distributor.placed(1000.0, publishers=2)
    with line(distributor, "b1", *UPGRADE) as told:
        assert (told.status, told.headers["Upgrade"]) == (101, "srtm-reports/1")
        status, said = told.tell({"applied_epoch": 0, "process": "another"})
        assert status == 404  # it has to register, and goes on then
        assert "b1 has not registered" in said["error"]
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
    distributor.broker("b1")
    with line(distributor, "b1", *UPGRADE) as told:
        told.socket.sendall(b"x" * 70_000)
        assert told.ended()


@pytest.mark.parametrize(
    "headers", [(), ("Connection: Upgrade", "Upgrade: websocket"), ("Upgrade: srtm-reports/2",)]
)
def test_another_protocol_is_refused(
    distributor: DistributorProcess, headers: tuple[str, ...]
) -> None:
    distributor.broker("b1")
    with line(distributor, "b1", *headers) as told:
        assert (told.status, told.headers["Upgrade"]) == (426, "srtm-reports/1")


def test_a_broker_has_one_connection(distributor: DistributorProcess) -> None:
    """Whoever opens more takes no room from others."""
    broker = distributor.broker("b1")
    lines = [Line(distributor.address, "b1", *UPGRADE) for _ in range(50)]
    assert {each.status for each in lines} == {101}
    assert all(each.ended() for each in lines[:-1])
    assert lines[-1].tell({"applied_epoch": broker.epoch})[0] == 200
    for each in lines:
        each.socket.close()


def test_an_answer_that_is_not_read_holds_up_nobody(distributor: DistributorProcess) -> None:
    [broker] = distributor.placed(1000.0, publishers=2)
    with line(distributor, "b1", *UPGRADE) as deaf:
        report = json.dumps({"applied_epoch": broker.epoch}).encode() + b"\n"
        deaf.socket.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                deaf.socket.send(report * 100)
        assert distributor.ok("GET", "/topics/t")["publishers"] == 2
    with line(distributor, "b1", *UPGRADE) as told:
        assert told.tell({"applied_epoch": broker.epoch})[0] == 200


def test_reports_for_another_broker_are_in_the_audit_log(start: Starter, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    secret = "a" * 40
    tokens.write_text(f"b2:agent:{hashlib.sha256(secret.encode()).hexdigest()}\n")
    tokens.chmod(0o600)
    audit = tmp_path / "audit.log"
    running = start(tmp_path / "s.db", f"--token-file={tokens}", f"--audit-log={audit}")
    running.wait_leading()
    with line(running, "b1", *UPGRADE, f"Authorization: Bearer {secret}") as told:
        assert told.status == 403
    wait_for(lambda: "/v1/brokers/b1/reports" in audit.read_text(), "it is told")


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


def test_reports_that_come_at_once_are_answered_in_order(distributor: DistributorProcess) -> None:
    [broker] = distributor.placed(1000.0, publishers=2)
    report = json.dumps({"applied_epoch": broker.epoch}).encode() + b"\n"
    host, port = distributor.address.split(":")
    head = ["GET /v1/brokers/b1/reports HTTP/1.1", f"Host: {distributor.address}", *UPGRADE, "", ""]
    with socket.create_connection((host, int(port)), timeout=20) as client:
        client.sendall("\r\n".join(head).encode() + report * 3 + b"nonsense\n" + report)
        file = client.makefile("rb")
        assert file.readline().split()[1] == b"101"
        while file.readline() != b"\r\n":
            pass
        statuses = []
        while answer := file.readline():
            status, length = map(int, answer.split())
            file.read(length)
            statuses.append(status)
    assert statuses == [200, 200, 200, 400]


def test_reports_come_at_once_and_in_pieces(distributor: DistributorProcess) -> None:
    [broker] = distributor.placed(1000.0, publishers=2)
    with line(distributor, "b1", *UPGRADE) as told:
        told.socket.sendall(b'{"applied_epoch": %d}\n' % broker.epoch * 3)
        for _ in range(3):
            status, length = map(int, told.file.readline().split())
            told.file.read(length)
            assert status == 200
        for piece in (b'{"applied_', b'epoch": %d' % broker.epoch, b"}"):
            told.socket.sendall(piece)
            assert distributor.ok("GET", "/topics/t")["publishers"] == 2
        assert told.tell(b"")[0] == 200
