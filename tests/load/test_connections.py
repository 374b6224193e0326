"""Payload, publisher and consumer against a far side that the test plays over a socket pair."""

import socket
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from select import epoll

import numpy as np
import pytest

from srtm.load.consumer import Consumer
from srtm.load.link import Link
from srtm.load.payload import Payload
from srtm.load.publisher import Publisher
from srtm.load.record import NOT_YET, REFUSED, Received, Record
from srtm.load.schedule import Schedule
from srtm.nsq.commands import MAGIC_V2, CommandReader, Limits, Publish
from srtm.nsq.frames import ERROR, HEARTBEAT_FRAME, MESSAGE, OK_FRAME, build_frame

TOPIC = "t"


@dataclass
class Wire:
    """near: ours; far: the broker's, played by the test."""

    near: socket.socket
    far: socket.socket
    poller: epoll

    def serve(self, link: Link) -> None:
        while not link.closed and self.poller.poll(0):
            link.on_ready()


@pytest.fixture
def wire() -> Iterator[Wire]:
    near, far = socket.socketpair()
    far.settimeout(5)
    with near, far, epoll() as poller:
        yield Wire(near, far, poller)


def published(data: bytes) -> list[Publish]:
    reader = CommandReader(Limits())
    commands = reader.feed(MAGIC_V2 + data)
    assert reader.buffered == 0
    assert all(isinstance(command, Publish) for command in commands)
    return [command for command in commands if isinstance(command, Publish)]


def sequences(payload: Payload, publishes: list[Publish]) -> list[int | None]:
    layout = payload.frame_layout()
    return [layout.sequence(body) for publish in publishes for body in publish.bodies()]


# --- payload ----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [24, 25, 100])
@pytest.mark.parametrize(
    ("batch", "mpub", "answers"),
    [
        pytest.param(1, False, 3, id="a-pub"),
        pytest.param(4, False, 12, id="a-batch-of-pubs"),
        pytest.param(1, True, 3, id="an-mpub-of-one"),
        pytest.param(4, True, 3, id="an-mpub"),
    ],
)
def test_events_are_commands(size: int, batch: int, mpub: bool, answers: int) -> None:
    payload = Payload(TOPIC, size, 7, batch, mpub)
    single = payload.event(5, 99) + payload.event(6, 99) + payload.event(7, 99)
    assert payload.events(5, 3, 99) == single
    publishes = published(single)
    assert sequences(payload, publishes) == list(range(5 * batch, 8 * batch))
    assert sum(1 if publish.atomic else publish.count for publish in publishes) == answers
    bodies = [body for publish in publishes for body in publish.bodies()]
    assert {len(body) for body in bodies} == {size}
    assert {int.from_bytes(body[16:24], "big") for body in bodies} == {99}


def test_another_runs_message_is_told_apart() -> None:
    layout = Payload(TOPIC, 100, 7).frame_layout()
    (theirs,) = published(Payload(TOPIC, 100, 8).event(1, 2))
    assert layout.sequence(theirs.bodies()[0]) is None
    assert layout.sequence(b"short") is None


# --- publisher --------------------------------------------------------------------------------


def planned(wire: Wire, events: int, batch: int = 1) -> tuple[Publisher, Record]:
    record = Record(batch, batch)
    schedule = Schedule(np.arange(events, dtype=np.int64), np.zeros(events, np.int64))
    record.plan(schedule, start_ns=1000)
    payload = Payload(TOPIC, 100, 7, batch)
    return Publisher(wire.near, 0, payload, record, wire.poller, Counter()), record


def test_answers_belong_to_commands_in_their_order(wire: Wire) -> None:
    publisher, record = planned(wire, 3, batch=2)
    publisher.send_event(0)
    publisher.send_events([1, 2])
    assert all(record.sent_ns)
    sent = published(wire.far.recv(65536))
    assert sequences(Payload(TOPIC, 100, 7), sent) == list(range(6))
    wire.far.sendall(OK_FRAME * 2)
    wire.serve(publisher)
    wire.far.sendall(build_frame(ERROR, b"E_PUB_FAILED no"))
    wire.serve(publisher)
    assert [max(min(at, 1), -1) for at in record.answered_ns] == [1, 1, REFUSED, 0, 0, 0]
    assert list(publisher.waiting) == [3, 4, 5]
    assert publisher.errors == {"E_PUB_FAILED": 1}


@pytest.mark.parametrize("size", [1, 3, 7, 10, 13, 1000])
def test_answers_at_any_cut(wire: Wire, size: int) -> None:
    publisher, record = planned(wire, 150)
    publisher.send_events(list(range(150)))
    stream = OK_FRAME * 70 + HEARTBEAT_FRAME + OK_FRAME * 80
    for start in range(0, len(stream), size):
        wire.far.sendall(stream[start : start + size])
        wire.serve(publisher)
    assert NOT_YET not in record.answered_ns
    assert not publisher.waiting
    assert wire.far.recv(65536).endswith(b"NOP\n")
    assert not publisher.errors


