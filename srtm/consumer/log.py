"""The group's own partition: what is said is written to it, and read from it in order."""

import logging

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from srtm.consumer.file import GroupFile
from srtm.consumer.wire import Command, Leader, Note, Report, Word, decode, encode, tombstones
from srtm.errors import UnavailableError
from srtm.kafka.client import client_settings, told

log = logging.getLogger("srtm.consumer")

_ASK_SECONDS = 10.0
UNCOMPACTED_SECONDS = 600.0
"""Readers that are late by less see every record, fences among them."""
_TOPIC = {
    "cleanup.policy": "compact",
    "min.compaction.lag.ms": str(round(UNCOMPACTED_SECONDS * 1e3)),
    "segment.bytes": str(16 << 20),
    "segment.ms": str(600_000),
    "min.cleanable.dirty.ratio": "0.1",
}


def make_topic(file: GroupFile) -> None:
    """Once for each group; the first who comes makes it. Raises UnavailableError."""
    admin = AdminClient(client_settings(file.kafka, f"srtm-{file.group.id}"))
    name = file.group.metadata
    where = f"Kafka at {file.kafka.bootstrap_servers}"
    try:
        found = admin.list_topics(name, timeout=_ASK_SECONDS).topics.get(name)
        if found and found.error is None and found.partitions:
            return
        new = NewTopic(name, 1, -1, config=_TOPIC)
        admin.create_topics([new], request_timeout=_ASK_SECONDS)[name].result(_ASK_SECONDS)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise UnavailableError(f"{where}: topic {name}: {told(error)}") from None
    except TimeoutError:
        raise UnavailableError(f"{where} does not make topic {name}") from None


def topic_is_there(file: GroupFile) -> bool:
    """Raises UnavailableError."""
    admin = AdminClient(client_settings(file.kafka, f"srtm-{file.group.id}"))
    try:
        found = admin.list_topics(timeout=_ASK_SECONDS).topics
    except KafkaException as error:
        raise UnavailableError(
            f"Kafka at {file.kafka.bootstrap_servers} does not answer: {told(error)}"
        ) from None
    return file.group.metadata in found


class GroupLog:
    """Reads from the beginning. Writes are in order, and given up after a lease: what is older than
    that helps nobody."""

    def __init__(self, file: GroupFile, client: str) -> None:
        self.caught_up = False
        """Has all been read that was there at the start?"""
        self.begun_anew = False
        """Set where offsets went back: the topic was made anew. Whoever sees it sets it back."""
        self._group = f"{file.group.id}/{file.group.topic}"
        self._topic = file.group.metadata
        self._next = 0
        self._end: int | None = None
        settings = client_settings(file.kafka, client)
        self._producer = Producer(
            {
                **settings,
                "acks": "all",
                "linger.ms": 0,
                "max.in.flight.requests.per.connection": 1,
                "message.timeout.ms": max(round(file.group.lease * 1e3), 1000),
            }
        )
        self._consumer = Consumer(
            {
                **settings,
                "group.id": file.group.id,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 500,
                "fetch.queue.backoff.ms": 5,
                "enable.partition.eof": False,
            }
        )
        self._consumer.assign([TopicPartition(self._topic, 0, OFFSET_BEGINNING)])

    def write(self, word: Leader | Command | Report | Note) -> None:
        """Any thread; it comes back by `read`, or never."""
        key, value = encode(self._group, word)
        self._produce(key, value)

    def end(self, member: str) -> None:
        """Nothing of the member is kept."""
        for key in tombstones(self._group, member):
            self._produce(key, None)

    def _produce(self, key: bytes, value: bytes | None) -> None:
        try:
            self._producer.produce(self._topic, value, key, 0)
        except BufferError:
            log.warning("Kafka takes nothing: a word to the group is dropped")
        self._producer.poll(0)

    def read(self, seconds: float) -> list[Word]:
        """What came, at most `seconds` after the call."""
        first = self._consumer.poll(seconds)
        messages = [] if first is None else [first, *self._consumer.consume(1000, 0)]
        self._producer.poll(0)
        words: list[Word] = []
        for message in messages:
            offset = message.offset()
            if message.error() or offset is None:
                continue
            if offset < self._next:
                self.begun_anew = True
                words.clear()
            self._next = offset + 1
            word = decode(self._group, _bytes(message.key()), _bytes(message.value()))
            if word is not None:
                words.append(word)
        if not self.caught_up:
            self._look_for_the_end()
        return words

    def _look_for_the_end(self) -> None:
        partition = TopicPartition(self._topic, 0)
        try:
            if self._end is None:
                _, self._end = self._consumer.get_watermark_offsets(partition, 1.0)
            (position,) = self._consumer.position([partition])
        except KafkaException:
            return
        # Where compaction took the last records the position goes on to the end all the same.
        self.caught_up = self._next >= self._end or position.offset >= self._end

    def close(self, seconds: float = 2.0) -> None:
        """What is on its way is waited for."""
        self._producer.flush(seconds)
        self._consumer.close()


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
