"""Records of Kafka as batches to nsqd, and which batch finishes which offset.

Records of one partition that come together are handled together: there is a loop in Python for
those only that cannot be published.
"""

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

from confluent_kafka import Message

from srtm.bridge.dead_records import DeadRecord, DeadRecords
from srtm.bridge.figures import Figures
from srtm.bridge.file import Route
from srtm.bridge.kafka_source import NOTHING, KafkaSource, Nothing, Track
from srtm.bridge.names import nsq_fault
from srtm.bridge.nsq_sink import MAX_BATCH_BYTES, Batch, Publisher
from srtm.kafka.headers import headers_of


class Limits:
    """What nsqd takes, as far as it is known: bytes of a message, of an MPUB's messages."""

    def __init__(self, max_msg_size: int) -> None:
        self.max_msg_size = max_msg_size
        self.max_batch_bytes = MAX_BATCH_BYTES

    def learn(self, publisher: Publisher) -> bool:
        """True where `publisher` has been told less than was thought."""
        learnt = False
        if publisher.max_body_size:
            limit = max(publisher.max_body_size - 4, 1)
            self.max_batch_bytes = min(self.max_batch_bytes, limit)
            # A message of an MPUB cannot be longer than its body.
            self.max_msg_size = min(self.max_msg_size, max(limit - 4, 1))
            publisher.max_body_size = 0
            learnt = True
        if publisher.max_msg_size:
            self.max_msg_size = min(self.max_msg_size, publisher.max_msg_size)
            publisher.max_msg_size = 0
            learnt = True
        return learnt

    def excess(self, size: int) -> str:
        """Why nsqd does not take a message of that size; "" when it does."""
        if size <= self.max_msg_size:
            return ""
        return f"{size:,} bytes are more than nsqd takes: {self.max_msg_size:,}"


class Batches:
    """Puts the records that `source` takes into batches, and these into the publishers' queues."""

    def __init__(
        self,
        route: Route,
        source: KafkaSource,
        publishers: list[Publisher],
        dead: DeadRecords,
        figures: Figures,
        limits: Limits,
    ) -> None:
        self._route = route
        self._source = source
        self._publishers = publishers
        self._dead = dead
        self._figures = figures
        self._limits = limits
        self._one_topic = "" if route.source.is_pattern else route.source.topic
        self._open: dict[tuple[int, str], Batch] = {}  # by publisher and topic

    def publish(self, records: list[Message]) -> None:
        """A batch for each publisher and topic; what cannot be published goes elsewhere."""
        self._open.clear()
        one = [(self._one_topic, records)]
        for topic, of_topic in one if self._one_topic else _runs(records, Message.topic):
            for partition, run in _runs(of_topic, Message.partition):
                self._take(topic, partition, run)
        for (number, _), batch in self._open.items():
            self._publishers[number].put(batch)
        self._figures.counts["message_count"] += len(records)

    def _take(self, topic: str, partition: int, run: list[Message]) -> None:
        """Records of one partition, in order."""
        track = self._source.tracks.get((topic, partition))
        if track is None:
            return  # it has just been given up
        track.following = (run[-1].offset() or 0) + 1
        target = self._route.target
        lane = (partition + len(topic)) % len(self._publishers)
        name = target.of(topic)
        bodies: list[Any] = list(map(Message.value, run))
        if self._are_plain(run, bodies, name):
            self._add(lane, name, track, run, bodies)
            return
        for record, body in zip(run, bodies, strict=True):
            other = self._fault(record, name, body)
            if other is None:
                self._add(lane, name, track, [record], [body])
            else:
                track.add(other, (record.offset() or 0) + 1)

    def _are_plain(self, run: list[Message], bodies: list[Any], name: str) -> bool:
        """Can all of them be published? Asked of the run as a whole, as nearly all can."""
        if not all(bodies) or len(max(bodies, key=len)) > self._limits.max_msg_size:
            return False
        echo = _echo(name)
        if any(echo in each for each in headers_of(run) if each):
            return False
        return not (self._route.target.is_template and nsq_fault(name))

    def _add(
        self, lane: int, name: str, track: Track, run: list[Message], bodies: list[bytes]
    ) -> None:
        """Add `run` to the batch that is open, or to another where that becomes too much for one
        MPUB."""
        size = sum(map(len, bodies))
        batch = self._open.get((lane, name))
        taken = batch.nbytes if batch else 0
        most = self._limits.max_batch_bytes
        if taken + size + 4 * len(run) > most and (len(run) > 1 or batch is not None):
            if len(run) > 1:
                half = len(run) // 2
                self._add(lane, name, track, run[:half], bodies[:half])
                self._add(lane, name, track, run[half:], bodies[half:])
                return
            self._publishers[lane].put(self._open.pop((lane, name)))
            batch = None
        if batch is None:
            batch = self._open[lane, name] = Batch(name)
        batch.records += run
        batch.bodies += bodies
        batch.nbytes += size + 4 * len(run)
        self._figures.counts["message_bytes"] += size
        track.add(batch, (run[-1].offset() or 0) + 1, len(run))

    def _fault(self, record: Message, name: str, body: Any) -> DeadRecord | Nothing | None:
        """What becomes of a record that is not published; None for one that is."""
        if _echo(name) in (headers_of([record])[0] or ()):
            self._figures.counts["looped_count"] += 1
            return NOTHING
        if not body:
            if self._route.tombstones == "skip":
                self._figures.counts["tombstone_count"] += 1
                return NOTHING
            return self._dead.bury(record, "it has no body, and NSQ takes none that is empty")
        if fault := self._limits.excess(len(body)):
            return self._dead.bury(record, fault)
        if fault := nsq_fault(name) if self._route.target.is_template else "":
            return self._dead.bury(record, f"topic {name!r}: {fault}")
        return None

    def divide(self, publisher: Publisher) -> None:
        """nsqd takes less than was thought: what waits is divided anew, in order. Of each batch
        one message each, and dead letters: it is done when all of them are."""
        for batch in publisher.take_all():
            parts: list[Any] = []
            for record, body in zip(batch.records, batch.bodies, strict=True):
                if fault := self._limits.excess(len(body)):
                    parts.append(self._dead.bury(record, fault))
                    continue
                if (
                    not parts
                    or not isinstance(parts[-1], Batch)
                    or (parts[-1].nbytes + len(body) + 4 > self._limits.max_batch_bytes)
                ):
                    parts.append(Batch(batch.topic))
                parts[-1].bodies.append(body)
                parts[-1].records.append(record)
                parts[-1].nbytes += len(body) + 4
            batch.parts = parts
            for part in parts:
                if isinstance(part, Batch):
                    publisher.put(part)


def _runs(
    records: list[Message], key: Callable[[Message], Any]
) -> Iterator[tuple[Any, list[Message]]]:
    """Neighbours with the same key."""
    keys = list(map(key, records))
    if keys.count(keys[0]) == len(keys):
        yield keys[0], records
        return
    start = 0
    for value, group in groupby(keys):
        end = start + len(list(group))
        yield value, records[start:end]
        start = end


def _echo(name: str) -> tuple[str, bytes]:
    """The header of a record that came from the topic that it would go to."""
    return ("nsq-topic", name.encode())
