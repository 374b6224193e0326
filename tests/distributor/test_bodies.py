"""Bodies: too long, cut off, too many at once, and in the way of the gateways' reports."""

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from pydantic import BaseModel

from distributor import api, gateway_api
from distributor.api_fields import MAX_WATCHED
from distributor.errors import TooLong, TooMany
from distributor.http.bodies import (
    HELD_BYTES,
    MOST_BYTES,
    MOST_VALUES,
    SMALL_BYTES,
    Body,
    Held,
    Turns,
)
from distributor.http.handlers import _Json
from srtm.text.errors import UsageError
from tests.support.asynchronous import asynchronous
from tests.support.distributors import DistributorProcess, distributors_in
from tests.support.servers import http, wait_for

MIB = 1024 * 1024
MOST_RESIDENT = 300 * MIB
TOKEN = "a" * 32


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DistributorProcess]:
    with distributors_in(tmp_path_factory.mktemp("bodies")) as start:
        running = start()
        running.wait_leading()
        running.topic()
        yield running


def connect(running: DistributorProcess) -> socket.socket:
    host, _, port = running.address.partition(":")
    return socket.create_connection((host, int(port)), 20)


def head(path: str, size: int | None, method: str = "POST", more: str = "") -> bytes:
    length = "Transfer-Encoding: chunked" if size is None else f"Content-Length: {size}"
    return f"{method} /v1{path} HTTP/1.1\r\nHost: x\r\n{length}\r\n{more}\r\n".encode()


ALLOWED = f"Authorization: Bearer {TOKEN}\r\n"


def answer(connection: socket.socket) -> tuple[int, Any]:
    with HTTPResponse(connection) as response:
        response.begin()
        return response.status, json.loads(response.read())


def test_cut_off_uploads_leave_nothing_behind(shared: DistributorProcess) -> None:
    process = psutil.Process(shared.process.popen.pid)
    size = 16 * MIB

    def send(connection: socket.socket) -> None:
        with contextlib.suppress(ConnectionError):
            connection.sendall(head("/topics/t/publishers", size) + b" " * (size - 1))

    for _ in range(3):
        with contextlib.ExitStack() as stack:
            uploads = [stack.enter_context(connect(shared)) for _ in range(60)]
            threads = [threading.Thread(target=send, args=(each,)) for each in uploads]
            for each in threads:
                each.start()
            for each in threads:
                each.join()
            assert process.memory_info().rss < MOST_RESIDENT
        assert http(shared.address, "/v1/health")[0] == 200
        assert process.memory_info().rss < MOST_RESIDENT


def long_report() -> bytes:
    """As long as one may be: 10,000 topics with long figures, and arrivals of some."""
    count = 2**53 - 1
    entry = {"offered": 1e9 / 3, "admitted": 1e9 / 3, "backlog": count, "late_at_broker": count}
    entry |= {"served": count, "near": count, "late": count}
    topics: list[dict[str, Any]] = [{"topic": f"{n:064}", **entry} for n in range(10_000)]
    for each in topics[:10]:
        each["arrivals"] = [[123456, 1234]] * 4_900
    content = json.dumps({"applied_epoch": 0, "topics": topics}).encode()
    assert MOST_BYTES[gateway_api.Report] * 0.8 < len(content) < MOST_BYTES[gateway_api.Report]
    return content


def long_registration() -> bytes:
    rows = [{"id": f"p{n:0200}", "key": f"k{n % 9:0200}", "rate": 1.0} for n in range(20_000)]
    return json.dumps({"publishers": rows}).encode()


HINDRANCES = {
    "reports": ("/brokers/other/report", long_report()),
    "reports-all-wrong": (
        "/brokers/other/report",
        b'{"applied_epoch": 0, "topics": [{"topic": "t", "arrivals": ['
        + b"[-1,-1]," * 80_000
        + b"[1,1]]}]}",
    ),
    "registrations": ("/topics/t/publishers", long_registration()),
    "very-many-values": ("/topics/t/publishers", b"[" + b"{}," * 5 * MIB + b"{}]"),
    "unknown-fields": (
        "/brokers/other/drain",
        b'{"drain": true' + b"".join(b',"%d":0' % n for n in range(5_000)) + b"}",
    ),
}


