"""The Kafka side of a route to NSQ: a consumer that commits what nsqd has acknowledged."""

import contextlib
import logging
import re
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from srtm.bridge.figures import Figures
from srtm.bridge.file import KafkaTable
from srtm.bridge.names import End, glob
from srtm.bridge.topic_ids import TopicIds
from srtm.kafka.client import LastFault, away, client_settings, told

log = logging.getLogger("srtm.bridge")

_COMMIT_MS = 200
"""What kill -9 makes come twice."""
_QUEUED_KBYTES = 16_384
_ASK_SECONDS = 5.0
_LOOK_SECONDS = 0.3
_LOOK_EVERY_SECONDS = 1.0
_LEAVE_SECONDS = 3.0
_CLOSE_SECONDS = 1.0
_NOT_AN_INSTANCE = re.compile(r"[^a-zA-Z0-9._-]")


class Track:
    """A partition: what was taken of it and is not finished, in order of offset."""

    __slots__ = ("before", "entries", "following", "stored")

    def __init__(self) -> None:
        self.entries: deque[tuple[Any, int]] = deque()  # (what, offset after it)
        self.following = -1  # the offset that comes next; -1 before the first
        self.stored = -1
        self.before = -1  # where it stood until it began anew, at a lower offset

    def add(self, what: Any, following: int) -> None:
        """`what` holds the records up to there; more of them, where it held the last ones."""
        entries = self.entries
        if entries and entries[-1][0] is what:
            entries[-1] = (what, following)
        else:
            entries.append((what, following))

    def advance(self) -> int:
        """The offset up to which all is finished, if it has grown; -1 otherwise."""
        entries, found = self.entries, -1
        while entries and entries[0][0].done:
            found = entries.popleft()[1]
        return found

    def anew(self) -> "Track":
        """Of the same partition, from its beginning. What is under way still counts, so that it
        is waited for, but finishes nothing of the new topic."""
        found = Track()
        found.entries.extend((what, 0) for what, _ in self.entries)
        found.before = max(self.following, self.stored, self.before)
        return found


Partition = tuple[str, int]


