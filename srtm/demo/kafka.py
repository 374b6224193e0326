"""The demo's messages in Kafka: brought there by the bridge once the load is over."""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from srtm.demo.load import TOPIC
from srtm.deployment.document import DeployedBroker
from srtm.http.client import request
from srtm.kafka.server import KafkaServer, create_topic, missing
from srtm.text.errors import UnavailableError

_CHANNEL = "kafka"
_SECONDS = 40.0
_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Carried:
    """How many of `sent` messages are in Kafka, each counted once, and the seconds that this
    took."""

    sent: int
    in_kafka: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.in_kafka:,} of {self.sent:,} in Kafka, brought there by the bridge in "
            f"{self.seconds:.1f} s"
        )


def left_out() -> str:
    """Why there is no Kafka in this demo; "" where there is."""
    try:
        import confluent_kafka  # noqa: F401
    except ImportError:
        return "Kafka's client is not installed: pip install 'srtm[kafka]'"
    return missing()


def open_channels(brokers: Sequence[DeployedBroker]) -> None:
    """They keep the messages of the load for the bridge, which runs after it: it would be measured
    otherwise. Raises UnavailableError."""
    for broker in brokers:
        for path in (
            f"/topic/create?topic={TOPIC}",
            f"/channel/create?topic={TOPIC}&channel={_CHANNEL}",
        ):
            answer = request(broker.nsqd_http_socket, "POST", path)
            if answer.status != 200:
                raise UnavailableError(f"nsqd of {broker.name}: {path}: {answer.error}")


def carry(brokers: Sequence[DeployedBroker], sent: int) -> Carried:
    """Carry the messages from the channels of all brokers to a Kafka of its own. Raises
    SrtmError."""
    from srtm.bridge.file import KafkaTable, Route
    from srtm.bridge.nsq_to_kafka import NsqToKafka

    with tempfile.TemporaryDirectory(prefix="srtm-kafka-") as folder:
        server = KafkaServer(Path(folder))
        try:
            server.start()
            create_topic(server.address, TOPIC)
            route = Route.model_validate(
                {
                    "from": f"nsq:{TOPIC}/{_CHANNEL}",
                    "to": f"kafka:{TOPIC}",
                    "nsqd": [str(broker.tcp_address) for broker in brokers],
                }
            )
            kafka = KafkaTable(bootstrap_servers=server.address)
            runner = NsqToKafka(route, kafka, "demo", drain_seconds=5.0)
            began = time.monotonic()
            runner.start()
            until = began + _SECONDS
            while runner.figures.counts["delivered_count"] < sent and time.monotonic() < until:
                time.sleep(_POLL_SECONDS)
            seconds = time.monotonic() - began
            runner.ask_stop()
            runner.join(10)
            return Carried(sent, _count(server.address), seconds)
        finally:
            server.kill()


def _count(address: str) -> int:
    """Messages that are there: copies of one are one."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": address, "group.id": "demo", "log_level": 0})
    try:
        where = TopicPartition(TOPIC, 0, 0)
        _, high = consumer.get_watermark_offsets(where, 10)
        consumer.assign([where])
        found = set()
        at = 0
        until = time.monotonic() + _SECONDS
        while at < high and time.monotonic() < until:
            for record in consumer.consume(1000, 0.2):
                if record.error() is None:
                    headers = dict(record.headers() or [])
                    found.add((headers["nsq-host"], headers["nsq-message-id"]))
                    at = (record.offset() or 0) + 1
        return len(found)
    finally:
        consumer.close()
