"""Broker latency by measurement: messages of our own that follow batches of topics with an SLO.

A probe message goes to nsqd on the connection of the batch that it follows, right behind it, so
nsqd reads it when it has stored the batch, and sends it to a consumer of ours that is always ready.
When that has it, each message of the batch is as old as the probe says, or a little younger.

It has a topic of its own. On a topic of somebody else no channel of ours would be safe, in whatever
order one looks and leaves: nsqd keeps a topic's messages for its next channel only while it has
none, and who deletes the last channel but ours, at nsqd's own port, would leave them to us.
"""

import itertools
import math
import random
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from srtm.gateway.batch import Batch
from srtm.gateway.nsqd import Facts
from srtm.gateway.run import Piece
from srtm.gateway.topic import Carrier, Topic
from srtm.nsq.commands import pub
from srtm.nsq.errors import ProtocolError
from srtm.nsq.names import PROBE_TOPIC

_TOPIC_PER_SECOND = 500
"""Probe messages. At 1 % late that is five late batches a second: p99 of a minute rests on 300."""
_ALL_PER_SECOND = 2_000
"""of all topics together: about 4 % of a core"""
_MOST_UNDER_WAY = 1_000
_MOST_BYTES = 16 * 1024 * 1024
"""of the batches that they follow, which are kept in memory"""
_LOST_NS = 60_000_000_000
_KEY_BYTES = 16


class Consumer(Protocol):
    """The consumer of the probe's topic. See `Subscription`."""

    closed: bool
    is_ready: bool

    def close(self) -> None: ...


Subscribe = Callable[[int, Callable[[bytes, int], None]], Consumer]
"""Messages that may be under way at once, and who is told each body with the time when it came.
Raises OSError."""


@dataclass(slots=True)
class _Sampling:
    """How one topic is sampled: how many of its batches went since the last tick, and which share
    of them is followed: one in `stride`, by chance, as a fixed order could fall in with the
    publishers'."""

    batches: int = 0
    stride: int = 1


