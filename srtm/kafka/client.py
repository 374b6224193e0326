"""What every client of librdkafka is told, and its errors in words."""

import logging
import re
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from srtm.kafka.file import KafkaTable
from srtm.text.errors import UsageError

_quiet = logging.getLogger("srtm.librdkafka")
_quiet.setLevel("CRITICAL")
"""What it would log comes as errors of calls too."""
MAKES_NONE = {"allow.auto.create.topics": False}
"""Settings of a client that produces or asks: a Kafka that makes topics by itself, as it does by
default, would make one anew that was just deleted, and not as it was."""

NOT_THERE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION})
"""codes of a partition that stands, with auto.offset.reset=error: the next offset is not there"""
AWAY = frozenset({KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN})
"""codes of a Kafka that does not answer"""


def client_settings(kafka: KafkaTable, client_id: str, error_cb: Any = None) -> dict[str, Any]:
    return {
        **({"error_cb": error_cb} if error_cb else {}),
        "client.id": client_id,
        "reconnect.backoff.max.ms": 1000,
        "topic.metadata.refresh.interval.ms": 10_000,
        **kafka.settings,
        "bootstrap.servers": kafka.bootstrap_servers,
        "logger": _quiet,
    }


def refuse_settings(
    kafka: KafkaTable, where: str, producer: Mapping[str, Any], consumer: Any = Consumer
) -> None:
    """Raises UsageError where librdkafka would not take them. producer: those that the program
    gives its own one; consumer: the kind that it has"""
    settings = client_settings(kafka, "check")
    try:
        Producer({**settings, **producer})
        consumer({**settings, "group.id": "check"}).close()
    except KafkaException as error:
        raise UsageError(f"{where}: [kafka.settings]: {error.args[0].str()}") from None
    except (TypeError, ValueError) as error:
        raise UsageError(f"{where}: [kafka.settings]: {error}") from None


_RIGHTS = "its user needs an ACL for that (kafka-acls.sh --add)"
_LOGIN = "look at sasl.* and ssl.* in [kafka.settings]"
_REMEDIES = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: _RIGHTS,
    KafkaError.GROUP_AUTHORIZATION_FAILED: _RIGHTS,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: _RIGHTS,
    KafkaError.SASL_AUTHENTICATION_FAILED: _LOGIN,
    KafkaError._AUTHENTICATION: _LOGIN,
    KafkaError._SSL: _LOGIN,
}
"""of what a person can mend: code -> how"""


def told(error: Exception | KafkaError) -> str:
    """The error as one line, with Kafka's name for it, and the remedy where there is one."""
    found = error.args[0] if isinstance(error, KafkaException) else error
    if isinstance(found, KafkaError):
        remedy = _REMEDIES.get(found.code(), "")
        return f"{found.str()} ({found.name()})" + (f"; {remedy}" if remedy else "")
    return str(found)


class LastFault:
    """An `error_cb` that keeps what librdkafka said last of a connection, which says more than the
    error of a call (`Broker transport failure`)."""

    def __init__(self) -> None:
        self.text = ""

    def __call__(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self.text = " ".join(_DECORATION.sub("", error.str()).split())


_DECORATION = re.compile(r"^\S+/(bootstrap|\d+): |ipv[46]#| \(after \d+ms in state .*\)$")


def away(kafka: KafkaTable, error: Exception | KafkaError, fault: str = "") -> str:
    """Kafka does not answer: where, what failed, how to mend it. fault: of `LastFault`."""
    return (
        f"Kafka at {kafka.bootstrap_servers} does not answer: {fault or told(error)}; is it running"
        " there? look at bootstrap-servers of [kafka], and at security.protocol in [kafka.settings]"
    )
