"""The probe: which batches it follows, and what its messages tell of them."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srtm.gateway.batch import Batch
from srtm.gateway.measure.probe import Probe
from srtm.gateway.nsqd import Facts
from srtm.gateway.run import Part, Piece, Run
from srtm.limits.contract import Limit
from srtm.limits.slo import SLO
from srtm.nsq.commands import Limits, message
from srtm.nsq.errors import ProtocolError
from srtm.nsq.identify import Server
from srtm.nsq.names import PROBE_TOPIC
from tests.gateway.test_topic_bucket_time import NS, World

MS = 1_000_000

SLO_OF_10_MS = SLO.parse("0.99@10ms")


def facts(max_msg_size: int = 1 << 20, mem_queue_size: int = 10_000, max_rdy: int = 2500) -> Facts:
    server = Server("1.3.0", max_rdy, 0, 0, 0, 0, 0, 0, 0, 0)
    return Facts(Limits(max_msg_size, 5 << 20, 0), server, {}, {}, mem_queue_size)


class Consumer:
    closed = False
    is_ready = True

    def close(self) -> None:
        self.closed, self.is_ready = True, False


class Nsqd:
    """Batches and probe messages in the order in which they went."""

    def __init__(self, **limits: int) -> None:
        self.sent: list[Batch] = []
        self.consumers: list[Consumer] = []
        self.probe = Probe(self._subscribe, facts(**limits))
        self.topic = World(1e6, 1e6).topic
        self.topic.set_limit(Limit(rate=1e6, burst=1e6, slo=SLO_OF_10_MS), 0)
        self.probe.tick(0, True)

    def _subscribe(self, most: int, on_message: object) -> Consumer:
        self.most = most
        self.consumers.append(Consumer())
        return self.consumers[-1]

    def publish(self, batch: Batch) -> None:
        self.sent.append(batch)

    def batch(self, *pieces: Piece, at: int = 0) -> Batch:
        """It goes, as the topic sends it."""
        count = sum(piece.count for piece in pieces)
        payload = b"x" * sum(piece.run.size for piece in pieces)
        batch = Batch(self.topic, list(pieces), payload, count)
        batch.written_at = at
        self.publish(batch)
        self.probe.follow(self.topic, batch, self)
        return batch

    def answer(self, batch: Batch, at: int) -> None:
        batch.answered_at = at

    @property
    def latencies(self) -> dict[float, int]:
        """Messages by broker latency in ms, as told to the sketch."""
        sketch = self.topic.meter.broker_latency
        counts: Counter[float] = Counter()
        for value, weight in zip(sketch._values, sketch._weights, strict=True):
            counts[value / MS] += weight
        return dict(counts)


def run(count: int, stamp: int, size: int = 4, defer_ms: int | None = None) -> Run:
    made = Run(b"t", [message(b"x" * size)] * count, count, False, defer_ms)
    made.stamp = made.since = stamp
    return made


def body_of(sent: Batch) -> bytes:
    head, body = sent.payload.split(b"\n", 1)
    assert head == b"PUB " + PROBE_TOPIC
    assert int.from_bytes(body[:4], "big") == len(body) - 4
    return body[4:]


@pytest.mark.parametrize("delivered_first", [False, True])
def test_each_message_of_a_batch_is_as_old_as_its_probe_says(delivered_first: bool) -> None:
    nsqd = Nsqd()
    batch = nsqd.batch(run(3, 1 * MS), run(2, 4 * MS), at=5 * MS)
    carried, probe = nsqd.sent
    assert carried is batch
    body = body_of(probe)
    nsqd.answer(batch, 7 * MS)
    if delivered_first:
        nsqd.probe.delivered(body, 9 * MS)
        assert nsqd.latencies == {}
    probe.topic.acknowledged(probe, 8 * MS)
    nsqd.probe.delivered(body, 9 * MS)
    assert nsqd.latencies == {8: 3, 5: 2}
    assert nsqd.topic.meter.unmatched == 0
    nsqd.probe.delivered(body, 20 * MS)  # nsqd may deliver a message twice
    assert nsqd.latencies == {8: 3, 5: 2}


@pytest.mark.parametrize(
    ("target_ms", "late"),
    [
        pytest.param(8.9, 4, id="each-is-slow-without-its-wait"),
        pytest.param(9.1, 3, id="one-had-its-token-later"),
        pytest.param(11, 1, id="one-had-it-at-once"),
        pytest.param(21, 0, id="only-with-it"),
    ],
)
def test_who_is_late_even_without_the_wait_for_its_token(target_ms: float, late: int) -> None:
    """Delivered at 21 ms: one had its token at 1 ms, two at 10 ms, and one 2 ms after them."""
    nsqd = Nsqd()
    nsqd.topic.slo_target_ns = int(target_ms * MS)
    waited = run(4, 1 * MS)
    ramp = Part(waited, 0, 2, 10 * MS, 2 * MS)
    later = Part(waited, 2, 3, 10 * MS, 0.0)
    batch = nsqd.batch(run(1, 1 * MS), ramp, later, at=13 * MS)
    nsqd.answer(batch, 14 * MS)
    nsqd.sent[1].topic.acknowledged(nsqd.sent[1], 14 * MS)
    nsqd.probe.delivered(body_of(nsqd.sent[1]), 21 * MS)
    assert nsqd.latencies == {20: 4}
    assert nsqd.topic.meter.late_at_broker == late


@pytest.mark.parametrize("outcome", ["refused", "lost", "not-run", "silent", "left", "not-stored"])
def test_what_does_not_come_back_is_counted_and_in_no_latency(outcome: str) -> None:
    nsqd = Nsqd()
    batch = nsqd.batch(run(3, 0))
    probe = nsqd.sent[1]
    if outcome == "refused":
        probe.topic.failed(probe, ProtocolError("E_PUB_FAILED", "x"))
    elif outcome == "lost":
        probe.topic.lost(probe)
    elif outcome == "not-run":
        probe.topic.not_run(probe)
    elif outcome == "silent":
        nsqd.probe.tick(61 * NS, True)
    elif outcome == "left":
        nsqd.probe.tick(1 * NS, False)
        assert nsqd.consumers[0].closed
    else:
        probe.topic.acknowledged(probe, 5)  # and the batch was refused
    nsqd.answer(batch, 6)
    nsqd.probe.delivered(body_of(probe), 8)
    probe.topic.acknowledged(probe, 9)
    assert nsqd.latencies == {}
    assert nsqd.topic.meter.unmatched == 3


def test_messages_of_others_on_its_topic_are_passed_over() -> None:
    one, other = Nsqd(), Nsqd()
    one.batch(run(1, 0))
    other.batch(run(1, 0))
    for body in (b"", b"x", body_of(other.sent[1]), bytes(100)):
        one.probe.delivered(body, 5)
    assert one.topic.meter.unmatched == 0
    assert one.latencies == {}


def test_deferred_messages_are_not_followed() -> None:
    nsqd = Nsqd()
    nsqd.batch(run(1, 0, defer_ms=100))
    assert len(nsqd.sent) == 1
    assert nsqd.topic.meter.unmatched == 0


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        pytest.param({}, 1000, id="nsqds-own"),
        pytest.param({"mem_queue_size": 10}, 10, id="a-small-memory-queue"),
        pytest.param({"max_rdy": 7}, 7, id="a-small-RDY"),
        pytest.param({"mem_queue_size": 0}, 0, id="no-memory-queue"),
        pytest.param({"max_msg_size": 15}, 0, id="no-room-for-a-key"),
        pytest.param({"max_msg_size": 16}, 1000, id="room-for-a-key"),
    ],
)
def test_no_more_are_under_way_than_nsqd_keeps(limits: dict[str, int], most: int) -> None:
    """nsqd throws away what an ephemeral topic has no room for."""
    nsqd = Nsqd(**limits)
    for _ in range(most + 5):
        nsqd.batch(run(1, 0, size=1))
    probes = [sent for sent in nsqd.sent if sent.topic is not nsqd.topic]
    assert len(probes) == most
    assert nsqd.topic.meter.unmatched == 5
    assert len(nsqd.consumers) == (most > 0)
    assert not most or nsqd.most == most


def test_what_they_follow_holds_no_more_than_its_bytes() -> None:
    nsqd = Nsqd()
    for _ in range(20):
        nsqd.batch(run(1, 0, size=1 << 20))
    assert sum(sent.topic is not nsqd.topic for sent in nsqd.sent) == 15
    assert nsqd.topic.meter.unmatched == 5


@pytest.mark.parametrize(
    ("size", "max_msg_size", "probe"),
    [(1, 1 << 20, 16), (12, 1 << 20, 16), (1000, 1 << 20, 1004), (1000, 1000, 1000)],
)
def test_it_is_as_big_as_what_it_follows(size: int, max_msg_size: int, probe: int) -> None:
    nsqd = Nsqd(max_msg_size=max_msg_size)
    nsqd.batch(run(5, 0, size=size))
    assert len(body_of(nsqd.sent[1])) == probe


def test_before_nsqd_has_the_topic_nothing_is_sent_to_it() -> None:
    """nsqd would ask nsqlookupd about it, and what comes behind would wait."""
    nsqd = Nsqd()
    nsqd.consumers[0].is_ready = False
    nsqd.batch(run(1, 0))
    assert len(nsqd.sent) == 1
    nsqd.consumers[0].close()
    nsqd.probe.tick(1 * NS, True)
    nsqd.batch(run(1, 0))
    assert len(nsqd.sent) == 3, "a lost consumer is replaced within a second"


@settings(max_examples=20)
@given(st.lists(st.integers(0, 2_000), min_size=1, max_size=4))
def test_what_is_followed_stands_for_all(seconds: list[int]) -> None:
    """Whatever comes in a second: about 500 batches of the next one are followed, and those that
    are stand for as many as there were in it."""
    nsqd = Nsqd(mem_queue_size=1 << 20)
    before = 0
    for number, count in enumerate([*seconds, seconds[-1]]):
        begin = len(nsqd.sent)
        stride = max(1, -(-before // 500))
        for _ in range(count):
            nsqd.batch(run(1, 0))
        probes = [sent for sent in nsqd.sent[begin:] if sent.topic is not nsqd.topic]
        assert all(probe.topic._stands_for == stride for probe in probes)  # type: ignore[attr-defined]
        if stride == 1:
            assert len(probes) == min(count, 1000)
        for probe in probes:
            probe.topic.not_run(probe)
        nsqd.probe.tick(number * NS, True)
        before = count
