"""A route from a Kafka topic to an NSQ topic.

One thread: records are taken, published and answered in turns, without a lock. Offsets follow
nsqd's OK, so what this process holds when it dies is read again.
"""

import logging
import selectors
import time
from collections import Counter
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message

from srtm.backoff import backoff_seconds
from srtm.bridge.figures import State
from srtm.bridge.file import KafkaTable, Route
from srtm.bridge.kafka_sink import KafkaSink, told
from srtm.bridge.kafka_source import KafkaSource, Partition, Track, wait_until
from srtm.bridge.names import nsq_fault
from srtm.bridge.nsq_sink import MAX_BATCH_BYTES, Batch, Publisher
from srtm.bridge.placed import Placed
from srtm.bridge.runner import Runner, Stopped

log = logging.getLogger("srtm.bridge")

_TICK_SECONDS = 0.2
_IDLE_SECONDS = 0.1
_ANSWER_SECONDS = 0.001
"""A wait for records while answers are out, which then are late by as much at most."""
_FULL_SECONDS = 0.05
_PAUSE_AFTER_SECONDS = 1.0
"""Pausing drops what was fetched, so a short wait for room does without."""
_REVOKE_SECONDS = 5.0
_MAX_BACKOFF_SECONDS = 5.0
_MAX_DEAD = 1000  # records on their way to the dead-letter topic


class _Dead:
    """A record on its way to the dead-letter topic. Called with Kafka's report."""

    __slots__ = ("done", "reason", "record", "reports")

    def __init__(self, record: Message, reason: str, reports: "list[tuple[_Dead, Any]]") -> None:
        self.done = False
        self.record = record
        self.reason = reason
        self.reports = reports

    def __call__(self, error: Any, _: Any) -> None:
        self.reports.append((self, error))


class _Skipped:
    """Nothing is to be done for it."""

    done = True


_SKIPPED = _Skipped()