@pytest.mark.parametrize("kind", HINDRANCES)
def test_nothing_hinders_an_honest_report(shared: DistributorProcess, kind: str) -> None:
    """Four connections send the longest bodies there are; a gateway gives up after 2 s."""
    path, content = HINDRANCES[kind]
    shared.broker("other")
    broker = shared.broker("honest")
    done = threading.Event()
    statuses = set()

    def hinder() -> None:
        connection = HTTPConnection(shared.address, timeout=60)
        with contextlib.closing(connection):
            for _ in range(200):
                if done.is_set():
                    return
                connection.request("POST", f"/v1{path}", content)
                response = connection.getresponse()
                response.read()
                statuses.add(response.status)

    threads = [threading.Thread(target=hinder) for _ in range(4)]
    for each in threads:
        each.start()
    own_path = f"/v1/brokers/{broker.name}/report"
    report = json.dumps({"applied_epoch": 0, "topics": [{"topic": "t", "offered": 1.0}]}).encode()
    try:
        for _ in range(50):
            assert http(shared.address, own_path, report, timeout=2)[0] == 200
    finally:
        done.set()
        for each in threads:
            each.join()
    assert statuses
    assert statuses <= {200, 400, 413, 503}


@pytest.mark.parametrize(
    ("request_head", "status", "said"),
    [
        pytest.param(head("/topics/t/publishers", 17 * MIB, more=ALLOWED),
                     413, "16,777,216 bytes", id="too-long-a-list"),
        pytest.param(head("/brokers/b/report", 5 * MIB, more=ALLOWED),
                     413, "4,194,304 bytes", id="too-long-a-report"),
        pytest.param(head("/brokers", 5 * MIB, more=ALLOWED),
                     413, "4,194,304 bytes", id="too-long-a-broker"),
        pytest.param(head("/brokers/b/drain", 1 * MIB, more=ALLOWED),
                     413, "65,536 bytes", id="too-long-anything-else"),
        pytest.param(head("/topics/t/publishers", 1 * MIB, more="Authorization: Bearer b\r\n"),
                     401, "--token-file", id="a-wrong-token"),
        pytest.param(head("/topics/t/publishers", None), 401, "--token-file", id="no-token"),
        pytest.param(head("/brokers", 9, more="Expect: 100-continue\r\n"),
                     401, "--token-file", id="who-asks-before-it-sends"),
        pytest.param(head("/nothing", 9, more=ALLOWED),
                     404, "no such path", id="no-such-path"),
        pytest.param(head("/brokers", 9, "DELETE", ALLOWED),
                     405, "takes GET, POST", id="the-wrong-method"),
    ],
)  # fmt: skip
def test_what_is_refused_anyway_is_refused_before_its_body(
    guarded: DistributorProcess, request_head: bytes, status: int, said: str
) -> None:
    with connect(guarded) as connection:
        connection.sendall(request_head)
        found, document = answer(connection)
    assert found == status
    assert said in document["error"]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DistributorProcess]:
    """It wants a token."""
    folder = tmp_path_factory.mktemp("guarded")
    token = folder / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    with distributors_in(folder) as start:
        running = start(folder / "s.db", f"--token-file={token}", token=TOKEN)
        running.wait_leading()
        yield running


def test_after_a_refusal_the_connection_goes_on(shared: DistributorProcess) -> None:
    connection = HTTPConnection(shared.address, timeout=20)
    with contextlib.closing(connection):
        for _ in range(3):
            connection.request("POST", "/v1/topics/t/publishers", b" " * (17 * MIB))
            response = connection.getresponse()
            assert response.status == 413
            assert "send it in parts" in json.loads(response.read())["error"]
            connection.request("GET", "/v1/health")
            response = connection.getresponse()
            assert (response.status, json.loads(response.read())["leading"]) == (200, True)


def test_a_body_of_unknown_length_is_bounded_as_it_comes(shared: DistributorProcess) -> None:
    shared.broker("b")
    with connect(shared) as connection:
        connection.sendall(head("/brokers/b/report", None))
        part = b"%x\r\n" % MIB + b" " * MIB + b"\r\n"
        for _ in range(5):
            connection.sendall(part)
        found, document = answer(connection)
    assert found == 413
    assert "4,194,304 bytes" in document["error"]


