"""From a consumer's delivery back to its arrival."""

import pytest

from srtm.gateway.backlog import Bounds
from srtm.gateway.batch import Batch
from srtm.gateway.measure.matching import Deliveries
from srtm.gateway.measure.meter import Meter
from srtm.gateway.run import Part, Piece, Run
from srtm.gateway.topic import Topic
from srtm.host.clock import WallClock
from srtm.nsq.commands import message
from srtm.nsq.frames import MESSAGE, build_frame
from tests.gateway.test_topic_bucket_time import World

MS = 1_000_000


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

    def deliver(self, body: bytes, received: int, at: int) -> None:
        """To a consumer, of what nsqd received then."""
        stamp = (received + self.wall.offset_ns).to_bytes(8, "big")
        raw = build_frame(MESSAGE, stamp + b"\0\x01" + b"0123456789abcdef" + body)
        self.deliveries.consumed(self.topic, raw, [len(raw)], at)

    def latencies(self) -> list[int]:
        """In ms, as told to the sketch."""
        self.deliveries.match()
        return [round(value / MS) for value in self.topic.meter.consumer_latency._values]


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
    delivered.deliver(b"y", received, 25 * MS)
    assert delivered.latencies() == [20]


@pytest.mark.parametrize(
    ("body", "received"),
    [
        pytest.param(b"z", 12 * MS, id="another-body"),
        pytest.param(b"x", 8 * MS, id="before-it-was-written"),
        pytest.param(b"x", 17 * MS, id="after-it-was-answered"),
    ],
)
def test_what_finds_no_match_counts_from_nsqds_time(
    delivered: Delivered, body: bytes, received: int
) -> None:
    delivered.publish([b"x"], 5 * MS, 10 * MS, 15 * MS)
    delivered.deliver(body, received, 25 * MS)
    assert delivered.latencies() == [25 - received // MS]


def test_equal_bodies_are_told_apart_by_the_time(delivered: Delivered) -> None:
    for number in range(10):
        begin = number * 100 * MS
        delivered.publish([b"same"], begin, begin + 5 * MS, begin + 9 * MS)
    delivered.deliver(b"same", 507 * MS, 520 * MS)
    assert delivered.latencies() == [20]


def test_a_message_of_an_mpub_and_one_of_a_part_are_found(delivered: Delivered) -> None:
    mpub = Run(b"t", [message(b"a") + message(b"b")], 2, True, None)
    mpub.stamp = mpub.since = 1 * MS
    delivered._batch(mpub, 4 * MS, 5 * MS)
    run = Run(b"t", [message(b"c"), message(b"d")], 2, False, None)
    run.stamp = 1 * MS
    delivered._batch(Part(run, 1, 2, 0, 0.0), 4 * MS, 5 * MS)
    delivered.deliver(b"b", 4 * MS, 11 * MS)
    delivered.deliver(b"d", 4 * MS, 11 * MS)
    assert delivered.latencies() == [10, 10]


def test_bytes_inside_a_message_of_an_mpub_are_no_message_of_it(delivered: Delivered) -> None:
    inner = message(b"x")
    mpub = Run(b"t", [message(b"before" + inner) + message(b"y")], 2, True, None)
    mpub.stamp = mpub.since = 1 * MS
    delivered._batch(mpub, 4 * MS, 5 * MS)
    delivered.deliver(b"x", 4 * MS, 11 * MS)
    delivered.deliver(b"y", 4 * MS, 11 * MS)
    assert delivered.latencies() == [7, 10]


def test_a_deferred_message_is_in_no_latency(delivered: Delivered) -> None:
    run = Run(b"t", [message(b"x")], 1, False, 100)
    run.stamp = run.since = 1 * MS
    delivered._batch(run, 4 * MS, 5 * MS)
    delivered.topic.deferred_until = 200 * MS
    delivered.deliver(b"x", 4 * MS, 105 * MS)
    assert delivered.latencies() == []
