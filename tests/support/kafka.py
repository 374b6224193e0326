"""A real Kafka for tests, and what they ask of it."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ClusterMetadata,
    ConfigResource,
    NewTopic,
    OffsetSpec,
)

from srtm.kafka.server import KafkaServer, missing
from tests.support.servers import wait_for

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Record:
    """As a consumer gets it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes]


class Kafka:
    """`server` can be killed and started again."""

    def __init__(self, server: KafkaServer) -> None:
        self.server = server
        self.address = server.address
        self._settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": server.address,
            "log_level": 0,
        }
        self.admin = AdminClient(self._settings)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """It answers nobody meanwhile."""
        self.server.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.server.signal(signal.SIGCONT)

    @contextmanager
    def dead(self) -> Iterator[None]:
        """Killed at once, and started again with its data."""
        self.server.kill()
        try:
            yield
        finally:
            self.server.start()  # with the session of 3 s that lets it deliver again soon

    def create(self, topic: str, partitions: int = 1, **settings: str) -> str:
        """Its name, once a producer finds it; an underscore in a setting's name is a dot."""
        config = {name.replace("_", "."): value for name, value in settings.items()}
        new = NewTopic(topic, partitions, 1, config=config)
        self.admin.create_topics([new])[topic].result(30)
        wait_for(lambda: self.partitions(topic) == partitions, "the topic is there")
        return topic

    def partitions(self, topic: str) -> int:
        """0: there is no such topic."""
        found = _answered(self._metadata).topics.get(topic)
        return len(found.partitions) if found else 0

    def _metadata(self) -> ClusterMetadata:
        """Another client asks after one that was not answered, and may be cut off (see
        srtm.kafka.cut_off)."""
        try:
            return self.admin.list_topics(timeout=10)
        except KafkaException:
            self.admin = AdminClient(self._settings)
            raise

    def leader_epoch(self, topic: str) -> int:
        """Of its first partition; it grows when Kafka is restarted."""
        asked = TopicPartition(topic, 0)
        new = AdminClient(self._settings)  # one that knows an older epoch is refused
        found = _answered(lambda: new.list_offsets({asked: OffsetSpec.latest()})[asked].result(10))
        return found.leader_epoch or 0

    def setting(self, topic: str, name: str) -> str | None:
        asked = ConfigResource("topic", topic)
        return self.admin.describe_configs([asked])[asked].result(10)[name].value

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(10)

    def produce(
        self,
        topic: str,
        values: list[bytes | None],
        keys: list[bytes] | None = None,
        headers: list[tuple[str, bytes]] | None = None,
        partition: int = -1,
    ) -> None:
        # Without idempotence a batch that is sent again comes behind those after it.
        producer = Producer({**self._settings, "enable.idempotence": True, "linger.ms": 5})
        failed: list[object] = []

        def done(error: object, _: object) -> None:
            if error is not None:
                failed.append(error)

        for number, value in enumerate(values):
            key = keys[number] if keys else None
            while True:
                try:
                    producer.produce(
                        topic, value, key, partition, on_delivery=done, headers=headers or []
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(30) == 0
        assert not failed, failed[0]

    def records(self, topic: str) -> list[Record]:
        """All that it holds now, partition by partition."""
        count = self.partitions(topic)
        if not count:
            return []
        consumer = Consumer({**self._settings, "group.id": "reader", "enable.auto.commit": False})
        try:
            wanted: dict[int, int] = {}
            for number in range(count):
                asked = TopicPartition(topic, number)
                low, high = _answered(lambda asked=asked: self._watermarks(asked))  # type: ignore[misc]
                if high > low:
                    wanted[number] = high
            consumer.assign([TopicPartition(topic, each, 0) for each in wanted])
            found: list[Record] = []
            deadline = time.monotonic() + 30
            while wanted:
                assert time.monotonic() < deadline, f"{topic} cannot be read to its end"
                for message in consumer.consume(1000, 0.2):
                    if message.error():
                        continue
                    found.append(_record(message))
                    if found[-1].offset + 1 >= wanted.get(found[-1].partition, 0):
                        wanted.pop(found[-1].partition, None)
            return sorted(found, key=lambda each: (each.partition, each.offset))
        finally:
            consumer.close()

    def _watermarks(self, asked: TopicPartition) -> tuple[int, int]:
        consumer = Consumer({**self._settings, "group.id": "counter"})
        try:
            return consumer.get_watermark_offsets(asked, 5)
        finally:
            consumer.close()

    def count(self, topic: str) -> int:
        """Records that it holds now; 0 while it is made or deleted."""
        try:
            asked = [TopicPartition(topic, each) for each in range(self.partitions(topic))]
            return sum(high - low for low, high in map(self._watermarks, asked))
        except KafkaException:
            return 0

    def committed(self, group: str, topic: str) -> int:
        """Sum over the partitions; what was never committed counts as 0."""
        consumer = Consumer({**self._settings, "group.id": group})
        try:
            asked = [TopicPartition(topic, each) for each in range(self.partitions(topic))]
            found = _answered(lambda: consumer.committed(asked, timeout=10))
            return sum(max(each.offset, 0) for each in found)
        finally:
            consumer.close()


def _answered(ask: Callable[[], Answer], seconds: float = 30.0) -> Answer:
    """A broker that was just killed, frozen or started says for a while that it is not yet one."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _record(message: Message) -> Record:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    key, value = message.key(), message.value()
    assert not isinstance(key, str)
    assert not isinstance(value, str)
    headers = {name: bytes(each or b"") for name, each in message.headers() or []}  # type: ignore[arg-type]
    return Record(partition, offset, key, value, headers)


@contextmanager
def kafka_in(folder: Path, **settings: str) -> Iterator[Kafka]:
    """One that is ready; a skip where Java is missing."""
    why = missing()
    if why:
        pytest.skip(why)
    server = KafkaServer(folder, {name.replace("_", "."): each for name, each in settings.items()})
    try:
        # Kafka fences a broker that stood still for longer, and a client may be cut off from it
        # then (see srtm.kafka.cut_off): what a test freezes only hangs.
        server.start(broker_session_timeout_ms="60000")
        yield Kafka(server)
    finally:
        server.kill()
