"""A Kafka for a benchmark, and its topics."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from srtm.kafka.server import KafkaServer, kafka

TOPIC = "events"
"""of `events_kafka`"""


def create_topic(address: str, topic: str, partitions: int) -> None:
    """A topic of Kafka. Raises KafkaException."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(20)


@contextmanager
def events_kafka(folder: Path, partitions: int, heartbeat_ms: int) -> Iterator[KafkaServer]:
    """A Kafka with the topic `events`, whose group members tell of themselves as often as that."""
    beat = str(heartbeat_ms)
    settings = {
        "group.consumer.heartbeat.interval.ms": beat,
        "group.consumer.min.heartbeat.interval.ms": beat,
        # Tests want a broker that is missed soon; here it would be put out where cores are short.
        "broker.session.timeout.ms": "30000",
        "broker.heartbeat.interval.ms": "2000",
    }
    with kafka(folder, settings) as server:
        create_topic(server.address, TOPIC, partitions)
        yield server
