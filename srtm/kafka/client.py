"""What every client of librdkafka is told, and its errors in words."""

import logging
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from srtm.kafka.file import KafkaTable

_quiet = logging.getLogger("srtm.librdkafka")
_quiet.setLevel("CRITICAL")
"""What it would log comes as errors of calls too."""


def client_settings(kafka: KafkaTable, client_id: str) -> dict[str, Any]:
    return {
        "client.id": client_id,
        "reconnect.backoff.max.ms": 1000,
        "topic.metadata.refresh.interval.ms": 10_000,
        **kafka.settings,
        "bootstrap.servers": kafka.bootstrap_servers,
        "logger": _quiet,
    }


def told(error: Exception | KafkaError) -> str:
    """As one line, with Kafka's name for it."""
    found = error.args[0] if isinstance(error, KafkaException) else error
    if isinstance(found, KafkaError):
        return f"{found.str()} ({found.name()})"
    return str(found)
