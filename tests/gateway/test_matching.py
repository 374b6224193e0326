"""From a delivery back to its arrival, and how many deliveries the probe asks for."""

import socket
import struct
from pathlib import Path

import pytest

from srtm.clock import WallClock
from srtm.contract import MAX_RATE, MIN_RATE, Limit
from srtm.gateway.backlog import Bounds
from srtm.gateway.batch import Batch
from srtm.gateway.measure.matching import Deliveries
from srtm.gateway.measure.meter import Meter
from srtm.gateway.measure.probe import Probe, sample_rate
from srtm.gateway.reactor import Reactor
from srtm.gateway.run import Part, Piece, Run
from srtm.gateway.topic import Topic
from srtm.gateway.upstream import NsqdAddress
from srtm.nsq.commands import message
from srtm.nsq.frames import MESSAGE, Message, build_frame
from tests.gateway.test_topic_bucket_time import World

MS = 1_000_000


@pytest.mark.parametrize(
    ("rate", "sample", "percent"),
    [
        pytest.param(MIN_RATE, 0, 100, id="all-of-almost-nothing"),
        pytest.param(500, 0, 100, id="all-of-what-is-wanted"),
        pytest.param(506, 98, 99, id="nearly-all"),
        pytest.param(1_000, 49, 50, id="half"),
        pytest.param(10_000, 4, 5, id="one-in-twenty"),
        pytest.param(50_000, 1, 2, id="one-would-mean-all-so-two-percent"),
        pytest.param(MAX_RATE, 1, 2, id="the-least-that-nsqd-can-give"),
    ],
)
def test_the_probe_samples_five_hundred_a_second(rate: float, sample: int, percent: int) -> None:
    """nsqd lets a message pass where rand(100) <= sample_rate, unless that is 0."""
    assert sample_rate(rate) == sample
    assert (sample + 1 if sample else 100) == percent
    assert rate * percent / 100 >= min(rate, 500), "never fewer than wanted"


def test_the_probe_takes_no_more_than_it_wants_of_what_comes(tmp_path: Path) -> None:
    """Two percent of 100,000 messages a second are four times as many."""
    path = str(tmp_path / "nsqd.sock")
    topic = Topic(b"t", World(1.0, 1.0), Bounds(9, 9, 9), Meter())
    topic.set_limit(Limit(rate=1e5, burst=1e5), 0)
    deliveries = Deliveries(WallClock())
    frame = build_frame(MESSAGE, struct.pack(">qH", 1, 1) + b"0123456789abcdef" + b"body")
    reactor = Reactor()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        probe = Probe(reactor, NsqdAddress(path), topic, deliveries, 1024)
        nsqd, _ = listener.accept()
        with nsqd:
            taken = []
            for _ in range(3):
                before = topic.meter.unmatched
                for _ in range(20):
                    nsqd.sendall(frame * 100)
                    reactor.serve(0.0)
                deliveries.match()
                taken.append(topic.meter.unmatched - before)
                probe.tick(1e5)
            probe.close()
    reactor.close()
    assert taken == [2000, 500, 500]


class Delivered:
    """A topic whose ring holds what the test published, and deliveries of it."""

    def __init__(self) -> None:
        self.wall = WallClock()
        self.deliveries = Deliveries(self.wall)
        self.topic = Topic(b"t", World(1.0, 1.0), Bounds(9, 9, 9), Meter())

    def publish(self, bodies: list[bytes], stamp: int, written: int, answered: int) -> Run:
        run = Run(b"t", [message(body) for body in bodies], len(bodies), False, None)
        run.stamp = run.since = stamp
        self._batch(run, written, answered)
        return run

    def _batch(self, piece: Piece, written: int, answered: int) -> None:
        batch = Batch(self.topic, [piece], b"", 1)
        batch.written_at, batch.answered_at = written, answered
        self.topic.ring.append(batch)

    def received(self, body: bytes, at: int) -> Message:
        return Message(at + self.wall.offset_ns, 1, b"0123456789abcdef", body)

    def probed(self, body: bytes, received: int, delivered: int) -> None:
        self.deliveries.probed(self.topic, self.received(body, received), delivered)

    def broker_latency(self) -> tuple[int, float | None]:
        """(deliveries matched, their longest latency in ms)"""
        self.deliveries.match()
        sketch = self.topic.meter.broker_latency.total(0)
        longest = sketch.get_quantile_value(1)
        return round(sketch.count), longest and longest * 1e3


@pytest.fixture
def delivered() -> Delivered:
    return Delivered()


