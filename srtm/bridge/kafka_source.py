"""The Kafka side of a route to NSQ: a consumer that commits what nsqd has acknowledged."""

import contextlib
import logging
import re
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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
from srtm.bridge.file import KafkaTable, Route
from srtm.bridge.names import glob
from srtm.kafka.client import NOT_THERE, LastFault, away, client_settings, told
from srtm.kafka.cut_off import CUT_OFF, CutOff
from srtm.kafka.place import Note, read_note
from srtm.kafka.topic_ids import TopicIds

log = logging.getLogger("srtm.bridge")

_COMMIT_MS = 200
"""What kill -9 makes come twice."""
_QUEUED_KBYTES = 16_384
_ASK_SECONDS = 5.0
_LOOK_SECONDS = 0.3
_LOOK_EVERY_SECONDS = 1.0
_SILENT_SECONDS = 30.0
"""Without a word of Kafka for so long a consumer looks whether it is cut off."""
_LEAVE_SECONDS = 3.0
_CLOSE_SECONDS = 1.0
_NOT_AN_INSTANCE = re.compile(r"[^a-zA-Z0-9._-]")


class Nothing:
    """What needs no work: offsets without records (markers of transactions, aborted or compacted
    records), and records that are passed over."""

    done = True


NOTHING = Nothing()


@dataclass(slots=True, eq=False)
class Track:
    """A partition: what was taken of it and is not finished, in order of offset.

    entries:   (what, offset after it, records); records: of all of them
    following: the offset that comes next; -1 before the first
    end:       where the log ended when it was read so far
    before:    where it stood until it began anew, at a lower offset
    """

    entries: deque[tuple[Any, int, int]] = field(default_factory=deque)
    records: int = 0
    following: int = -1
    end: int = -1
    stored: int = -1
    before: int = -1

    def add(self, what: Any, following: int, records: int = 1) -> None:
        """`what` holds the records up to there; more of them, where it held the last ones."""
        entries = self.entries
        self.records += records
        if entries and entries[-1][0] is what:
            entries[-1] = (what, following, entries[-1][2] + records)
        else:
            entries.append((what, following, records))

    def reach(self, end: int) -> None:
        """Note that all that the log has is taken: it ends at `end`, and no record is in
        between."""
        if end >= self.following:
            self.end = self.following = end
            if end > self.stored:
                self.add(NOTHING, end, 0)

    def advance(self) -> int:
        """The offset up to which all is finished, if it has grown; -1 otherwise."""
        entries, found = self.entries, -1
        while entries and entries[0][0].done:
            _, found, records = entries.popleft()
            self.records -= records
        return found

    def lag(self, high: int) -> int:
        """Records that are not finished. Of offsets that were not read yet nobody knows how many
        have a record: all of them are counted. high: where the log ended at the last fetch."""
        unread = 0 if self.following < 0 or self.following == self.end else high - self.following
        return self.records + max(unread, 0)

    def anew(self) -> "Track":
        """A new track of the same partition, from its beginning. What is under way still counts, so
        that it is waited for, but finishes nothing of the new topic."""
        found = Track()
        found.entries.extend((what, 0, records) for what, _, records in self.entries)
        found.records = self.records
        found.before = max(self.following, self.stored, self.before)
        return found


Partition = tuple[str, int]