class KafkaSource:
    """drained: called before partitions are given up, until it says that all of theirs is
    finished; it works meanwhile, so that their order holds with whoever has them next."""

    def __init__(
        self,
        kafka: KafkaTable,
        source: End,
        group: str,
        bridge: str,
        route: str,
        figures: Figures,
        drained: Callable[[set[Partition]], None],
    ) -> None:
        """Raises KafkaException for settings that librdkafka does not know."""
        self.tracks: dict[Partition, Track] = {}
        self.paused = False
        self.fault = ""  # fatal: the consumer is of no use any more
        self.away = ""  # no broker of Kafka answers, and why
        self._ask_at = 0.0
        self._kafka = kafka
        self._route = route
        self._last = LastFault()
        self._closing = False
        self._figures = figures
        self._drained = drained
        self._ids = TopicIds(kafka, f"{bridge}-{route}")
        self._consumer = Consumer(
            {
                # These the file may set otherwise.
                "queued.max.messages.kbytes": _QUEUED_KBYTES,
                "max.partition.fetch.bytes": 4 << 20,
                "fetch.max.bytes": 16 << 20,
                "fetch.wait.max.ms": 100,
                # How long it pauses when enough is fetched: with its own 1,000 ms a quarter of the
                # records a second came.
                "fetch.queue.backoff.ms": 5,
                "auto.commit.interval.ms": _COMMIT_MS,
                **client_settings(kafka, f"{bridge}-{route}"),
                "group.id": group,
                "group.instance.id": instance_id(bridge, route),
                "enable.auto.offset.store": False,
                "enable.auto.commit": True,
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": "cooperative-sticky",
                "error_cb": self._failed,
            }
        )
        pattern = "^" + glob(source.topic).pattern + "$" if source.is_pattern else source.topic
        self._consumer.subscribe(
            [pattern], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )

    def take(self, most: int, seconds: float) -> list[Message]:
        """As many as are there, or the first that comes within `seconds`."""
        first = self._consumer.poll(seconds)
        if first is None:
            return []
        if most < 2:
            return [first]
        # `consume` would wait until there are `most`, so it only takes what is there.
        return [first, *self._consumer.consume(most - 1, 0)]

    def store(self) -> None:
        """What is finished is committed soon."""
        found, back = [], []
        for (topic, partition), track in self.tracks.items():
            offset = track.advance()
            if offset >= 0:
                track.stored = offset
                found.append(TopicPartition(topic, partition, offset))
                if offset < track.before:
                    back.append(found[-1])
        if found:
            try:
                self._consumer.store_offsets(offsets=found)
                if back:  # librdkafka by itself commits no offset under the last one
                    self._consumer.commit(offsets=back, asynchronous=True)
            except KafkaException as error:
                log.info("offsets are not stored: %s", told(error.args[0]))

    def gap(self, topic: str, partition: int, expected: int, offset: int) -> None:
        """A record comes that does not follow the last: compaction, or records that are gone."""
        if expected < 0:
            return
        if offset < expected:
            log.warning(
                "%s[%d] begins anew at offset %d, after %d: the topic was made anew, or its "
                "offsets were set back",
                topic,
                partition,
                offset,
                expected,
            )
            self.tracks[topic, partition].before = expected
            return
        self._tell_gone(topic, partition, expected)

    def _tell_gone(self, topic: str, partition: int, expected: int) -> bool:
        """True where `expected` is not there."""
        where = TopicPartition(topic, partition)
        try:
            low, high = self._consumer.get_watermark_offsets(where, _ASK_SECONDS)
        except KafkaException:
            return False
        if expected < low:
            self._figures.counts["gone_count"] += low - expected
            log.warning(
                "%s[%d]: Kafka has deleted offsets %d to %d before they were read (retention); it "
                "goes on at %d",
                topic,
                partition,
                expected,
                low - 1,
                low,
            )
        elif expected > high:
            log.warning(
                "%s[%d]: offset %d was committed, and the topic ends at %d: it was made anew, and "
                "is read from its beginning",
                topic,
                partition,
                expected,
                high,
            )
            self.tracks[topic, partition].before = expected
        return not low <= expected <= high

    def look(self, now: float) -> None:
        """Often: what librdkafka does not tell. Was a topic made anew, and is Kafka back?"""
        self._ids.tick({topic for topic, _ in self.tracks}, now, self._begin_anew)
        if self.away and now >= self._ask_at:
            try:
                self._consumer.list_topics(timeout=_LOOK_SECONDS)
                self.away = ""
            except KafkaException:
                self._ask_at = time.monotonic() + _LOOK_EVERY_SECONDS

    def _begin_anew(self, topic: str) -> bool:
        partitions = [number for name, number in self.tracks if name == topic]
        try:
            for each in partitions:
                self._consumer.seek(TopicPartition(topic, each, OFFSET_BEGINNING))
                self.tracks[topic, each] = self.tracks[topic, each].anew()
            # What was finished last may have been committed to the new topic.
            starts = [TopicPartition(topic, each, 0) for each in partitions]
            self._consumer.commit(offsets=starts, asynchronous=True)
        except KafkaException as error:
            log.info("%s is read from its beginning later: %s", topic, told(error))
            return False
        log.warning("%s was made anew: it is read from its beginning", topic)
        return True

    def pause(self) -> None:
        """Nothing more is fetched; the place in the group is kept."""
        if not self.paused:
            self.paused = True
            self._consumer.pause([TopicPartition(*each) for each in self.tracks])

    def resume(self) -> None:
        if self.paused:
            self.paused = False
            self._consumer.resume([TopicPartition(*each) for each in self.tracks])

    def lag(self) -> int:
        """Records that Kafka has and nobody has finished, as the last fetches tell."""
        total = 0
        for (topic, partition), track in self.tracks.items():
            where = TopicPartition(topic, partition)
            _, high = self._consumer.get_watermark_offsets(where, cached=True)
            if high > 0:
                total += max(high - max(track.stored, 0), 0)
        return total

    def close(self) -> None:
        """Commit what is finished, and leave the group: others go on at once. What is not finished
        by now is not waited for."""
        self._closing = True
        self.store()
        # A static member that closes only keeps its place for a session's time; one that
        # unsubscribes leaves, once its partitions are given up and their offsets committed.
        if not self.fault:
            with contextlib.suppress(KafkaException):  # fenced just now
                self._consumer.unsubscribe()
                left = wait_until(lambda: not self._consumer.memberid(), _LEAVE_SECONDS, self._poll)
                if not left:
                    log.warning("Kafka does not answer: the last offsets may not be committed")
        # librdkafka may wait for an answer of Kafka without an end.
        closing = threading.Thread(target=self._consumer.close, daemon=True)
        closing.start()
        closing.join(_CLOSE_SECONDS)

    def _poll(self) -> None:
        self._consumer.poll(0.05)

    # --- what the group says --------------------------------------------------------------------

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        ask_until = time.monotonic() + _ASK_SECONDS
        ids = self._ids.first(each.topic for each in partitions)
        with contextlib.suppress(KafkaException):  # asked for again as the partition is fetched
            partitions = consumer.committed(partitions, timeout=_ASK_SECONDS)
        self._ids.learn(ids, max(ask_until - time.monotonic(), 0))
        ask_until = time.monotonic() + _ASK_SECONDS
        for each in partitions:
            track = self.tracks[each.topic, each.partition] = Track()
            if each.offset >= 0:
                track.stored = each.offset
                in_time = time.monotonic() < ask_until
                if not (in_time and self._tell_gone(each.topic, each.partition, each.offset)):
                    track.following = each.offset
        names = ", ".join(f"{each.topic}[{each.partition}]" for each in partitions[:20])
        log.info("route %s: partitions assigned: %s", self._route, names or "none")
        consumer.incremental_assign(
            [TopicPartition(each.topic, each.partition, each.offset) for each in partitions]
        )
        if self.paused:
            consumer.pause(partitions)

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        gone = {(each.topic, each.partition) for each in partitions}
        if not self._closing:
            self._drained(gone)
        # librdkafka commits what is stored before it gives partitions up. A commit of our own would
        # wait for its answer, which never comes where Kafka hangs just then.
        self.store()
        self._forget(gone)

    def _lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        log.warning(
            "route %s: the group has given our partitions away; what was not committed comes again",
            self._route,
        )
        self._forget({(each.topic, each.partition) for each in partitions})

    def _forget(self, gone: set[Partition]) -> None:
        for each in gone:
            self.tracks.pop(each, None)

    def _failed(self, error: KafkaError) -> None:
        self._last(error)
        if error.fatal():
            self.fault = told(error)
        elif error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.away = away(self._kafka, error, self._last.text)


def instance_id(bridge: str, route: str) -> str:
    """Kafka takes [a-zA-Z0-9._-]; names that differ elsewhere stay apart."""
    name = f"{bridge}.{route}"
    plain = _NOT_AN_INSTANCE.sub("-", name)[:200]
    return plain if plain == name else f"{plain}-{zlib.crc32(name.encode()):08x}"


def wait_until(condition: Callable[[], bool], seconds: float, work: Callable[[], None]) -> bool:
    """Work until it is so."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        work()
    return True
