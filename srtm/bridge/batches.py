"""Records of Kafka as batches to nsqd, and which batch finishes which offset."""

from typing import Any

from confluent_kafka import Message

from srtm.bridge.dead_records import DeadRecord, DeadRecords
from srtm.bridge.figures import Figures
from srtm.bridge.file import Route
from srtm.bridge.kafka_source import KafkaSource, Partition, Track
from srtm.bridge.names import nsq_fault
from srtm.bridge.nsq_sink import MAX_BATCH_BYTES, Batch, Publisher


class _Skipped:
    """Nothing is to be done for it."""

    done = True


_SKIPPED = _Skipped()


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
    """From the records that `source` takes to the publishers' queues."""

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

    def publish(self, records: list[Message]) -> None:
        """A batch for each publisher and topic; what cannot be published goes elsewhere."""
        batches: dict[tuple[int, str], Batch] = {}
        ends: dict[Partition, tuple[Any, int]] = {}
        tracks, publishers = self._source.tracks, len(self._publishers)
        to, template = self._route.target, self._route.target.is_template
        largest, most_bytes = self._limits.max_msg_size, self._limits.max_batch_bytes
        one_topic = "" if self._route.source.is_pattern else self._route.source.topic
        size_of_all = 0
        # Of the partition of the last record: what its last records belong to, and what follows.
        at: Partition = ("", -1)
        track: Track | None = None
        last: Any = None
        following = 0
        batch: Batch | None = None
        for record in records:
            partition: Any = record.partition()
            topic: Any = one_topic or record.topic()
            if partition != at[1] or topic != at[0]:
                if track is not None:
                    ends[at] = (last, following)
                    track.following = following
                at = (topic, partition)
                track = tracks.get(at)
                last, _ = ends.pop(at, (None, 0))
                following = track.following if track is not None else 0
                name = to.of(topic) if template else to.topic
                number = (partition + len(topic)) % publishers
                batch = batches.get((number, name))
            if track is None:
                continue  # of a partition that has just been given up
            offset: Any = record.offset()
            if offset != following:
                self._source.gap(topic, partition, following, offset)
            body: Any = record.value()
            size = len(body) if body else 0
            if 0 < size <= largest and not template and record.headers() is None:
                entry: Any = batch
            else:
                entry = self._fault(record, name, body) or batch
            if entry is batch:
                size_of_all += size
                if batch is None or batch.bytes + size + 4 > most_bytes:
                    if batch is not None:
                        # Its partitions end with it here, and begin again with the next.
                        for each in [key for key, value in ends.items() if value[0] is batch]:
                            self._end(ends, each)
                        self._publishers[number].put(batch)
                    entry = batch = batches[number, name] = Batch(name)
                batch.bodies.append(body)
                batch.records.append(record)
                batch.bytes += size + 4
            if entry is not last:
                if last is not None:
                    track.entries.append((last, following))
                last = entry
            following = offset + 1
        if track is not None:
            ends[at] = (last, following)
            track.following = following
        for where in list(ends):
            self._end(ends, where)
        for (number, _), made in batches.items():
            self._publishers[number].put(made)
        self._figures.counts["message_count"] += len(records)
        self._figures.counts["message_bytes"] += size_of_all

    def _end(self, ends: dict[Partition, tuple[Any, int]], where: Any) -> None:
        entry = ends.pop(where, None)
        if entry is not None and entry[0] is not None:
            self._source.tracks[where].entries.append(entry)

    def _fault(self, record: Message, name: str, body: Any) -> DeadRecord | _Skipped | None:
        """What becomes of a record that is not published; None for one that is."""
        headers: Any = record.headers()
        if headers and ("nsq-topic", name.encode()) in headers:
            self._figures.counts["looped_count"] += 1
            return _SKIPPED
        if not body:
            if self._route.tombstones == "skip":
                self._figures.counts["tombstone_count"] += 1
                return _SKIPPED
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
                    or (parts[-1].bytes + len(body) + 4 > self._limits.max_batch_bytes)
                ):
                    parts.append(Batch(batch.topic))
                parts[-1].bodies.append(body)
                parts[-1].records.append(record)
                parts[-1].bytes += len(body) + 4
            batch.parts = parts
            for part in parts:
                if isinstance(part, Batch):
                    publisher.put(part)
