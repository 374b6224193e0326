"""From a delivery back to its arrival, without a byte of ours in the message.

nsqd stamps each message when it receives it, on this host's clock. That time falls between the
writing and the answer of the MPUB that carried the message, and there its body is looked up.
"""

import struct

from srtm.clock import WallClock
from srtm.gateway.batch import Batch
from srtm.gateway.run import Part, Run
from srtm.gateway.topic import Topic
from srtm.nsq.frames import MESSAGE, Message, parse_message

_SIZE = struct.Struct(">I")
_SLACK_NS = 1_000_000
"""Between nsqd's reading of the clock and ours, converted with an offset read once a second."""
_MAX_PENDING = 20_000
_READS_SAMPLED_PER_TICK = 50


class Deliveries:
    """Samples of deliveries, matched a little later: nsqd may deliver a message before its OK."""

    def __init__(self, wall: WallClock) -> None:
        self._wall = wall
        self._probed: list[tuple[Topic, Message, int]] = []
        self._consumed: list[tuple[Topic, Message, int]] = []
        self._reads = 0
        self._stride = 1

    def probed(self, topic: "Topic", message: Message, now: int) -> None:
        if len(self._probed) < _MAX_PENDING:
            self._probed.append((topic, message, now))
        else:
            topic.meter.unmatched += 1

    def consumed(self, topic: "Topic", raw: bytes, ends: list[int], now: int) -> None:
        """Frames relayed to a consumer in one read: the last message of every n-th read."""
        self._reads += 1
        if self._reads % self._stride:
            return
        start = ends[-2] if len(ends) > 1 else 0
        if raw[start + 7] == MESSAGE:
            message = parse_message(raw[start + 8 : ends[-1]])
            if message.attempts == 1:
                self._consumed.append((topic, message, now))

    def match(self) -> None:
        """Put what has come since the last call into the topics' sketches."""
        probed, self._probed = self._probed, []
        for topic, message, at in probed:
            stamp = self._arrival(topic, message)
            if stamp is not None:
                topic.meter.broker_latency.add(at - stamp, 1)
            elif at > topic.deferred_until:
                topic.meter.unmatched += 1
        consumed, self._consumed = self._consumed, []
        for topic, message, at in consumed:
            stamp = self._arrival(topic, message)
            if stamp is None:
                if at <= topic.deferred_until:
                    continue
                # Older than what we remember: the consumers' own backlog outweighs the gateway's
                # part by far, so nsqd's time of receipt stands for the arrival.
                stamp = self._wall.monotonic_of(message.timestamp_ns)
            topic.meter.consumer_latency.add(max(at - stamp, 0), 1)
        self._stride = max(1, self._reads // _READS_SAMPLED_PER_TICK)
        self._reads = 0

    def _arrival(self, topic: "Topic", message: Message) -> int | None:
        received = self._wall.monotonic_of(message.timestamp_ns)
        element = _SIZE.pack(len(message.body)) + message.body
        for batch in topic.ring.around(received, _SLACK_NS):
            stamp = _stamp_in(batch, element)
            if stamp is not None:
                return stamp
        return None


def _stamp_in(batch: "Batch", element: bytes) -> int | None:
    for part in batch.parts:
        run = part.run if type(part) is Part else part
        assert type(run) is Run
        if run.defer_ms is None and (
            element in run.messages or (run.atomic and element in run.messages[0])
        ):
            return run.stamp
    return None
