"""`[kafka]` for kafka-python, whose settings have other names than librdkafka's."""

import logging
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer

from srtm.kafka.file import KafkaTable
from srtm.text.errors import UsageError

_NAMES = {
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "sasl.mechanisms": "sasl_mechanism",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
    "fetch.wait.max.ms": "fetch_max_wait_ms",
    "max.partition.fetch.bytes": "max_partition_fetch_bytes",
}
"""librdkafka's name -> kafka-python's, where more differs than dots and underscores"""
_REACH = ("sasl.", "security.", "ssl.")
"""begins of the names of settings without which Kafka may not be reached"""


def python_settings(kafka: KafkaTable) -> dict[str, Any]:
    """The settings of a consumer of kafka-python. Raises UsageError."""
    found: dict[str, Any] = {
        "bootstrap_servers": kafka.bootstrap_servers.split(","),
        "reconnect_backoff_max_ms": 1000,
        "metrics_enabled": False,
    }
    for name, value in kafka.settings.items():
        own = _NAMES.get(name, name.replace(".", "_"))
        if own not in KafkaConsumer.DEFAULT_CONFIG:
            raise UsageError(
                f"[kafka.settings] {name}: kafka-python, which handover assignor uses, has no "
                "such setting"
            )
        found[own] = value
    return found


def admin_settings(kafka: KafkaTable) -> dict[str, Any]:
    """`python_settings` without those that an admin client does not know. Raises UsageError."""
    found = python_settings(kafka)
    return {name: each for name, each in found.items() if name in KafkaAdminClient.DEFAULT_CONFIG}


def asking_settings(kafka: KafkaTable) -> dict[str, Any]:
    """The settings of an admin client that asks beside consumers of librdkafka: how Kafka is
    reached; what says how records are fetched is passed over. Raises UsageError."""
    found: dict[str, Any] = {
        "bootstrap_servers": kafka.bootstrap_servers.split(","),
        "reconnect_backoff_max_ms": 1000,
    }
    for name, value in kafka.settings.items():
        own = _NAMES.get(name, name.replace(".", "_"))
        if not name.startswith(_REACH):
            continue
        if own in KafkaAdminClient.DEFAULT_CONFIG:
            found[own] = value
        else:
            raise UsageError(
                f"[kafka.settings] {name}: kafka-python, which asks for a share group's lag, has "
                "no such setting"
            )
    return found


def quiet() -> None:
    """What it would log comes as errors of calls too."""
    logging.getLogger("kafka").setLevel("CRITICAL")
