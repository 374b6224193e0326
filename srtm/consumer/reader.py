"""The data side of a consumer: partitions that it was given, records, positions, commits."""

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from confluent_kafka import (
    Consumer,
    KafkaException,
    Message,
    TopicPartition,
)

from srtm.clock import NS, monotonic_ns
from srtm.consumer.batch import Record
from srtm.consumer.file import ConsumerTable, GroupFile
from srtm.kafka.client import client_settings, told

log = logging.getLogger("srtm.consumer")

_ASK_SECONDS = 5.0
_SLICE_SECONDS = 0.01
"""A command waits so long at most while records are waited for; it costs 0.5 % of a core."""
_RECOMMIT_NS = 3600 * NS
"""Kafka forgets an offset of a group without members a week after it was committed
(offsets.retention.minutes), also where a partition is only quiet."""
_QUEUED_KBYTES = 16_384
_FETCH_MS = 20
"""How long the broker waits for records. A partition that was taken up is fetched only when the
fetch under way has ended, so this is in every hand-over to a consumer without work."""


class Records(Protocol):
    """The data side of a consumer, whoever says which partitions it has."""

    fault: str
    positions: dict[int, int]

    def tokens(self) -> dict[int, int]:
        """partition -> a number that grows with each change of its owner; 0: there is none"""
        ...

    def gather(self, interrupted: Callable[[], bool]) -> list[Record]: ...

    def rewind(self) -> None: ...

    def done(self, records: Iterable[Record]) -> None: ...

    def commit(self) -> bool: ...

    def pause(self) -> None: ...

    def close(self) -> None: ...


