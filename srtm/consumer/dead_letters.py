"""Records of a share group that failed too often, on their way to the dead-letter topic."""

from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from srtm.consumer.share_file import ShareFile
from srtm.consumer.topic import make_dead_letter_topic
from srtm.kafka.client import MAKES_NONE, client_settings, told
from srtm.kafka.headers import headers_of
from srtm.text.errors import UnavailableError

_SEND_SECONDS = 5.0
_LOOK_SECONDS = 1.0


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
            }
        )

    def fault(self) -> str:
        """Why Kafka does not answer; "" where it does."""
        try:
            self._producer.list_topics(self._topic, timeout=_LOOK_SECONDS)
        except KafkaException as error:
            return told(error)
        return ""

    def bury(self, records: Sequence[tuple[Message, str]]) -> None:
        """Return once Kafka has them all. records: each with why it is one. Raises UnavailableError
        where Kafka does not take them."""
        failed: list[KafkaError] = []

        def done(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failed.append(error)

        try:
            for message, reason in records:
                headers = list(headers_of([message])[0] or [])
                headers += [(name, value.encode()) for name, value in _where(message, reason)]
                self._producer.produce(
                    self._topic, message.value(), message.key(), headers=headers, on_delivery=done
                )
            left = self._producer.flush(2 * _SEND_SECONDS)
        except (KafkaException, BufferError) as error:
            raise UnavailableError(f"dead letters to topic {self._topic}: {told(error)}") from None
        if failed or left:
            why = told(failed[0]) if failed else "Kafka does not answer"
            raise UnavailableError(f"dead letters to topic {self._topic}: {why}")


def _where(message: Message, reason: str) -> list[tuple[str, str]]:
    return [
        ("srtm-topic", message.topic() or ""),
        ("srtm-partition", str(message.partition())),
        ("srtm-offset", str(message.offset())),
        ("srtm-deliveries", str(message.delivery_count())),
        ("srtm-reason", reason[:1000]),
    ]
