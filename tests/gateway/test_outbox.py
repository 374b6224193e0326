"""Answers of one wake-up: sent together at its end, in their order, and lost with no connection."""

import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kernel.clock_stamps import ClockStamps
from srtm.gateway.client import MAX_UNREAD_BYTES, Client, ConnectionBounds
from srtm.gateway.farewells import Farewells
from srtm.gateway.heartbeats import Heartbeats
from srtm.gateway.outbox import Outbox
from srtm.gateway.reactor import Reactor
from srtm.nsq.commands import MAGIC_V2, NOP, Limits, pub
from srtm.nsq.frames import ERROR, HEARTBEAT_FRAME, OK_FRAME, build_frame
from srtm.nsq.identify import Server


def _no_fault(error: Exception, what: str) -> None:
    raise error


class Publisher:
    """A client of a gateway whose topic only collects, and the far end of its connection."""

    def __init__(self, kind: int = socket.SOCK_STREAM) -> None:
        self.runs: list[Any] = []
        self.outbox = Outbox(_no_fault)
        self.reactor = Reactor()
        ours, self.far = socket.socketpair(socket.AF_UNIX, kind)
        ours.setblocking(False)
        self.fd = ours.fileno()
        self.far.setblocking(False)
        host: Any = SimpleNamespace(
            stamps=ClockStamps(),
            limits=Limits(),
            auth=None,
            server=Server(heartbeat_interval=30_000),
            topics=SimpleNamespace(by_name={}, is_open=True, offer=self.runs.append),
            connection_bounds=ConnectionBounds(100, 100_000),
            reactor=self.reactor,
            outbox=self.outbox,
            farewells=Farewells(self.reactor),
            heartbeats=Heartbeats(_no_fault),
            clients=set(),
        )
        self.client = Client(host, ours, "127.0.0.1:1")
        self.send(MAGIC_V2)

    def never_stops(self) -> list[bytes]:
        """From now on each read brings as much as one can, and there is more; what was read."""
        read: list[bytes] = []

        def receive(size: int) -> bytes:
            assert len(read) < 1_000, "the others never have their turn"
            read.append((NOP * size)[:size])
            return read[-1]

        self.client.reads._receive = receive  # type: ignore[attr-defined]
        return read

    def send(self, data: bytes) -> None:
        self.far.send(data)
        self.client.read()

    def publish(self, count: int) -> list[Any]:
        """Each message a run of its own."""
        for _ in range(count):
            self.send(pub(b"t", b"x"))
        return self.runs[-count:]

    def settle(self, run: Any) -> None:
        run.left -= 1
        self.client.settle(run, 1)

    def flush(self) -> None:
        assert self.outbox.flush(0, 0) is False

    @property
    def received(self) -> bytes:
        try:
            return self.far.recv(1_000_000)
        except BlockingIOError:
            return b""


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    made = Publisher()
    yield made
    made.client.close()
    made.far.close()
    made.reactor.close()


def test_answers_wait_for_the_end_of_the_wake_up_and_go_together(publisher: Publisher) -> None:
    for run in publisher.publish(3):
        publisher.settle(run)
    assert publisher.received == b""
    publisher.flush()
    assert publisher.received == OK_FRAME * 3
    publisher.flush()
    assert publisher.received == b""


def test_answers_of_one_publisher_are_one_piece() -> None:
    publisher = Publisher(socket.SOCK_SEQPACKET)  # which keeps pieces apart
    for run in publisher.publish(3):
        publisher.settle(run)
    publisher.flush()
    assert publisher.received == OK_FRAME * 3
    publisher.client.close()
    publisher.far.close()
    publisher.reactor.close()


def test_each_wake_up_has_its_own(publisher: Publisher) -> None:
    for run in publisher.publish(3):
        publisher.settle(run)
        publisher.flush()
        assert publisher.received == OK_FRAME


def test_what_is_written_behind_an_answer_stays_behind_it(publisher: Publisher) -> None:
    publisher.settle(publisher.publish(1)[0])
    publisher.client.write(HEARTBEAT_FRAME)
    assert publisher.received == b""
    publisher.flush()
    assert publisher.received == OK_FRAME + HEARTBEAT_FRAME
    publisher.client.write(HEARTBEAT_FRAME)  # nothing waits: at once
    assert publisher.received == HEARTBEAT_FRAME