class Probe:
    """The probe of one gateway. All times are monotonic nanoseconds."""

    def __init__(self, subscribe: Subscribe, facts: Facts) -> None:
        self._subscribe = subscribe
        self._process = secrets.token_bytes(_KEY_BYTES // 2)
        self._numbers = itertools.count()
        self._samplings: dict[Topic, _Sampling] = {}
        self._under_way: dict[bytes, _Follower] = {}
        self._bytes = 0
        self._consumer: Consumer | None = None
        self.heed(facts)

    def heed(self, facts: Facts) -> None:
        """nsqd's limits. A message of an ephemeral topic that finds its memory queue full is
        thrown away, so never so many are under way; with no memory queue nothing is measured."""
        self._max_msg_size = facts.limits.max_msg_size
        self._most = min(_MOST_UNDER_WAY, facts.mem_queue_size, facts.server.max_rdy_count)
        if self._max_msg_size < _KEY_BYTES:
            self._most = 0

    # --- out ------------------------------------------------------------------------------------

    def follow(self, topic: Topic, batch: Batch, carrier: Carrier) -> None:
        """`batch` has gone to nsqd by `carrier`: send a probe behind it, if it is its turn."""
        if batch.pieces[0].run.defer_ms is not None:
            return
        sampling = self._samplings.get(topic)
        if sampling is None:
            sampling = self._samplings[topic] = _Sampling()
        sampling.batches += 1
        if sampling.stride > 1 and random.random() * sampling.stride >= 1:
            return
        if not self._has_room(batch):
            topic.meter.unmatched += batch.count * sampling.stride
            return
        key = self._process + next(self._numbers).to_bytes(_KEY_BYTES // 2, "big")
        follower = _Follower(self, key, topic, batch, sampling.stride)
        self._under_way[key] = follower
        self._bytes += batch.size
        size = min(batch.size // batch.count, self._max_msg_size)
        message = Batch(follower, [], pub(PROBE_TOPIC, key.ljust(size, b"\0")), 1)
        message.written_at = batch.written_at
        carrier.publish(message)

    def _has_room(self, batch: Batch) -> bool:
        """A PUB to a topic that is not there yet would wait for nsqlookupd, and all behind it."""
        return (
            self._consumer is not None
            and self._consumer.is_ready
            and len(self._under_way) < self._most
            and self._bytes + batch.size <= _MOST_BYTES
        )

    # --- back -----------------------------------------------------------------------------------

    def delivered(self, body: bytes, now: int) -> None:
        """A probe message has come to our consumer. One that is not known comes from another
        process."""
        follower = self._under_way.get(body[:_KEY_BYTES])
        if follower is not None:
            follower.delivered(now)

    def forget(self, follower: "_Follower") -> bool:
        """True where it was still awaited."""
        if self._under_way.pop(follower.key, None) is None:
            return False
        self._bytes -= follower.size
        return True

    # --- every second ---------------------------------------------------------------------------

    def tick(self, now: int, is_wanted: bool) -> None:
        """is_wanted: some topic has an SLO, and nsqd is there"""
        for follower in list(self._under_way.values()):
            if follower.sent_at > now - _LOST_NS:
                break
            follower.give_up()
        busy = {topic: each for topic, each in self._samplings.items() if each.batches}
        most = max(1, min(_TOPIC_PER_SECOND, _ALL_PER_SECOND // max(1, len(busy))))
        for sampling in busy.values():
            sampling.stride = math.ceil(sampling.batches / most)
            sampling.batches = 0
        self._samplings = busy
        if not is_wanted or not self._most:
            self.close()
        elif self._consumer is None or self._consumer.closed:
            self.close()
            with suppress(OSError):  # tried again in a second
                self._consumer = self._subscribe(self._most, self.delivered)

    def close(self) -> None:
        """Leave: nsqd drops the channel, and the topic with it."""
        for follower in list(self._under_way.values()):
            follower.give_up()
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None


class _Follower:
    """A probe message and the batch that it follows. To the connection that carries it, it is the
    topic of its own message. It counts when both its answer and its delivery have come; the batch
    is answered by then, as nsqd answers in order."""

    deferred_until = 0
    name = PROBE_TOPIC

    def __init__(self, probe: Probe, key: bytes, topic: Topic, batch: Batch, stands_for: int):
        """stands_for: how many batches, this one among them"""
        self.key = key
        self.sent_at = batch.written_at
        self.size = batch.size
        self._probe = probe
        self._topic = topic
        self._batch = batch
        self._stands_for = stands_for
        self._is_answered = False
        self._delivered_at = 0

    def delivered(self, now: int) -> None:
        self._delivered_at = self._delivered_at or now
        if self._is_answered:
            self._count()

    def acknowledged(self, batch: Batch, now: int) -> None:
        self._is_answered = True
        if not self._batch.answered_at:
            self.give_up()  # nsqd refused what it follows
        elif self._delivered_at:
            self._count()

    def failed(self, batch: Batch, error: ProtocolError) -> None:
        self.give_up()

    def lost(self, batch: Batch) -> None:
        self.give_up()

    def not_run(self, batch: Batch) -> None:
        self.give_up()

    def dropped(self, piece: Piece) -> None:
        pass

    def pump(self, now: int) -> None:
        pass

    def give_up(self) -> None:
        if self._probe.forget(self):
            self._topic.meter.unmatched += self._batch.count * self._stands_for

    def _count(self) -> None:
        if not self._probe.forget(self):
            return
        meter, target = self._topic.meter, self._topic.slo_target_ns
        at, weight, pieces = self._delivered_at, self._stands_for, self._batch.pieces
        meter.broker_latency.add_many(
            [at - piece.run.stamp for piece in pieces], [piece.count * weight for piece in pieces]
        )
        meter.late_at_broker += weight * sum(_late(piece, at - target) for piece in pieces)


def _late(piece: Piece, latest: int) -> int:
    """How many of its messages had their tokens before `latest`."""
    if not piece.step_ns:
        return piece.count if piece.since < latest else 0
    return min(piece.count, max(0, math.ceil((latest - piece.since) / piece.step_ns)))