def test_bodies_under_way_are_bounded_and_leave_room_for_reports(
    shared: DistributorProcess,
) -> None:
    """Two uploads that never end; a third one has no room, reports do."""
    size = 16 * MIB
    broker = shared.broker("b")
    report = b'{"applied_epoch": 0}' + b" " * MIB

    def registers() -> int:
        return shared.call("POST", "/topics/t/publishers", b" " * (9 * MIB))[0]

    with contextlib.ExitStack() as stack:
        for _ in range(2):
            upload = stack.enter_context(connect(shared))
            upload.sendall(head("/topics/t/publishers", size) + b" " * (size - 1))
        wait_for(lambda: registers() == 503, "the two uploads are held")
        for _ in range(5):
            broker.report()
            assert shared.call("POST", "/brokers/b/report", report)[0] == 200
    wait_for(lambda: registers() == 400, "they are gone")


# --- pure -----------------------------------------------------------------------------------------


def body_of(model: type[BaseModel], content: bytes) -> Body:
    body = Body(model, Held())
    body.add(content)
    return body


def test_very_many_faults_are_one_line() -> None:
    content = b'{"drain": true' + b"".join(b',"%d":0' % n for n in range(5_000)) + b"}"
    with pytest.raises(UsageError, match="5,000 fields are wrong") as found:
        body_of(api.DrainAsked, content).read("POST /x")
    assert len(str(found.value)) < 100


def test_very_many_values_are_not_read() -> None:
    with pytest.raises(TooLong, match="more than 250,000 values"):
        body_of(api.WatchAsked, b"[" + b"0," * MOST_VALUES + b"0]").read("POST /x")


def test_the_longest_lists_can_be_read() -> None:
    body_of(gateway_api.Report, long_report()).read("POST /x")
    body_of(api.PublishersAsked, long_registration()).read("POST /x")
    ids = json.dumps({"ids": [f"{n:0100}" for n in range(MAX_WATCHED)]}).encode()
    body_of(api.WatchAsked, ids).read("POST /x")


def test_the_more_urgent_has_room_when_others_have_none() -> None:
    held = Held()
    kinds = [
        (api.WatchAsked, SMALL_BYTES),
        (gateway_api.Report, 2 * SMALL_BYTES),
        (gateway_api.Report, SMALL_BYTES),
    ]
    bodies = []
    for model, size in kinds:
        with contextlib.suppress(TooMany):
            for _ in range(10_000):
                bodies.append(Body(model, held))
                for _ in range(size // SMALL_BYTES):
                    bodies[-1].add(bytes(SMALL_BYTES))
    assert held.bytes == HELD_BYTES
    for each in bodies:
        each.free()
        each.free()
    assert held.bytes == 0


def test_one_long_body_at_a_time_and_reports_first() -> None:
    async def order() -> list[str]:
        turns, done, reading = Turns(), [], 0

        async def read(name: str, is_report: bool) -> None:
            nonlocal reading
            async with turns.take(is_report):
                reading += 1
                assert reading == 1
                await asyncio.sleep(0)
                done.append(name)
                reading -= 1

        names = [("first", False), ("list", False), ("report", True), ("late report", True)]
        await asyncio.gather(*(read(*each) for each in names))
        return done

    assert asyncio.run(order()) == ["first", "report", "late report", "list"]


@asynchronous
async def test_who_does_not_read_its_answer_holds_up_no_long_report() -> None:
    shared: Any = SimpleNamespace(turns=Turns())
    handler: Any = object.__new__(_Json)
    handler.shared, handler.has_left, handler._age_seconds = shared, False, None
    handler.body = SimpleNamespace(size=SMALL_BYTES + 1, is_report=False)
    is_read, sending = asyncio.Event(), asyncio.Event()

    async def call(names: tuple[str, ...]) -> api.Done:
        return api.Done()

    async def send(text: str) -> None:
        sending.set()
        await is_read.wait()

    handler._call, handler.send = call, send
    answering = asyncio.create_task(handler.answer())
    await sending.wait()
    async with asyncio.timeout(5), shared.turns.take(is_report=True):
        assert not answering.done()
    is_read.set()
    await answering


def test_short_requests_have_a_turn_between_long_ones() -> None:
    async def steps_between() -> int:
        turns, steps, seen = Turns(), 0, []

        async def count() -> None:
            nonlocal steps
            while len(seen) < 2:
                steps += 1
                await asyncio.sleep(0)

        async def read() -> None:
            async with turns.take(is_report=True):
                seen.append(steps)

        await asyncio.gather(read(), read(), count())
        return seen[1] - seen[0]

    assert asyncio.run(steps_between()) >= 6