def test_an_error_that_ends_the_connection_comes_after_the_answers(publisher: Publisher) -> None:
    run = publisher.publish(1)[0]
    publisher.send(b"NONSENSE\n")
    publisher.settle(run)
    told = publisher.received
    assert told.startswith(OK_FRAME)
    assert told[len(OK_FRAME) + 4 :].startswith(build_frame(ERROR, b"E_INVALID")[4:])
    assert publisher.client.closed
    publisher.flush()
    assert publisher.received == b""


def test_a_publisher_that_has_ended_gets_its_answer_before_the_close(publisher: Publisher) -> None:
    run = publisher.publish(1)[0]
    publisher.far.shutdown(socket.SHUT_WR)
    publisher.client.read()
    assert not publisher.client.closed
    publisher.settle(run)
    assert publisher.client.closed
    assert publisher.received == OK_FRAME
    publisher.flush()


def test_a_publisher_that_has_ended_is_not_closed_while_it_has_not_read(
    publisher: Publisher,
) -> None:
    first, second = publisher.publish(2)
    publisher.far.shutdown(socket.SHUT_WR)
    publisher.client.read()
    more = bytes(MAX_UNREAD_BYTES * 3)
    publisher.settle(first)
    publisher.client.write(more)
    publisher.settle(second)
    told = b""
    while data := publisher.received:
        told += data
        publisher.client.flush()
    assert told == OK_FRAME + more + OK_FRAME
    assert publisher.client.closed


def test_an_answer_that_was_given_is_sent_though_the_next_outcome_is_unknown(
    publisher: Publisher,
) -> None:
    first, second = publisher.publish(2)
    publisher.settle(first)
    publisher.client.lose(second)
    assert publisher.client.closed
    assert publisher.received == OK_FRAME
    publisher.flush()


def test_a_publisher_that_reads_nothing_keeps_the_rest_in_order(publisher: Publisher) -> None:
    run = publisher.publish(1)[0]
    filling = 0
    while not publisher.client.unread_bytes:
        publisher.client.write(HEARTBEAT_FRAME)
        filling += 1
    rest = publisher.client.unread_bytes
    publisher.settle(run)
    assert publisher.client.unread_bytes == rest + len(OK_FRAME)
    publisher.flush()
    told = b""
    while data := publisher.received:
        told += data
        publisher.client.flush()
    assert told == HEARTBEAT_FRAME * filling + OK_FRAME


def test_what_the_outbox_could_not_send_is_kept_and_counted(publisher: Publisher) -> None:
    run = publisher.publish(1)[0]
    publisher.settle(run)
    more = bytes(MAX_UNREAD_BYTES * 3)
    publisher.client.write(more)
    publisher.flush()
    assert 0 < publisher.client.unread_bytes < len(more)
    assert publisher.client.paused
    told = b""
    while data := publisher.received:
        publisher.client.flush()
        told += data
    assert told == OK_FRAME + more
    assert not publisher.client.paused


def test_a_publisher_that_is_gone_is_closed_by_the_flush(publisher: Publisher) -> None:
    publisher.settle(publisher.publish(1)[0])
    publisher.far.close()
    publisher.flush()
    assert publisher.client.closed


def test_a_descriptor_that_is_used_again_gets_nothing_of_the_one_before() -> None:
    first = Publisher()
    first.settle(first.publish(1)[0])
    outbox = first.outbox
    first.client.close()
    ours, far = socket.socketpair()
    assert first.fd in (ours.fileno(), far.fileno())
    outbox.flush(0, 0)
    for end in (ours, far):
        end.setblocking(False)
        with pytest.raises(BlockingIOError):
            end.recv(10)
    for end in (ours, far, first.far):
        end.close()
    first.reactor.close()


def test_a_client_that_never_stops_sending_has_its_turn_and_no_more(publisher: Publisher) -> None:
    read = publisher.never_stops()
    publisher.client.read()
    assert 0 < sum(map(len, read)) <= 256 * 1024
    wakes = len(read)
    publisher.far.send(NOP)
    publisher.reactor.serve(0.1)
    assert len(read) > wakes, "and another one"