class KafkaToNsq(Runner):
    def __init__(
        self,
        route: Route,
        kafka: KafkaTable,
        bridge: str,
        drain_seconds: float,
        placed: Placed | None = None,
    ) -> None:
        super().__init__(route, kafka, bridge, drain_seconds)
        self.placed = placed
        self._sink: KafkaSink | None = None
        self._publishers: list[Publisher] = []
        self._max_msg_size = route.max_msg_size
        self._max_batch_bytes = MAX_BATCH_BYTES
        self._reports: list[tuple[_Dead, Any]] = []
        self._again: list[_Dead] = []  # dead letters that Kafka has refused for now
        self._again_at = 0.0
        self._failures = 0
        self._dead = 0
        self._since_full = 0.0
        self._now = 0.0
        self._stop: Stopped | None = None

    def document(self) -> dict[str, Any]:
        nsqds = {
            f"{number}": each.address or each.reason or "no address"
            for number, each in enumerate(self._publishers)
        }
        return {**super().document(), "nsqd": nsqds}

    # --- the thread -----------------------------------------------------------------------------

    def work(self) -> None:
        route = self.route
        self._selector = selectors.DefaultSelector()
        self._reports, self._again, self._dead = [], [], 0
        self._sink = None
        count = len(route.nsqd) if route.nsqd else route.publishers
        self._publishers = [
            Publisher(
                self._selector,
                f"{self.bridge}-{route.name}",
                route.nsqd,
                number,
                self.figures,
            )
            for number in range(count)
        ]
        if self.placed is not None:
            self.placed.start(self._publishers)
        self._source = KafkaSource(
            self.kafka,
            route.source,
            route.group,
            self.bridge,
            route.name,
            self.figures,
            self._drain,
        )
        try:
            self._turns()
        finally:
            self._drain(set(self._source.tracks), self.drain_seconds)
            self._source.close()
            for publisher in self._publishers:
                publisher.close()
            if self.placed is not None:
                self.placed.stop()
            if self._sink is not None:
                self._sink.flush(1)
            self._selector.close()
        if self._stop is not None:
            raise self._stop

    def _turns(self) -> None:
        tick_at = 0.0
        while not self.stopping.is_set() and self._stop is None:
            now = self._now = time.monotonic()
            if now >= tick_at:
                tick_at = now + _TICK_SECONDS
                self._tick(now)
            busy = any(each.waiting for each in self._publishers) or self._dead
            if not self._has_room():
                self._full(now)
                self._answers(_FULL_SECONDS)
                continue
            self._since_full = 0.0
            self._source.resume()
            records = self._source.take(
                self.route.batch, _ANSWER_SECONDS if busy else _IDLE_SECONDS
            )
            if records:
                self._publish(records)
            self._answers(0)
        if self.stopping.is_set():
            self.figures.state = State.DRAINING

    def _has_room(self) -> bool:
        """For another batch, whatever partitions it is of."""
        return (
            self._dead + len(self._again) < _MAX_DEAD
            and not self._again
            and all(each.has_room and each.connected for each in self._publishers)
        )

    def _full(self, now: float) -> None:
        """A wait for room. If it lasts, partitions pause; polling goes on, for the group."""
        if not self._since_full:
            self._since_full = now
        if now - self._since_full > _PAUSE_AFTER_SECONDS:
            self._source.pause()
            records = self._source.take(1, 0)
            if records:  # of a partition that has just come
                self._publish(records)

    def _answers(self, seconds: float) -> None:
        """What nsqd and Kafka say to what was sent."""
        for publisher in self._publishers:
            publisher.pump(self._now)
        now = time.monotonic()
        for key, events in self._selector.select(seconds):
            key.data.owner.ready(key.data, events, now)
        stored = False
        for publisher in self._publishers:
            while publisher.answers:
                self._stored(publisher.answers.popleft())
                stored = True
            self._divide(publisher)
            publisher.pump(now)
        if self._dead and self._sink is not None:
            self._sink.poll(0)
            self._take_reports()
            stored = True
        if stored:
            self._source.store()
            self.goes_on()

    def _tick(self, now: float) -> None:
        for publisher in self._publishers:
            publisher.tick(now)
        if self._sink is not None and self._sink.fatal:
            self._sink.renew(self._sink.fatal)
            self._take_reports()
        if self._again and now >= self._again_at:
            again, self._again = self._again, []
            for each in again:
                self._bury(each)
        if "fenced" in self._source.fault:
            raise Stopped(
                f"another bridge has taken its place in group {self.route.group}: {self.bridge} is "
                "the name of both; give each its own name in [bridge]"
            )
        if self._source.fault:
            raise RuntimeError(self._source.fault)  # another consumer goes on from the last commit
        self._source.store()
        self.figures.in_flight = sum(len(track.entries) for track in self._source.tracks.values())
        self.figures.records_lag = self._source.lag()
        away = [each.reason for each in self._publishers if not each.connected]
        if away and self.figures.state is not State.STARTING:
            self.said(away[0] or "connecting to nsqd")
        elif away and away[0]:
            self.said(away[0])
        elif not away and not self._again and self._source.tracks:
            self.goes_on()

    # --- records --------------------------------------------------------------------------------

    def _publish(self, records: list[Message]) -> None:
        """A batch for each publisher and topic; what cannot be published goes elsewhere."""
        batches: dict[tuple[int, str], Batch] = {}
        ends: dict[Partition, tuple[Any, int]] = {}
        tracks, publishers = self._source.tracks, len(self._publishers)
        to, template = self.route.target, self.route.target.is_template
        largest, most_bytes = self._max_msg_size, self._max_batch_bytes
        one_topic = "" if self.route.source.is_pattern else self.route.source.topic
        size_of_all = 0
        # Of the partition of the last record: what its last records belong to, and what follows.
        at: Partition = ("", -1)
        track: Track | None = None
        last: Any = None
        following = 0
        batch: Batch | None = None
        for record in records:
            error = record.error()
            if error is not None:
                self._refused(error)
                continue
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
        self.figures.counts["message_count"] += len(records)
        self.figures.counts["message_bytes"] += size_of_all

    def _end(self, ends: dict[Partition, tuple[Any, int]], where: Any) -> None:
        entry = ends.pop(where, None)
        if entry is not None and entry[0] is not None:
            self._source.tracks[where].entries.append(entry)

    def _fault(self, record: Message, name: str, body: Any) -> "_Dead | _Skipped | None":
        """What becomes of a record that is not published; None for one that is."""
        headers: Any = record.headers()
        if headers and ("nsq-topic", name.encode()) in headers:
            self.figures.counts["looped_count"] += 1
            return _SKIPPED
        if not body:
            if self.route.tombstones == "skip":
                self.figures.counts["tombstone_count"] += 1
                return _SKIPPED
            return self._dead_of(record, "it has no body, and NSQ takes none that is empty")
        if len(body) > self._max_msg_size:
            return self._dead_of(
                record, f"{len(body):,} bytes are more than nsqd takes: {self._max_msg_size:,}"
            )
        if fault := nsq_fault(name) if self.route.target.is_template else "":
            return self._dead_of(record, f"topic {name!r}: {fault}")
        return None

    def _dead_of(self, record: Message, reason: str) -> _Dead:
        dead = _Dead(record, reason, self._reports)
        self._bury(dead)
        return dead

    def _bury(self, dead: _Dead) -> None:
        record = dead.record
        if self.route.dead_letter is None:
            if self._stop is None:
                hint = ' (or tombstones = "skip")' if not record.value() else ""
                self._stop = Stopped(
                    f"{record.topic()}[{record.partition()}] offset {record.offset()} cannot go "
                    f"to {self.route.target}: {dead.reason}; give the route dead-letter = "
                    f'"kafka:TOPIC"{hint}'
                )
            return
        if self._sink is None:
            self._sink = KafkaSink(
                self.kafka,
                f"{self.bridge}-{self.route.name}",
                linger_ms=5.0,
                max_messages=_MAX_DEAD,
                max_msg_size=max(self.route.max_msg_size, 1 << 20),
            )
        topic = self.route.dead_letter.of(record.topic() or "")
        theirs: Any = record.headers() or []
        headers: dict[str, bytes | str] = {name: value or b"" for name, value in theirs}
        headers |= {
            "kafka-topic": record.topic() or "",
            "kafka-partition": str(record.partition()),
            "kafka-offset": str(record.offset()),
        }
        body: Any = record.value()
        key: Any = record.key()
        try:
            if self._sink.dead_letter(topic, body, key, headers, dead.reason, dead):
                self.figures.counts["cut_count"] += 1
            self._dead += 1
        except (KafkaException, BufferError) as error:
            self._refused_dead(dead, topic, str(error))

    def _take_reports(self) -> None:
        for dead, error in self._reports:
            self._dead -= 1
            if error is None:
                dead.done = True
                self._failures = 0
                self.figures.counts["dead_letter_count"] += 1
            elif self.route.dead_letter is not None:
                topic = self.route.dead_letter.of(dead.record.topic() or "")
                self._refused_dead(dead, topic, told(error))
        self._reports.clear()

    def _refused_dead(self, dead: _Dead, topic: str, why: str) -> None:
        self.said(f"Kafka's topic {topic}, for dead letters: {why}")
        self._again.append(dead)
        self._again_at = self._now + backoff_seconds(self._failures, 1.0, _MAX_BACKOFF_SECONDS)
        self._failures += 1

    def _refused(self, error: KafkaError) -> None:
        """Kafka's word to the consumer: it tries again by itself, unless that is fatal."""
        if error.fatal() or error.code() == KafkaError._FATAL:
            self._source.fault = told(error)
        elif error.code() != KafkaError._PARTITION_EOF:
            self.said(f"{self.route.source}: {told(error)}")

    def _stored(self, batch: Batch) -> None:
        wall_ms = time.time_ns() // 1_000_000
        self.figures.counts["delivered_count"] += len(batch.bodies)
        # Kafka's times are whole milliseconds: many are equal.
        times = Counter([each.timestamp()[1] for each in batch.records])
        latencies = [max(wall_ms - each, 0) * 1_000_000 for each in times]
        self.figures.measured(latencies, list(times.values()))

    def _divide(self, publisher: Publisher) -> None:
        """nsqd takes less than was thought: what waits is divided anew, in order."""
        if publisher.max_body_size:
            limit = max(publisher.max_body_size - 4, 1)
            self._max_batch_bytes = min(self._max_batch_bytes, limit)
            # A message of an MPUB cannot be longer than its body.
            self._max_msg_size = min(self._max_msg_size, max(limit - 4, 1))
            publisher.max_body_size = 0
            self._split(publisher)
        if publisher.max_msg_size:
            self._max_msg_size = min(self._max_msg_size, publisher.max_msg_size)
            publisher.max_msg_size = 0
            self._split(publisher)

    def _split(self, publisher: Publisher) -> None:
        """One message each, and dead letters: their old batch is done when all of them are."""
        for batch in publisher.take_all():
            parts: list[Any] = []
            for record, body in zip(batch.records, batch.bodies, strict=True):
                if len(body) > self._max_msg_size:
                    reason = f"{len(body):,} bytes are more than nsqd takes: {self._max_msg_size:,}"
                    parts.append(self._dead_of(record, reason))
                    continue
                if (
                    not parts
                    or not isinstance(parts[-1], Batch)
                    or (parts[-1].bytes + len(body) + 4 > self._max_batch_bytes)
                ):
                    parts.append(Batch(batch.topic))
                parts[-1].bodies.append(body)
                parts[-1].records.append(record)
                parts[-1].bytes += len(body) + 4
            batch.parts = parts
            for part in parts:
                if isinstance(part, Batch):
                    publisher.put(part)

    def _drain(self, partitions: set[Partition], seconds: float = _REVOKE_SECONDS) -> None:
        """Until all that was taken of them is finished, or the time is over."""
        tracks: list[Track] = [
            self._source.tracks[each] for each in partitions if each in self._source.tracks
        ]

        def finished() -> bool:
            self._now = time.monotonic()
            return self._stop is not None or all(
                each[0].done for track in tracks for each in track.entries
            )

        def work() -> None:
            for publisher in self._publishers:
                publisher.tick(self._now)
            if self._again:
                again, self._again = self._again, []
                for each in again:
                    self._bury(each)
            self._answers(0.01)

        wait_until(finished, seconds, work)