class KafkaSource:
    """drained: called before partitions are given up, until it says that all of theirs is
    finished; it works meanwhile, so that their order holds with whoever has them next."""

    def __init__(
        self,
        kafka: KafkaTable,
        route: Route,
        bridge: str,
        figures: Figures,
        drained: Callable[[set[Partition]], None],
    ) -> None:
        """Raises KafkaException for settings that librdkafka does not know."""
        self.tracks: dict[Partition, Track] = {}
        self.paused = False
        self._topics: set[str] = set()  # that this client has read; one may be gone for a while
        self.fault = ""  # fatal: the consumer is of no use any more
        self.anew = ""  # a topic was made anew, which takes another client
        self.away = ""  # no broker of Kafka answers, and why
        self._ask_at = 0.0
        self._came = time.monotonic()
        self._kafka = kafka
        self._route = route.name
        self._last = LastFault()
        self._closing = False
        self._figures = figures
        self._drained = drained
        self._ids = TopicIds(kafka, f"{bridge}-{route.name}")
        settings = _settings(kafka, route, bridge)
        self._cut_off = CutOff(settings)
        self._consumer = Consumer(settings | {"error_cb": self._failed})
        pattern = route.source.topic
        if route.source.is_pattern:
            pattern = f"^{glob(pattern).pattern}$"
        self._consumer.subscribe(
            [pattern], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )

    def take(self, most: int, seconds: float) -> list[Message]:
        """Up to `most` messages: as many as are there, or the first that comes within `seconds`.
        Kafka's words about where a log begins and ends are among them, for `heard`."""
        first = self._consumer.poll(seconds)
        if first is None:
            return []
        self._came = time.monotonic()
        if most < 2:
            return [first]
        # `consume` would wait until there are `most`, so it only takes what is there.
        return [first, *self._consumer.consume(most - 1, 0)]

    def heard(self, message: Message, error: KafkaError) -> bool:
        """True for a word about where a log begins or ends; after the records before it."""
        where = (message.topic() or "", message.partition() or 0)
        track, offset = self.tracks.get(where), message.offset()
        if error.code() == KafkaError._PARTITION_EOF:
            if track is not None and offset is not None:
                track.reach(offset)
            return True
        if error.code() not in NOT_THERE:
            return False
        if track is not None:
            if offset is not None and offset >= 0:
                self._tell_gone(*where, offset)
            self._restart({where: OFFSET_BEGINNING})
        return True

    def store(self) -> None:
        """What is finished is committed soon."""
        found, back = [], []
        for (topic, partition), track in self.tracks.items():
            offset = track.advance()
            if offset >= 0:
                track.stored = offset
                found.append(self._place(topic, partition, offset))
                if offset < track.before:
                    back.append(found[-1])
        if found:
            try:
                self._consumer.store_offsets(offsets=found)
                if back:  # librdkafka by itself commits no offset under the last one
                    self._consumer.commit(offsets=back, asynchronous=True)
            except KafkaException as error:
                log.info("offsets are not stored: %s", told(error.args[0]))

    def _place(self, topic: str, partition: int, offset: int) -> TopicPartition:
        return TopicPartition(topic, partition, offset, str(Note(self._ids.of(topic))))

    def _tell_gone(self, topic: str, partition: int, expected: int) -> None:
        """Kafka has no such offset."""
        where = TopicPartition(topic, partition)
        try:
            low, high = self._consumer.get_watermark_offsets(where, _ASK_SECONDS)
        except KafkaException:
            said = f"offset {expected} is not there"
        else:
            said = (
                f"offset {expected} was committed, and the topic ends at {high}: it was made anew, "
                "and is read from its beginning"
            )
            if expected < low:
                self._figures.counts["gone_count"] += low - expected
                said = (
                    f"Kafka has deleted offsets {expected} to {low - 1} before they were read "
                    f"(retention); it goes on at {low}"
                )
        log.warning("%s[%d]: %s", topic, partition, said)

    def _restart(self, begins: Mapping[Partition, int]) -> None:
        """Read on from elsewhere. Not by a seek: a partition that stands, as its offset is not
        there, takes none. Raises KafkaException."""
        there = [TopicPartition(*each) for each in begins]
        self._consumer.incremental_unassign(there)
        for each in begins:
            self.tracks[each] = self.tracks[each].anew()
        self._consumer.incremental_assign(
            [TopicPartition(*each, offset) for each, offset in begins.items()]
        )
        if self.paused:
            self._consumer.pause(there)

    def look(self, now: float) -> None:
        """Look for what librdkafka does not tell: was a topic made anew, is Kafka back, and are we
        cut off from it? Call it often."""
        self._ids.tick(self._topics, now, self._made_anew)
        silent = now - self._came > _SILENT_SECONDS
        if (self.away or silent) and self._cut_off.look(self._consumer):
            self.fault = CUT_OFF
        if self.away and now >= self._ask_at:
            try:
                if self._consumer.list_topics(timeout=_LOOK_SECONDS).brokers:
                    self.away = ""
            except KafkaException:
                self._ask_at = time.monotonic() + _LOOK_EVERY_SECONDS

    def _made_anew(self, topic: str) -> bool:
        """Have it read by another client: librdkafka takes no leader of a partition whose epoch is
        below one that it has seen, and a new topic begins at 0. Until then the id stays, so that no
        offset of the old topic is noted as one of the new."""
        self.anew = f"{topic} was made anew: it is read from its beginning"
        return False

    def pause(self) -> None:
        """Fetch nothing more; the place in the group is kept."""
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
            total += track.lag(high)
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
        self._topics.update(each.topic for each in partitions)
        ids = self._ids.first(each.topic for each in partitions)
        with contextlib.suppress(KafkaException):  # asked for again as the partition is fetched
            partitions = consumer.committed(partitions, timeout=_ASK_SECONDS)
        self._ids.learn(ids, max(ask_until - time.monotonic(), 0))
        for each in partitions:
            track = self.tracks[each.topic, each.partition] = Track()
            if each.offset < 0:
                continue
            if read_note(each.metadata).is_of(self._ids.of(each.topic)):
                track.stored = track.following = each.offset
                continue
            track.before, each.offset = each.offset, OFFSET_BEGINNING
            _say_anew(f"{each.topic}[{each.partition}]")
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


def _settings(kafka: KafkaTable, route: Route, bridge: str) -> dict[str, Any]:
    """A consumer's that commits what is stored, and forgets nothing."""
    return {
        # These the file may set otherwise.
        "queued.max.messages.kbytes": _QUEUED_KBYTES,
        "max.partition.fetch.bytes": 4 << 20,
        "fetch.max.bytes": 16 << 20,
        "fetch.wait.max.ms": 100,
        # How long it pauses when enough is fetched: with its own 1,000 ms a quarter of the records
        # a second came.
        "fetch.queue.backoff.ms": 5,
        "auto.commit.interval.ms": _COMMIT_MS,
        **client_settings(kafka, f"{bridge}-{route.name}"),
        "group.id": route.group,
        "group.instance.id": instance_id(bridge, route.name),
        "enable.auto.offset.store": False,
        "enable.auto.commit": True,
        # What is not there any more, or not yet, is told, and read from its beginning.
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "partition.assignment.strategy": "cooperative-sticky",
    }


def _say_anew(what: str) -> None:
    log.warning("%s was made anew: it is read from its beginning", what)


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
