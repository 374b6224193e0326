"""A Kafka at 127.0.0.1:9092 for a page that takes one for granted, with the topics that are named:
`python -m tests.support.kafka_given TOPIC...`, until it is killed. The file kafka.ready says that
it is there."""

import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from srtm.kafka.server import KafkaServer

LISTENERS = "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="srtm-kafka-") as folder:
        server = KafkaServer(
            Path(folder),
            {
                "listeners": LISTENERS,
                "advertised.listeners": LISTENERS,
                "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
            },
        )
        server.start(wait=False)
        admin = AdminClient({"bootstrap.servers": "127.0.0.1:9092", "log_level": 0})
        for done in admin.create_topics([NewTopic(name, 1, 1) for name in sys.argv[1:]]).values():
            done.result(60)
        Path("kafka.ready").touch()
        while server.alive:
            time.sleep(1)


if __name__ == "__main__":
    main()
