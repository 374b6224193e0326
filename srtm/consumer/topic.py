"""The topic by which a group's controller and consumers speak: made once, and known by its id."""

import logging
from enum import Enum, auto

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewTopic

from srtm.consumer.file import GroupFile
from srtm.consumer.share_file import ShareFile
from srtm.kafka.client import MAKES_NONE, LastFault, away, client_settings, told
from srtm.kafka.cut_off import let_go
from srtm.text.errors import UnavailableError

log = logging.getLogger("srtm.consumer")

_ASK_SECONDS = 10.0
_LOOK_SECONDS = 5.0
"""The time that Kafka has to say which topic there is. Kafka is asked only where nothing is heard;
what was read waits for the answer, so a Kafka that is only slow must be able to give it."""
UNCOMPACTED_SECONDS = 600.0
"""Readers that are late by less see every record, fences among them."""
_TOPIC = {
    "cleanup.policy": "compact",
    "min.compaction.lag.ms": str(round(UNCOMPACTED_SECONDS * 1e3)),
    "segment.bytes": str(16 << 20),
    "segment.ms": str(600_000),
    "min.cleanable.dirty.ratio": "0.1",
}


def make_topic(file: GroupFile) -> None:
    """Make the topic once for each group; the first who comes makes it. Raises UnavailableError."""
    admin = _Admin(file)
    name = file.group.metadata
    where = f"Kafka at {file.kafka.bootstrap_servers}"
    if admin.has(name):
        policy = admin.cleanup_policy(name)
        if policy and "compact" not in policy:
            log.warning(
                "%s: topic %s is not compacted (cleanup.policy=%s): what it says is deleted when "
                "its retention time is over, and the group forgets whose partitions are whose; set "
                "it with kafka-configs.sh --alter --entity-type topics --entity-name %s "
                "--add-config cleanup.policy=compact",
                *(where, name, policy, name),
            )
        return
    admin.make(name, _TOPIC)


def make_dead_letter_topic(file: ShareFile) -> None:
    """Make the topic where it is not there. Raises UnavailableError."""
    admin = _Admin(file)
    if not admin.has(file.dead_letter_topic):
        admin.make(file.dead_letter_topic, {})


def topic_is_there(file: GroupFile) -> bool:
    """Raises UnavailableError."""
    return _Admin(file).has(file.group.metadata)


def require_events(file: GroupFile | ShareFile) -> None:
    """Raises UnavailableError where there is no topic to consume."""
    topic = file.group.topic
    error = _Admin(file).fault_of(topic)
    if error is not None and error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        where = file.kafka.bootstrap_servers
        raise UnavailableError(f"Kafka at {where} has no topic {topic}; create it")


class _Admin:
    def __init__(self, file: GroupFile | ShareFile) -> None:
        self._kafka = file.kafka
        self._last = LastFault()
        settings = client_settings(file.kafka, f"srtm-{file.group.id}", self._last)
        self.client = AdminClient({**settings, **MAKES_NONE})

    def make(self, topic: str, config: dict[str, str]) -> None:
        """Make a topic of one partition, if nobody else is quicker. Raises UnavailableError."""
        where = f"Kafka at {self._kafka.bootstrap_servers}"
        new = NewTopic(topic, 1, -1, config=config)
        try:
            made = self.client.create_topics([new], request_timeout=_ASK_SECONDS)
            made[topic].result(_ASK_SECONDS)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise UnavailableError(f"{where}: topic {topic}: {told(error)}") from None
        except TimeoutError:
            raise UnavailableError(f"{where} does not make topic {topic}") from None

    def has(self, topic: str) -> bool:
        """Raises UnavailableError."""
        return self.fault_of(topic) is None

    def fault_of(self, topic: str) -> KafkaError | None:
        """What Kafka says is wrong with the topic; None: it is there. Raises UnavailableError."""
        try:
            found = self.client.list_topics(topic, timeout=_ASK_SECONDS).topics[topic]
        except KafkaException as error:
            self.client.poll(0)
            raise UnavailableError(away(self._kafka, error, self._last.text)) from None
        return found.error

    def cleanup_policy(self, topic: str) -> str:
        """Empty where Kafka does not say: not everybody may ask."""
        asked = ConfigResource(ConfigResource.Type.TOPIC, topic)
        try:
            futures = self.client.describe_configs([asked], request_timeout=_ASK_SECONDS)
            return str(futures[asked].result(_ASK_SECONDS)["cleanup.policy"].value)
        except (KafkaException, TimeoutError):
            return ""


class Look(Enum):
    SAME = auto()
    ANEW = auto()
    """There is a topic of that name, and it is another."""
    GONE = auto()
    UNKNOWN = auto()
    """Kafka does not say."""


class TopicWatch:
    """Which topic it is that is read, by the id that Kafka gave it: one that was deleted and made
    again has the same name and may have the same offsets."""

    def __init__(self, file: GroupFile, client: str) -> None:
        self._settings = {**client_settings(file.kafka, client), **MAKES_NONE}
        self._admin = AdminClient(self._settings)
        self._name = file.group.metadata
        self._id = ""

    def look(self) -> Look:
        """Ask Kafka which topic it is, which can take seconds. After ANEW the new one is what is
        watched."""
        asked = TopicCollection([self._name])
        try:
            futures = self._admin.describe_topics(asked, request_timeout=_LOOK_SECONDS)
            found = str(futures[self._name].result(_LOOK_SECONDS + 1).topic_id)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return Look.GONE
            return self._ask_anew()
        except TimeoutError:
            return self._ask_anew()
        known, self._id = self._id, found
        return Look.SAME if known in ("", found) else Look.ANEW

    def _ask_anew(self) -> Look:
        """Another client asks the next time: this one may be cut off (see srtm.kafka.cut_off)."""
        old, self._admin = [self._admin], AdminClient(self._settings)
        let_go(old)
        return Look.UNKNOWN