class Reader:
    """fault: why nothing comes, or is not committed; "" while all is well"""

    def __init__(
        self,
        file: GroupFile,
        table: ConsumerTable,
        client: str,
        protocol: Mapping[str, str] | None = None,
    ) -> None:
        self.fault = ""
        self.positions: dict[int, int] = {}
        """partition -> the offset that is processed next"""
        self._topic = file.group.topic
        self._reset = file.group.reset
        self._table = table
        self._gathered: list[Record] = []
        self._bytes = 0
        self._due_ns = 0
        self._recommit_ns = monotonic_ns() + _RECOMMIT_NS
        self._committed: dict[int, int] = {}
        self._consumer = Consumer(
            {
                "queued.max.messages.kbytes": _QUEUED_KBYTES,
                "max.partition.fetch.bytes": 4 << 20,
                "fetch.max.bytes": 16 << 20,
                "fetch.wait.max.ms": _FETCH_MS,
                "fetch.queue.backoff.ms": 5,
                **client_settings(file.kafka, client),
                "group.id": file.group.id,
                "enable.auto.commit": False,
                # What was committed and is gone by now; never committed is decided in `start`.
                "auto.offset.reset": "earliest",
                "error_cb": self._failed,
                **(protocol or {}),
            }
        )

    def warm(self) -> None:
        """Learn who leads the topic's partitions: librdkafka would look for it once a second only,
        when the first partition has been taken up. Kafka may be away."""
        with contextlib.suppress(KafkaException):
            self._consumer.list_topics(self._topic, timeout=_ASK_SECONDS)

    def tokens(self) -> dict[int, int]:
        return dict.fromkeys(self.positions, 0)

    def start(self, partitions: Iterable[int]) -> None:
        """Raises KafkaException; nothing is started then."""
        asked = [TopicPartition(self._topic, each) for each in partitions]
        if not asked:
            return
        if not self.positions:
            self.warm()
        found = self._consumer.committed(asked, timeout=_ASK_SECONDS)
        for each in found:
            if each.error is not None:
                raise KafkaException(each.error)
        begins = [TopicPartition(self._topic, each.partition, self._begin(each)) for each in found]
        self._consumer.incremental_assign(begins)
        for each in begins:
            self.positions[each.partition] = each.offset
            self._committed[each.partition] = each.offset

    def _begin(self, committed: TopicPartition) -> int:
        if committed.offset >= 0:
            return committed.offset
        low, high = self._consumer.get_watermark_offsets(committed, _ASK_SECONDS)
        if self._reset == "earliest":
            return low
        # Kept at once, or what comes before the first commit would be skipped by the next owner.
        at_end = TopicPartition(self._topic, committed.partition, high)
        self._consumer.commit(offsets=[at_end], asynchronous=False)
        return high

    def stop(self, partitions: Iterable[int]) -> None:
        """What was gathered of them and is not processed is left to the next owner."""
        gone = set(partitions) & self.positions.keys()
        if not gone:
            return
        self._consumer.incremental_unassign([TopicPartition(self._topic, p) for p in gone])
        for partition in gone:
            del self.positions[partition]
            self._committed.pop(partition, None)
        self._gathered = [each for each in self._gathered if each.partition not in gone]
        self._bytes = sum(map(_size, self._gathered))

    def rewind(self) -> None:
        """Read again from where the last commit stands: a batch was dropped."""
        self._gathered, self._bytes = [], 0
        again = [TopicPartition(self._topic, p, at) for p, at in self.positions.items()]
        if again:
            self._consumer.incremental_unassign(again)
            self._consumer.incremental_assign(again)

    def gather(self, interrupted: Callable[[], bool]) -> list[Record]:
        """Phase 1: until there are `batch` records or `batch-bytes`, or `wait` after the first one.
        Nothing where `interrupted`; what was gathered stays for the next call."""
        while not interrupted():
            left = self._table.batch - len(self._gathered)
            for message in self._consumer.consume(left, 0) if left else []:
                self._take(message)
            if self._is_full() or (self._gathered and monotonic_ns() >= self._due_ns):
                found, self._gathered, self._bytes = self._gathered, [], 0
                return found
            first = self._consumer.poll(_SLICE_SECONDS)
            if first is not None:
                self._take(first)
            self._commit_again()
        return []

    def _is_full(self) -> bool:
        whole = len(self._gathered) >= self._table.batch
        return whole or self._bytes >= self._table.batch_bytes

    def _take(self, message: Message) -> None:
        error = message.error()
        partition, offset = message.partition(), message.offset()
        if error is not None:
            self.fault = told(error)
            return
        self.fault = ""
        if partition is None or offset is None or partition not in self.positions:
            return
        if not self._gathered:
            self._due_ns = monotonic_ns() + round(self._table.wait * NS)
        record = _record(message, partition, offset)
        self._gathered.append(record)
        self._bytes += _size(record)

    def done(self, records: Iterable[Record]) -> None:
        """The sink has them: what is committed next."""
        for each in records:
            self.positions[each.partition] = each.offset + 1

    def _not_committed(self) -> list[TopicPartition]:
        return [
            TopicPartition(self._topic, p, at)
            for p, at in self.positions.items()
            if self._committed.get(p) != at and at >= 0
        ]

    def commit(self) -> bool:
        """False: Kafka did not take it; the positions stay, and go with the next commit."""
        moved = self._not_committed()
        if not moved:
            return True
        try:
            for each in self._consumer.commit(offsets=moved, asynchronous=False) or []:
                if each.error is not None:
                    raise KafkaException(each.error)
        except KafkaException as error:
            self.fault = f"offsets are not committed: {told(error)}"
            log.warning("%s", self.fault)
            return False
        for each in moved:
            self._committed[each.partition] = each.offset
        self.fault = ""
        return True

    def _commit_again(self) -> None:
        if monotonic_ns() >= self._recommit_ns:
            self._recommit_ns = monotonic_ns() + _RECOMMIT_NS
            self._committed.clear()
            self.commit()

    def pause(self) -> None:
        """Nothing is to be done; the client is kept alive, and joins in rebalances. No more is kept
        than a batch."""
        if self._is_full():
            self.rewind()
        message = self._consumer.poll(0)
        if message is not None:
            self._take(message)
        time.sleep(_SLICE_SECONDS)

    def close(self) -> None:
        self._consumer.close()

    def _failed(self, error: object) -> None:
        self.fault = str(error)


def _pairs(headers: Any) -> list[tuple[str, str | bytes | None]]:
    """confluent-kafka types them as they may be given to it; they come as a list."""
    return list(headers or [])


def _size(record: Record) -> int:
    return len(record.value or b"") + len(record.key or b"")


def _record(message: Message, partition: int, offset: int) -> Record:
    kind, milliseconds = message.timestamp()
    key, value = message.key(), message.value()
    headers = tuple(
        (name, each.encode() if isinstance(each, str) else each)
        for name, each in _pairs(message.headers())
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
