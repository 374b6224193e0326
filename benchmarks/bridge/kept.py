"""What Kafka and nsqd have kept, read to its end: the numbers in JSON bodies, {"n": ...}."""

import json

from confluent_kafka import Consumer, TopicPartition

from srtm.nsq.blocking import Blocking
from srtm.nsq.commands import rdy, sub
from srtm.text.errors import UnavailableError

_QUIET_SECONDS = 5.0


def numbers_in_kafka(address: str, topic: str, partitions: int) -> list[int]:
    """Partition by partition; a key is in one partition only."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "judge", "log_level": 0})
    found = []
    for partition in range(partitions):
        where = TopicPartition(topic, partition, 0)
        _, high = consumer.get_watermark_offsets(where, 10)
        consumer.assign([where])
        at = 0
        while at < high:
            for record in consumer.consume(1000, 0.2):
                if record.error() is None:
                    found.append(int(json.loads(record.value() or b"")["n"]))
                    at = (record.offset() or 0) + 1
    consumer.close()
    return found


def uncommitted(address: str, topic: str, partitions: int, group: str) -> int:
    """How many offsets of the topic the group has not committed yet. Raises KafkaException where
    Kafka does not answer."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": group, "log_level": 0})
    try:
        places = [TopicPartition(topic, each) for each in range(partitions)]
        left = 0
        for place in consumer.committed(places, timeout=10):
            _, high = consumer.get_watermark_offsets(place, 10)
            left += high - max(place.offset, 0)
        return left
    finally:
        consumer.close()


def numbers_in_nsq(address: str, topic: bytes, channel: bytes) -> list[int]:
    """The numbers that nsqd has, read until nothing more comes: after kill -9 nsqd knows no right
    depth. Raises UnavailableError."""
    found: list[int] = []
    with Blocking(address, {"client_id": "kept"}, _QUIET_SECONDS) as link:
        link.identify().ask(sub(topic, channel))
        link.write(rdy(500))
        try:
            while True:
                found += [int(json.loads(each.body)["n"]) for each in link.messages()]
        except TimeoutError:
            return found
        except OSError as error:
            raise UnavailableError(f"the reader's connection to nsqd: {error}") from None