def test_each_answer_is_refilled(wire: Wire) -> None:
    record = Record(1, 1)
    payload = Payload(TOPIC, 100, 7)
    publisher = Publisher(wire.near, 4, payload, record, wire.poller, Counter())
    publisher.refill = True
    publisher.send_now(3, 50)
    wire.far.sendall(OK_FRAME)
    wire.serve(publisher)
    wire.far.sendall(OK_FRAME * 3)
    wire.serve(publisher)
    publisher.refill = False
    wire.far.sendall(OK_FRAME * 2)
    wire.serve(publisher)
    assert sequences(payload, published(wire.far.recv(65536))) == list(range(7))
    assert list(publisher.waiting) == [6]
    assert list(record.publisher) == [4] * 7
    assert list(record.intended_ns[:3]) == [50] * 3
    assert record.sent_ns is record.intended_ns


def test_what_the_socket_does_not_take_is_sent_later(wire: Wire) -> None:
    publisher, _ = planned(wire, 20_000)
    publisher.send_events(list(range(10_000)))
    publisher.send_events(list(range(10_000, 20_000)))
    received = bytearray()
    while received.count(b"PUB ") < 20_000 or len(received) % 20_000:
        received += wire.far.recv(1 << 20)
        wire.serve(publisher)
    assert sum(publish.count for publish in published(bytes(received))) == 20_000


def test_an_answer_to_nothing_is_an_error(wire: Wire) -> None:
    publisher, record = planned(wire, 1)
    publisher.send_event(0)
    wire.far.sendall(OK_FRAME * 2)
    wire.serve(publisher)
    assert record.answered_ns[0] > 0
    assert publisher.errors == {"an answer to nothing that was sent": 1}


def test_a_broker_that_goes_closes_the_publisher(wire: Wire) -> None:
    publisher, record = planned(wire, 2)
    publisher.send_event(0)
    wire.far.recv(65536)
    wire.far.close()
    wire.serve(publisher)
    assert publisher.closed
    publisher.send_event(1)
    assert record.sent_ns[1] == NOT_YET
    assert list(publisher.waiting) == [0]


# --- consumer ---------------------------------------------------------------------------------


def delivered(payload: Payload, number: int) -> bytes:
    body = payload.event(number, 5)[-payload.message_bytes :]
    return build_frame(MESSAGE, bytes(8) + b"\0\1" + b"%016x" % number + body)


def fins(numbers: list[int]) -> bytes:
    return b"".join(b"FIN %016x\n" % number for number in numbers)


OURS = Payload(TOPIC, 100, 7)
THEIRS = Payload(TOPIC, 300, 8)


def consuming(wire: Wire) -> tuple[Consumer, Received]:
    received = Received()
    consumer = Consumer(wire.near, OURS.frame_layout(), received, wire.poller, Counter())
    return consumer, received


@pytest.mark.parametrize("cut", [1, 9, 133, 134, 135, 1000, 100_000])
@pytest.mark.parametrize("count", [3, 60])
def test_messages_are_noted_and_finished_at_any_cut(wire: Wire, count: int, cut: int) -> None:
    consumer, received = consuming(wire)
    numbers = list(range(10, 10 + count))
    stream = b"".join(delivered(OURS, number) for number in numbers)
    for start in range(0, len(stream), cut):
        wire.far.sendall(stream[start : start + cut])
        wire.serve(consumer)
    assert list(received.sequences) == numbers
    assert sum(received.read_counts) == count
    assert len(received.read_counts) == len(received.read_at_ns)
    assert wire.far.recv(65536) == fins(numbers)


@pytest.mark.parametrize("cut", [7, 50, 134, 200, 5000, 100_000])
def test_other_frames_among_messages(wire: Wire, cut: int) -> None:
    consumer, received = consuming(wire)
    ours = [delivered(OURS, number) for number in range(40)]
    parts = [*ours[:20], HEARTBEAT_FRAME, *ours[20:30], delivered(THEIRS, 99), *ours[30:]]
    parts += [build_frame(ERROR, b"E_FIN_FAILED FIN 1"), HEARTBEAT_FRAME]
    stream = b"".join(parts)
    for start in range(0, len(stream), cut):
        wire.far.sendall(stream[start : start + cut])
        wire.serve(consumer)
    assert list(received.sequences) == list(range(40))
    assert consumer.foreign == 1
    assert consumer.errors == {"E_FIN_FAILED": 1}
    answers = wire.far.recv(65536)
    assert answers.count(b"NOP\n") == 2
    assert answers.replace(b"NOP\n", b"") == fins([*range(30), 99, *range(30, 40)])


def test_what_is_no_frame_closes_the_consumer(wire: Wire) -> None:
    consumer, _ = consuming(wire)
    wire.far.sendall(b"HTTP/1.1 400 Bad Request\r\n")
    wire.serve(consumer)
    assert consumer.closed
    assert consumer.errors == {"not an NSQ frame": 1}