@pytest.mark.parametrize(
    "received",
    [
        pytest.param(10 * MS, id="when-it-was-written"),
        pytest.param(12 * MS, id="between"),
        pytest.param(15 * MS, id="when-it-was-answered"),
        pytest.param(9 * MS + 1, id="a-little-before-by-nsqds-clock"),
        pytest.param(16 * MS - 1, id="a-little-after"),
    ],
)
def test_a_delivery_is_found_in_the_batch_that_nsqd_was_given_then(
    delivered: Delivered, received: int
) -> None:
    delivered.publish([b"other"], 0, 1 * MS, 2 * MS)
    delivered.publish([b"x", b"y"], 5 * MS, 10 * MS, 15 * MS)
    delivered.probed(b"y", received, 25 * MS)
    assert delivered.broker_latency() == (1, pytest.approx(20, rel=0.01))
    assert delivered.topic.meter.unmatched == 0


@pytest.mark.parametrize(
    ("body", "received"),
    [
        pytest.param(b"z", 12 * MS, id="another-body"),
        pytest.param(b"x", 8 * MS, id="before-it-was-written"),
        pytest.param(b"x", 17 * MS, id="after-it-was-answered"),
    ],
)
def test_what_finds_no_match_is_counted(delivered: Delivered, body: bytes, received: int) -> None:
    delivered.publish([b"x"], 5 * MS, 10 * MS, 15 * MS)
    delivered.probed(body, received, 25 * MS)
    assert delivered.broker_latency() == (0, None)
    assert delivered.topic.meter.unmatched == 1


def test_equal_bodies_are_told_apart_by_the_time(delivered: Delivered) -> None:
    for number in range(10):
        begin = number * 100 * MS
        delivered.publish([b"same"], begin, begin + 5 * MS, begin + 9 * MS)
    delivered.probed(b"same", 507 * MS, 520 * MS)
    assert delivered.broker_latency() == (1, pytest.approx(20, rel=0.01))


def test_a_message_of_an_mpub_and_one_of_a_part_are_found(delivered: Delivered) -> None:
    mpub = Run(b"t", [message(b"a") + message(b"b")], 2, True, None)
    mpub.stamp = mpub.since = 1 * MS
    delivered._batch(mpub, 2 * MS, 3 * MS)
    run = Run(b"t", [message(b"c"), message(b"d")], 2, False, None)
    run.stamp = 1 * MS
    delivered._batch(Part(run, 1, 2, 0, 0.0), 2 * MS, 3 * MS)
    delivered.probed(b"b", 2 * MS, 11 * MS)
    delivered.probed(b"d", 2 * MS, 11 * MS)
    assert delivered.broker_latency() == (2, pytest.approx(10, rel=0.01))


@pytest.mark.parametrize(
    ("target_ms", "late"),
    [
        pytest.param(8.9, 3, id="each-is-slow-without-its-wait"),
        pytest.param(9.1, 2, id="one-had-its-token-later"),
        pytest.param(11, 1, id="one-had-it-at-once"),
        pytest.param(21, 0, id="only-with-it"),
    ],
)
def test_who_is_late_even_without_the_wait_for_its_token(
    delivered: Delivered, target_ms: float, late: int
) -> None:
    """Delivered at 21 ms: one had its token at 1 ms, one at 10 ms, one at 10 + 2 ms."""
    delivered.topic.slo_target_ns = int(target_ms * MS)
    delivered.publish([b"a"], 1 * MS, 1 * MS, 2 * MS)
    run = Run(b"t", [message(b"b"), message(b"c"), message(b"d")], 3, False, None)
    run.stamp = 1 * MS
    delivered._batch(Part(run, 1, 3, 10 * MS, 2 * MS), 13 * MS, 14 * MS)
    delivered.probed(b"a", 2 * MS, 21 * MS)
    delivered.probed(b"c", 13 * MS, 21 * MS)
    delivered.probed(b"d", 13 * MS, 21 * MS)
    assert delivered.broker_latency() == (3, pytest.approx(20, rel=0.01))
    assert delivered.topic.meter.late_at_broker == late


def test_bytes_inside_a_message_of_an_mpub_are_no_message_of_it(delivered: Delivered) -> None:
    inner = message(b"x")
    mpub = Run(b"t", [message(b"before" + inner) + message(b"y")], 2, True, None)
    mpub.stamp = mpub.since = 1 * MS
    delivered._batch(mpub, 2 * MS, 3 * MS)
    delivered.probed(b"x", 2 * MS, 11 * MS)
    delivered.probed(b"y", 2 * MS, 11 * MS)
    assert delivered.broker_latency() == (1, pytest.approx(10, rel=0.01))
    assert delivered.topic.meter.unmatched == 1


def test_a_consumers_delivery_without_a_match_counts_from_nsqds_time(delivered: Delivered) -> None:
    found = delivered.received(b"old", 30 * MS)
    raw = build_frame(
        MESSAGE, found.timestamp_ns.to_bytes(8, "big") + b"\0\x01" + found.id + found.body
    )
    delivered.deliveries.consumed(delivered.topic, raw, [len(raw)], 80 * MS)
    delivered.deliveries.match()
    consumer = delivered.topic.meter.consumer_latency.total(0)
    assert consumer.count == 1
    assert consumer.get_quantile_value(1) == pytest.approx(0.05, rel=0.01)
    assert delivered.topic.meter.unmatched == 0
