"""A Kafka share group under `srtm autoscale run`."""

from collections import Counter
from pathlib import Path
from typing import Any

from tests.support.autoscaled import Autoscaled
from tests.support.kafka import Kafka
from tests.support.servers import Servers, free_port

SETTINGS = {
    "group_share_min_heartbeat_interval_ms": "300",
    "group_share_heartbeat_interval_ms": "300",
    "group_share_assignment_interval_ms": "0",
    "group_share_min_session_timeout_ms": "3000",
    "group_share_session_timeout_ms": "3000",
    "group_share_min_record_lock_duration_ms": "1000",
    "group_share_record_lock_duration_ms": "3000",
}
"""of a Kafka whose members of share groups beat every 300 ms, are missed after 3 s, and have a
record for 3 s"""


class ShareGroup(Autoscaled):
    def __init__(self, kafka: Kafka, servers: Servers, topic: str) -> None:
        folder = servers.folder / topic
        folder.mkdir()
        self.kafka = kafka
        self.topic = topic
        defaults: dict[str, dict[str, Any]] = {
            "kafka": {"bootstrap-servers": kafka.address, "group-type": "share"},
            "group": {
                "topic": topic,
                "id": f"{topic}-workers",
                "slo": "0.99@500ms",
                "mu": 500,
                "interval": "300ms",
                "policy": "closer1",
                "max": 4,
            },
            "consumer": {
                "process": "work:handle",
                "sink": "callback",
                "callback": "work:keep",
                "batch": 20,
                "batch-timeout": "2500ms",
            },
        }
        super().__init__(servers, folder, f"127.0.0.1:{free_port()}", defaults)

    def produce(self, count: int) -> None:
        """Ids that nobody has had yet."""
        values: list[bytes | None] = [b"%d" % (self.sent + n) for n in range(count)]
        self.kafka.produce(self.topic, values)
        self.sent += count

    def ids(self) -> Counter[str]:
        return Counter(id_ for *_, id_ in self.lines())

    def wait_kept(self, seconds: float = 60) -> None:
        """Until each id that was sent is in a sink."""
        self.wait(lambda: {str(n) for n in range(self.sent)} <= self.ids().keys(), "kept", seconds)

    def wait_consumers(self, count: int, seconds: float = 60) -> None:
        """Until so many are there, and nobody starts or leaves."""

        def there() -> bool:
            found = self.stats()
            quiet = not found.get("starting") and not found.get("leaving")
            return found.get("consumers") == count and quiet

        self.wait(there, f"{count} consumers", seconds)

    def stalled(self) -> list[int]:
        """Processes of consumers that have a record in hand, and wait."""
        return [int(Path(each).name.rpartition("-")[2]) for each in self.folder.glob("stalled-*")]


def share_group(
    kafka: Kafka, servers: Servers, topic: str, partitions: int = 2, **tables: dict[str, Any]
) -> ShareGroup:
    kafka.create(topic, partitions)
    found = ShareGroup(kafka, servers, topic)
    found.write(**tables)
    return found
