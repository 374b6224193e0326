"""Records of a share group that failed too often, on their way to the dead-letter topic."""

from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from srtm.consumer.share_file import ShareFile
from srtm.consumer.topic import make_dead_letter_topic
from srtm.kafka.client import MAKES_NONE, client_settings, told
from srtm.kafka.headers import headers_of
from srtm.text.errors import UnavailableError

_SEND_SECONDS = 5.0
_LOOK_SECONDS = 1.0
_MOST_BYTES = 100 << 20
"""The broker and the topic say how large a record may be."""
_TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD})


class DeadLetters:
    """Copies with key, value and headers, and with headers that say where a record was and why it
    came here: srtm-topic, srtm-partition, srtm-offset, srtm-deliveries, srtm-reason."""

    def __init__(self, file: ShareFile, client: str) -> None:
        """The topic is made where it is not there. Raises UnavailableError."""
        self._topic = file.dead_letter_topic
        make_dead_letter_topic(file)
        self._producer = Producer(
            {
                **client_settings(file.kafka, client),
                **MAKES_NONE,
                "acks": "all",
                "enable.idempotence": True,
                "message.timeout.ms": round(_SEND_SECONDS * 1e3),
                "message.max.bytes": _MOST_BYTES,
            }
        )

    def fault(self) -> str:
        """Why Kafka does not answer; "" where it does."""
        try:
            self._producer.list_topics(self._topic, timeout=_LOOK_SECONDS)
        except KafkaException as error:
            return told(error)
        return ""

    def bury(self, message: Message, reason: str) -> None:
        """Return once Kafka has it. Of a record that is too large for the topic it has all but the
        value. Raises UnavailableError where Kafka does not take it."""
        headers = list(headers_of([message])[0] or [])
        headers += [
            (name, value.encode(errors="backslashreplace"))
            for name, value in _where(message, reason)
        ]
        value = message.value()
        code = self._send(message.key(), value, headers)
        if code is not None and code.code() in _TOO_LARGE:
            headers.append(("srtm-bytes", str(len(value or b"")).encode()))
            code = self._send(message.key(), None, headers)
        if code is not None:
            raise UnavailableError(f"dead letters to topic {self._topic}: {told(code)}")

    def _send(self, key: Any, value: Any, headers: list[Any]) -> KafkaError | None:
        """The error, where there is one."""
        said: list[KafkaError | None] = []
        try:
            self._producer.produce(
                self._topic, value, key, headers=headers, on_delivery=lambda e, _: said.append(e)
            )
            self._producer.flush(2 * _SEND_SECONDS)
        except KafkaException as error:
            found: KafkaError = error.args[0]
            return found
        except BufferError:
            return KafkaError(KafkaError._QUEUE_FULL)
        return said[-1] if said else KafkaError(KafkaError._TIMED_OUT)


def _where(message: Message, reason: str) -> list[tuple[str, str]]:
    return [
        ("srtm-topic", message.topic() or ""),
        ("srtm-partition", str(message.partition())),
        ("srtm-offset", str(message.offset())),
        ("srtm-deliveries", str(message.delivery_count())),
        ("srtm-reason", reason[:1000]),
    ]
