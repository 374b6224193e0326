"""The Kafka side of a route from NSQ, and the dead-letter topic of every route: one producer."""

import logging
from collections.abc import Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from srtm.bridge.file import KafkaTable
from srtm.kafka.client import LastFault, away, client_settings
from srtm.kafka.cut_off import CUT_OFF, CutOff

log = logging.getLogger("srtm.bridge")

_DEFAULT_MAX_BYTES = 1_048_588  # Kafka's message.max.bytes, where the topic is not there to ask
_RECORD_OVERHEAD_BYTES = 512
"""Bytes of a batch of one record beside the body: 61 bytes of head, lengths, and the bridge's
headers with names of 249 characters."""
_ASK_SECONDS = 5.0
_BATCH_BYTES = 1_000_000  # librdkafka's own batch.size

_CUT_KEY_BYTES = 1024

Headers = Sequence[tuple[str, bytes | str | None]]

POISON = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.POLICY_VIOLATION,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError._BAD_MSG,
    }
)
"""Kafka's errors that are the message's own fault: no second try helps."""


LARGEST = 256 << 20
"""Bytes, for dead letters: their topic knows its limit."""


class KafkaSink:
    """A producer that gives nothing up: acks of all, in order, for as long as it takes."""

    def __init__(
        self,
        kafka: KafkaTable,
        client_id: str,
        *,
        linger_ms: float,
        max_messages: int,
        max_msg_size: int,
        alone: bool = False,
    ) -> None:
        """alone: each message is a batch, as a topic that refuses one message refuses its whole
        batch. Raises KafkaException for settings that librdkafka does not know."""
        self._kafka = kafka
        self._client_id = client_id
        self.fatal = ""
        self._last = LastFault()
        self._limits: dict[str, int] = {}
        self._settings = {
            **client_settings(kafka, client_id),
            "acks": "all",
            "enable.idempotence": True,
            "message.timeout.ms": 0,  # it waits for Kafka, and order with it
            "message.max.bytes": max_msg_size + 64 * 1024,
            "linger.ms": linger_ms,
            "queue.buffering.max.messages": 2 * max_messages + 1000,
            "queue.buffering.max.kbytes": 2_097_151,
            # How long a topic may be unknown before its messages are given back to nsqd.
            "topic.metadata.propagation.max.ms": 3000,
            "error_cb": self._failed,
        }
        if alone:
            self._settings["batch.num.messages"] = 1
        self._cut_off = CutOff(self._settings)
        self._producer = Producer(self._settings)
        self.produce = self._producer.produce
        self.poll = self._producer.poll

    def __len__(self) -> int:
        return len(self._producer)

    def flush(self, seconds: float) -> int:
        """How many have no report after that."""
        return self._producer.flush(seconds)

    def renew(self, why: str) -> None:
        """Start another producer, as after a fatal error: what has no report gets one, and the new
        producer goes on."""
        log.warning("Kafka's producer is started anew: %s", why)
        self._producer.purge()
        self._producer.flush(1)
        self.fatal = ""
        self._producer = Producer(self._settings)
        self.produce = self._producer.produce
        self.poll = self._producer.poll

    def _failed(self, error: KafkaError) -> None:
        if error.fatal():
            self.fatal = error.str()
        self._last(error)

    def look(self) -> None:
        """Call it while Kafka is silent. A producer that is cut off is of no use any more."""
        if self._cut_off.look(self._producer):
            self.fatal = CUT_OFF

    def reached(self) -> str:
        """Why Kafka cannot be asked; "" when it can."""
        try:
            self._producer.list_topics(timeout=_ASK_SECONDS)
        except KafkaException as error:
            self.poll(0)
            return away(self._kafka, error, self._last.text)
        return ""

    def away(self) -> str:
        """What to tell people when Kafka has not answered for long."""
        error = KafkaError(KafkaError._TIMED_OUT)
        return away(self._kafka, error, self._last.text or "messages wait for its word")

    def limit(self, topic: str, anew: bool = False) -> int:
        """Bytes of the largest body that the topic takes, as it says itself."""
        if anew or topic not in self._limits:
            admin = AdminClient(client_settings(self._kafka, self._client_id))
            found = setting_of(topic, "max.message.bytes", admin)
            if not found.isdecimal():
                return _DEFAULT_MAX_BYTES - _RECORD_OVERHEAD_BYTES
            self._limits[topic] = int(found) - _RECORD_OVERHEAD_BYTES
        return max(self._limits[topic], 0)

    def fit_batches(self, topic: str) -> None:
        """A topic refuses a whole batch that is over its limit, so batches stay under it. Where
        that is new, what has no report is given one (see `renew`)."""
        size = min(max(self.limit(topic, anew=True), 1), _BATCH_BYTES)
        if size < self._settings.get("batch.size", _BATCH_BYTES):
            self._settings["batch.size"] = size
            self.renew(f"{topic} takes batches of {size:,} bytes at most")

    def dead_letter(
        self,
        topic: str,
        body: bytes | None,
        key: bytes | None,
        headers: Headers,
        theirs: Headers,
        reason: str,
        on_delivery: Any,
        refusals: int = 0,
    ) -> bool:
        """Produce a dead letter with its reason, and `theirs` beside our own headers; True when it
        had to be cut short. refusals: how often it was too big in spite of that: then only our
        headers go with it, and half as much of its body each time. Raises KafkaException and
        BufferError."""
        given = [*headers, ("srtm-reason", reason)]
        room = self.limit(topic) - _size_of(given)
        short = False
        if refusals or _size_of(theirs) + len(key or b"") > room:
            short = bool(theirs) or len(key or b"") > _CUT_KEY_BYTES
            key = key[:_CUT_KEY_BYTES] if key else key
            if theirs:
                given.append(("srtm-cut-headers", str(len(theirs))))
        else:
            given = [*theirs, *given]
        room = max(self.limit(topic) - _size_of(given) - len(key or b""), 0) >> refusals
        if body is not None and len(body) > room:
            short = True
            given.append(("srtm-cut-from", str(len(body))))
            body = body[:room]
        self.produce(topic, body, key, headers=given, on_delivery=on_delivery)
        return short


def setting_of(topic: str, name: str, admin: AdminClient) -> str:
    """A setting of Kafka's topic; "" where that is not there, or not for us to see."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    try:
        found = admin.describe_configs([resource], request_timeout=_ASK_SECONDS)[resource]
        return str(found.result(_ASK_SECONDS)[name].value)
    except (KafkaException, KeyError, TimeoutError):
        return ""


def _size_of(headers: Headers) -> int:
    """Bytes at most: two lengths each, beside name and value."""
    return sum(len(name.encode()) + len(value or b"") + 10 for name, value in headers)
