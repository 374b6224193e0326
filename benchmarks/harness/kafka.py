"""A Kafka for a benchmark, and its topics."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from srtm.kafka.server import KafkaServer, create_topic, kafka

TOPIC = "events"
"""of `events_kafka`"""


@contextmanager
def events_kafka(folder: Path, partitions: int, heartbeat_ms: int) -> Iterator[KafkaServer]:
    """A Kafka with the topic `events`, whose group members tell of themselves as often as that."""
    beat = str(heartbeat_ms)
    settings = {
        "group.consumer.heartbeat.interval.ms": beat,
        "group.consumer.min.heartbeat.interval.ms": beat,
        "group.share.heartbeat.interval.ms": beat,
        "group.share.min.heartbeat.interval.ms": beat,
        # Tests want a broker that is missed soon; here it would be put out where cores are short.
        "broker.session.timeout.ms": "30000",
        "broker.heartbeat.interval.ms": "2000",
    }
    with kafka(folder, settings) as server:
        create_topic(server.address, TOPIC, partitions)
        yield server
