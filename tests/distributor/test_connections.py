"""More connections than the distributor can have: it goes on answering, and says so once."""

import contextlib
import resource
import socket

import psutil
import pytest

from distributor.http.connections import UNREAD_SECONDS, Connections, room_for_connections
from tests.support.distributors import DistributorProcess, Starter
from tests.support.servers import http, wait_for

FILES = 256


@pytest.fixture
def small(start: Starter) -> DistributorProcess:
    """It may open 256 files and no more."""
    running = start(open_files=FILES)
    running.wait_leading()
    return running


def connect(running: DistributorProcess) -> socket.socket:
    host, _, port = running.address.partition(":")
    return socket.create_connection((host, int(port)), 10)


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"", id="that-say-nothing"),
        pytest.param(b"POST /v1/brokers HTTP/1.1\r\nHost: x\r\n", id="in-the-midst-of-a-head"),
        pytest.param(
            b"POST /v1/brokers HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{",
            id="in-the-midst-of-a-body",
        ),
        pytest.param(b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n", id="that-were-answered"),
    ],
)
def test_idle_connections_make_room(small: DistributorProcess, sent: bytes) -> None:
    process = psutil.Process(small.process.popen.pid)
    broker = small.broker("b1")
    logged = len(small.process.text())
    with contextlib.ExitStack() as stack:
        for _ in range(400):
            with contextlib.suppress(ConnectionError):
                stack.enter_context(connect(small)).sendall(sent)
        before = sum(process.cpu_times()[:2])
        for _ in range(50):
            assert http(small.address, "/v1/health")[0] == 200
            broker.report()
        used = sum(process.cpu_times()[:2]) - before
    assert used < 3, "a hundred requests take a tenth of that"
    assert small.process.text()[logged:].count("\n") <= 2


def test_a_watch_is_not_idle(small: DistributorProcess) -> None:
    small.topic()
    with connect(small) as watch, contextlib.ExitStack() as stack:
        watch.sendall(b"GET /v1/topics/t/watch?id=p HTTP/1.1\r\nHost: x\r\n\r\n")
        lines = watch.makefile("rb")
        assert any(b'"id":"p"' in line for line in iter(lines.readline, b"\r\n\r\n"))
        for _ in range(400):
            stack.enter_context(connect(small))
        small.publishers(1)
        small.ok("POST", "/topics/t/publishers", {"publishers": [{"id": "p", "rate": 7.0}]})
        assert any(b'"rate":7.0' in line for line in iter(lines.readline, b""))


def test_watches_leave_room_for_reports(small: DistributorProcess) -> None:
    small.topic()
    broker = small.broker("b1")
    with contextlib.ExitStack() as stack:
        answers = []
        for _ in range(FILES):
            watch = stack.enter_context(connect(small))
            watch.sendall(b"GET /v1/topics/t/watch?id=p HTTP/1.1\r\nHost: x\r\n\r\n")
            answers.append(watch.recv(12))
        assert answers[0] == b"HTTP/1.1 200"
        assert answers[-1] == b"HTTP/1.1 503"
        for _ in range(10):
            broker.report()
    wait_for(lambda: small.call("GET", "/topics/t/watch?id=")[0] == 400, "all are gone")


def test_a_lack_of_files_is_told_once(small: DistributorProcess) -> None:
    """It has some open, and may open no more: others of its host have them all."""
    process = psutil.Process(small.process.popen.pid)
    logged = len(small.process.text())
    process.rlimit(psutil.RLIMIT_NOFILE, (3, FILES))
    before = sum(process.cpu_times()[:2])
    with connect(small) as waits:
        waits.sendall(b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n")
        waits.settimeout(2)  # it tries again and again
        with pytest.raises(TimeoutError):
            waits.recv(12)
        assert sum(process.cpu_times()[:2]) - before < 1
        process.rlimit(psutil.RLIMIT_NOFILE, (FILES, FILES))
        waits.settimeout(20)
        assert waits.recv(12) == b"HTTP/1.1 200"
    said = small.process.text()[logged:]
    assert said.count("\n") == 1
    assert "Too many open files" in said


# --- pure -----------------------------------------------------------------------------------------


class FakeStream:
    def __init__(self, writing: bool = False) -> None:
        self.closed = False
        self._writing = writing

    def close(self) -> None:
        self.closed = True

    def writing(self) -> bool:
        return self._writing


def test_the_longest_silent_one_makes_room() -> None:
    connections = Connections(3)
    first, second, third, fourth, fifth = (FakeStream() for _ in range(5))
    for now, each in enumerate((first, second, third)):
        assert not connections.open(each, now)
    connections.work(first)
    assert connections.open(fourth, 3.0)
    assert [each.closed for each in (first, second, third)] == [False, True, False]
    connections.wait(first, 4.0)  # answered: it is the youngest of those that wait
    assert connections.open(fifth, 5.0)
    assert [each.closed for each in (first, third, fourth)] == [False, True, False]
    assert len(connections) == 3


def test_where_all_are_busy_nobody_is_closed() -> None:
    connections = Connections(2)
    streams = [FakeStream(), FakeStream()]
    for each in streams:
        connections.open(each, 0.0)
        assert not connections.all_busy
        connections.work(each)
    assert connections.all_busy
    assert not connections.has_room_to_watch
    connections.close_longest()
    assert not any(each.closed for each in streams)
    connections.forget(streams[0])
    connections.forget(streams[0])
    assert (len(connections), connections.all_busy) == (1, False)


def test_an_answer_that_nobody_reads_is_given_up() -> None:
    connections = Connections(9)
    unread, idle, fresh = FakeStream(writing=True), FakeStream(), FakeStream(writing=True)
    connections.open(unread, 0.0)
    connections.open(idle, 0.0)
    connections.open(fresh, 1.0)
    connections.close_unread(UNREAD_SECONDS)
    assert [each.closed for each in (unread, idle, fresh)] == [True, False, False]
    assert len(connections) == 2


@pytest.mark.parametrize(
    ("files", "connections"),
    [pytest.param(1024, 960, id="usual"), pytest.param(64, 32, id="hardly-any")],
)
def test_connections_leave_files_for_the_rest(
    monkeypatch: pytest.MonkeyPatch, files: int, connections: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (16, files))
    set_to: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: set_to.append(limits))
    assert room_for_connections() == connections
    assert set_to == [(files, files)]
