"""What Kafka and nsqd have kept, read to its end: the numbers in JSON bodies, {"n": ...}."""

import json
import socket

from confluent_kafka import Consumer, TopicPartition

from srtm.nsq.commands import MAGIC_V2, fin, rdy, sub
from srtm.nsq.frames import MESSAGE, FrameReader, parse_message
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
    host, _, port = address.rpartition(":")
    found: list[int] = []
    reader = FrameReader(1 << 22)
    with socket.create_connection((host, int(port)), _QUIET_SECONDS) as sock:
        sock.sendall(MAGIC_V2 + sub(topic, channel) + rdy(500))
        try:
            while data := sock.recv(1 << 16):
                for frame in reader.feed(data):
                    if frame.kind == MESSAGE:
                        message = parse_message(frame.data)
                        found.append(int(json.loads(message.body)["n"]))
                        sock.sendall(fin(message.id))
        except TimeoutError:
            return found
    raise UnavailableError(f"nsqd {address} ends the connection of its reader")
