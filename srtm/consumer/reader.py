"""The data side of a consumer: partitions that it was given, records, positions, commits."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from srtm.consumer.batch import Record
from srtm.consumer.file import ConsumerTable, GroupFile
from srtm.consumer.places import Place
from srtm.consumer.records import Records
from srtm.host.clock import NS, monotonic_ns
from srtm.kafka.client import NOT_THERE, client_settings, told
from srtm.kafka.cut_off import CUT_OFF, CutOff
from srtm.kafka.headers import headers_of
from srtm.kafka.place import Note, read_note

log = logging.getLogger("srtm.consumer")

_ASK_SECONDS = 5.0
_SLICE_SECONDS = 0.01
"""A command waits so long at most while records are waited for; it costs 0.5 % of a core."""
_RECOMMIT_NS = 3600 * NS
"""Kafka forgets an offset of a group without members a week after it was committed
(offsets.retention.minutes), also where a partition is only quiet."""
_IDLE_COMMIT_NS = NS // 10
"""The time between two commits of what was only passed: a transaction without records for us moves
the place too."""
_SILENT_NS = 30 * NS
"""Without a word of Kafka for so long a reader looks whether it is cut off."""
_QUEUED_KBYTES = 16_384
_FETCH_MS = 20
"""How long the broker waits for records. A partition that was taken up is fetched only when the
fetch under way has ended, so this is in every hand-over to a consumer without work."""


class Reader(Records):
    def __init__(
        self,
        file: GroupFile,
        table: ConsumerTable,
        client: str,
        protocol: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(file, table, client)
        self._recommit_ns = monotonic_ns() + _RECOMMIT_NS
        self._idle_ns = 0
        self._came_ns = monotonic_ns()
        self._not_there: dict[int, int] = {}
        self._was_anew = self._is_stale = False  # the topic; the client, which knows the old one
        self._settings: dict[str, Any] = {
            "queued.max.messages.kbytes": _QUEUED_KBYTES,
            "max.partition.fetch.bytes": 4 << 20,
            "fetch.max.bytes": 16 << 20,
            "fetch.wait.max.ms": _FETCH_MS,
            "fetch.queue.backoff.ms": 5,
            **client_settings(file.kafka, client),
            "group.id": file.group.id,
            "enable.auto.commit": False,
            # What was committed and is gone by now is told; never committed is decided in `start`.
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "error_cb": self._failed,
            **(protocol or {}),
        }
        self._cut_off = CutOff(self._settings)
        self._consumer = Consumer(self._settings)

    def warm(self) -> None:
        """Learn who leads the topic's partitions: librdkafka would look for it once a second only,
        when the first partition has been taken up. Kafka may be away."""
        with contextlib.suppress(KafkaException):
            self._consumer.list_topics(self._topic, timeout=_ASK_SECONDS)

    def start(self, partitions: Iterable[int]) -> None:
        """Raises KafkaException; nothing is started then."""
        asked = [TopicPartition(self._topic, each) for each in partitions]
        if not asked:
            return
        if not self.positions:
            if self._is_stale:
                self._open_again()
            self.warm()
        ids = self._ids.ask([self._topic])
        try:
            found = self._consumer.committed(asked, timeout=_ASK_SECONDS)
        except KafkaException:
            self._came_ns = -_SILENT_NS
            self._look()
            raise
        for each in found:
            if each.error is not None:
                raise KafkaException(each.error)
        self._ids.learn(ids, _ASK_SECONDS, self._made_anew)
        has_none = self._has_none()
        begins = [(each, self._begin(each)) for each in found]
        self._consumer.incremental_assign(
            [TopicPartition(self._topic, each.partition, at) for each, at in begins]
        )
        for each, at in begins:
            if each.offset < 0:
                self._places.begin(each.partition, at)
            elif not self._places.begin(each.partition, each.offset, each.metadata or ""):
                self._say_anew(f"{self._topic}[{each.partition}]")
        if has_none:
            self._is_anew = False

    def _begin(self, committed: TopicPartition) -> int:
        if committed.offset >= 0:
            is_mine = read_note(committed.metadata).is_of(self._places.topic_id)
            return committed.offset if is_mine else 0
        low, high = self._consumer.get_watermark_offsets(committed, _ASK_SECONDS)
        if self._reset == "earliest" or self._was_anew:
            return low
        # Kept at once, or what comes before the first commit would be skipped by the next owner.
        note = str(Note(self._places.topic_id, 0))
        at_end = TopicPartition(self._topic, committed.partition, high, note)
        self._consumer.commit(offsets=[at_end], asynchronous=False)
        return high

    def stop(self, partitions: Iterable[int]) -> None:
        """What was gathered of them and is not processed is left to the next owner."""
        gone = set(partitions) & self.positions.keys()
        if not gone:
            return
        self._consumer.incremental_unassign([TopicPartition(self._topic, p) for p in gone])
        self._drop(gone)

    def _drop(self, partitions: Collection[int]) -> None:
        super()._drop(partitions)
        for partition in partitions:
            self._not_there.pop(partition, None)

    def rewind(self) -> None:
        self._let_go()
        if again := self._all():
            self._consumer.incremental_unassign(again)
            self._consumer.incremental_assign(again)

    def _all(self) -> list[TopicPartition]:
        """Its partitions, and where each goes on."""
        return [TopicPartition(self._topic, p, at) for p, at in self.positions.items()]

    def gather(self, interrupted: Callable[[], bool]) -> list[Record]:
        while not interrupted():
            self._ids.tick([self._topic], monotonic_ns() / NS, self._made_anew)
            elsewhere = self._is_anew or self._is_stale or bool(self._not_there)
            if elsewhere and not self._gathered:
                self._begin_elsewhere()
            left = self._table.batch - len(self._gathered)
            for message in self._consumer.consume(left, 0) if left and not elsewhere else []:
                self._take(message)
            if found := self._batch(elsewhere):
                return found
            first = self._consumer.poll(_SLICE_SECONDS)
            if first is not None:
                self._take(first)
            elif self._look():
                continue
            elif not self._gathered and self._has_to_commit():
                return []
        return []

    def _look(self) -> bool:
        """Look now and then whether this client is cut off, where nothing came for long: it says
        nothing of that itself. True where it is: another one is to read on."""
        silent = monotonic_ns() - self._came_ns > _SILENT_NS
        if (self.fault or silent) and self._cut_off.look(self._consumer):
            log.warning("%s: %s", self._topic, CUT_OFF)
            self._is_stale = True
            return True
        return False

    def _has_to_commit(self) -> bool:
        """While nothing is in hand: the end of the log was reached, or Kafka may forget."""
        now = monotonic_ns()
        self._places.done()
        if now >= self._recommit_ns:
            self._recommit_ns = now + _RECOMMIT_NS
            self._places.commit_again()
        if not self._places.has_moved or now < self._idle_ns:
            return False
        self._idle_ns = now + _IDLE_COMMIT_NS
        return True

    def _begin_elsewhere(self) -> None:
        """The topic was made anew, or Kafka does not have what comes next."""
        not_there, self._not_there = self._not_there, {}
        if self._is_anew:
            self._begin_anew()
        else:
            for partition, at in not_there.items():
                self._places.begin_at(partition, self._begin_of(partition, at))
        if self._is_stale:
            self._renew()
        else:
            self.rewind()

    def _made_anew(self, topic: str) -> bool:
        self._was_anew = self._is_stale = True
        return super()._made_anew(topic)

    def _renew(self) -> None:
        """Read on by a client that knows nothing of the topic that was there before: librdkafka
        takes no leader of a partition whose epoch is below one that it has seen, and a new topic
        begins at 0."""
        self._let_go()
        self._open_again()
        if again := self._all():
            self.warm()
            self._consumer.incremental_assign(again)

    def _open_again(self) -> None:
        """The old client is closed beside the work: librdkafka may wait for an answer of Kafka
        without an end."""
        old, self._consumer = self._consumer, Consumer(self._settings)
        self._is_stale = False
        threading.Thread(target=old.close, name="old-client", daemon=True).start()

    def _begin_of(self, partition: int, expected: int) -> int:
        """Where it is read on, as `expected` is not there."""
        where = TopicPartition(self._topic, partition)
        try:
            if expected < 0:  # nothing was committed, as is known by now
                return self._begin(where)
            low, high = self._consumer.get_watermark_offsets(where, _ASK_SECONDS)
        except KafkaException:
            return expected  # and it is told again
        if expected < low:
            log.warning(
                "%s[%d]: Kafka has deleted offsets %d to %d before they were read (retention); it "
                "goes on at %d",
                *(self._topic, partition, expected, low - 1, low),
            )
        else:
            log.warning(
                "%s[%d]: offset %d was committed, and the topic ends at %d: it is read from its "
                "beginning",
                *(self._topic, partition, expected, high),
            )
        return low

    def _take(self, message: Message) -> None:
        self._came_ns = monotonic_ns()
        error = message.error()
        partition, offset = message.partition(), message.offset()
        if error is not None:
            self._heard(error, partition, offset)
            return
        self.fault = ""
        if partition is None or offset is None or partition not in self.positions:
            return
        self._keep(record_of(message, partition, offset))

    def _heard(self, error: KafkaError, partition: int | None, offset: int | None) -> None:
        if error.code() != KafkaError._PARTITION_EOF and error.code() not in NOT_THERE:
            self.fault = told(error)
        elif partition is not None and partition in self.positions and offset is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                self._places.reach(partition, offset)
            else:
                self._not_there[partition] = offset

    def _write(self, places: Mapping[int, Place]) -> str:
        offsets = [TopicPartition(self._topic, p, at.offset, at.note) for p, at in places.items()]
        try:
            for each in self._consumer.commit(offsets=offsets, asynchronous=False):
                if each.error is not None:
                    return told(each.error)
        except KafkaException as error:
            return told(error)
        return ""

    def pause(self) -> None:
        self._look()
        self._ids.tick([self._topic], monotonic_ns() / NS, self._made_anew)
        if self._is_stale:
            self._renew()
        elif self._is_full:
            self.rewind()
        message = self._consumer.poll(0)
        if message is not None:
            self._take(message)
        time.sleep(_SLICE_SECONDS)

    def close(self) -> None:
        self._consumer.close()

    def _failed(self, error: object) -> None:
        self.fault = str(error)


def record_of(message: Message, partition: int, offset: int) -> Record:
    """The record as users get it. partition, offset: of the message, which has both."""
    kind, milliseconds = message.timestamp()
    key, value = message.key(), message.value()
    headers = tuple(
        (name, each.encode() if isinstance(each, str) else each)
        for name, each in headers_of([message])[0] or ()
    )
    return Record(
        topic=message.topic() or "",
        partition=partition,
        offset=offset,
        key=key.encode() if isinstance(key, str) else key,
        value=value.encode() if isinstance(value, str) else value,
        headers=headers,
        timestamp=milliseconds / 1e3 if kind and milliseconds >= 0 else None,
    )
