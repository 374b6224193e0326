"""The topic by which a group's controller and consumers speak: made once, and known by its id."""

import logging
from enum import Enum, auto

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from srtm.consumer.file import GroupFile
from srtm.errors import UnavailableError
from srtm.kafka.client import LastFault, away, client_settings, told

log = logging.getLogger("srtm.consumer")

_ASK_SECONDS = 10.0
_LOOK_SECONDS = 5.0
"""It is asked only where nothing is heard; what was read waits for the answer, so a Kafka that is
only slow must be able to give it."""
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
    """Once for each group; the first who comes makes it. Raises UnavailableError."""
    admin = AdminClient(client_settings(file.kafka, f"srtm-{file.group.id}"))
    name = file.group.metadata
    where = f"Kafka at {file.kafka.bootstrap_servers}"
    try:
        found = admin.list_topics(name, timeout=_ASK_SECONDS).topics.get(name)
        if found and found.error is None and found.partitions:
            return
        new = NewTopic(name, 1, -1, config=_TOPIC)
        admin.create_topics([new], request_timeout=_ASK_SECONDS)[name].result(_ASK_SECONDS)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise UnavailableError(f"{where}: topic {name}: {told(error)}") from None
    except TimeoutError:
        raise UnavailableError(f"{where} does not make topic {name}") from None


def topic_is_there(file: GroupFile) -> bool:
    """Raises UnavailableError."""
    last = LastFault()
    admin = AdminClient(client_settings(file.kafka, f"srtm-{file.group.id}", last))
    try:
        found = admin.list_topics(timeout=_ASK_SECONDS).topics
    except KafkaException as error:
        admin.poll(0)
        raise UnavailableError(away(file.kafka, error, last.text)) from None
    return file.group.metadata in found


class Look(Enum):
    SAME = auto()
    ANEW = auto()
    """There is one of that name, and it is another."""
    GONE = auto()
    UNKNOWN = auto()
    """Kafka does not say."""


class TopicWatch:
    """Which topic it is that is read, by the id that Kafka gave it: one that was deleted and made
    again has the same name and may have the same offsets."""

    def __init__(self, file: GroupFile, client: str) -> None:
        self._admin = AdminClient(client_settings(file.kafka, client))
        self._name = file.group.metadata
        self._id = ""

    def look(self) -> Look:
        """It can take seconds. After ANEW the new one is what is watched."""
        asked = TopicCollection([self._name])
        try:
            futures = self._admin.describe_topics(asked, request_timeout=_LOOK_SECONDS)
            found = str(futures[self._name].result(_LOOK_SECONDS + 1).topic_id)
        except KafkaException as error:
            missing = error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
            return Look.GONE if missing else Look.UNKNOWN
        except TimeoutError:
            return Look.UNKNOWN
        known, self._id = self._id, found
        return Look.SAME if known in ("", found) else Look.ANEW
