"""The bytes that a topic's partitions take on the brokers' disks."""

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from srtm.consumer.file import GroupFile
from srtm.kafka.python_client import admin_settings, quiet
from srtm.text.errors import UnavailableError

_ASK_MS = 5_000


class Sizes:
    """Asked of every broker; librdkafka has no such question."""

    def __init__(self, file: GroupFile) -> None:
        quiet()
        self._topic = file.group.topic
        bounds = {"request_timeout_ms": _ASK_MS, "bootstrap_timeout_ms": _ASK_MS}
        self._settings = {**admin_settings(file.kafka), **bounds}
        self._admin: KafkaAdminClient | None = None

    def read(self) -> dict[int, int]:
        """Partition -> bytes; of several replicas the largest, which has all. Raises
        UnavailableError."""
        try:
            if self._admin is None:
                self._admin = KafkaAdminClient(**self._settings)
            brokers = self._admin.describe_log_dirs([self._topic])
        except (KafkaError, OSError) as error:
            raise UnavailableError(f"log dirs of {self._topic}: {error}") from None
        found: dict[int, int] = {}
        for broker in brokers:
            for folder in broker["log_dirs"]:
                for topic in folder["topics"]:
                    for each in topic["partitions"]:
                        partition, size = each["partition_index"], each["partition_size"]
                        found[partition] = max(found.get(partition, 0), size)
        return found
