"""Offsets, partitions and members of a group, asked of Kafka; nothing is changed."""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._group import ConsumerGroupDescription

from srtm.autoscaler.live.monitor import Sample
from srtm.consumer.file import GroupFile
from srtm.kafka.client import AWAY, LastFault, away, client_settings, told
from srtm.kafka.cut_off import let_go
from srtm.kafka.place import Note, read_note
from srtm.kafka.topic_ids import TopicIds
from srtm.text.errors import UnavailableError

if TYPE_CHECKING:
    from srtm.autoscaler.live.sizes import Sizes

_ASK_SECONDS = 5.0
_STARTS_EVERY_SECONDS = 5.0
"""the oldest offset and the number of partitions change rarely"""

_LATEST, _EARLIEST = -1, -2
"""the times by which ListOffsets asks for the ends of a partition"""
_SOON = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)
"""A Kafka that has just started answers so for a moment."""
_SOON_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One that subscribes, as the group's coordinator knows it."""

    id: str
    partitions: tuple[int, ...]


class Probe:
    """Asks Kafka about one group and its topic. Each question raises UnavailableError where Kafka
    does not answer it."""

    def __init__(self, file: GroupFile) -> None:
        self.cluster = ""
        """Kafka's id of its cluster, known once `partitions` was asked."""
        self._topic = file.group.topic
        self._group = file.group.id
        self._kafka = file.kafka
        self._last = LastFault()
        settings = client_settings(file.kafka, f"srtm-autoscale-{self._group}")
        self._settings = settings
        self._open()
        self._count = 0
        self._starts: dict[int, int] = {}
        self._starts_at: float | None = None
        self._sizes = _sizes(file)
        self._ids = TopicIds(file.kafka, f"srtm-autoscale-{self._group}")
        self._uncommitted_settings = {
            **settings,
            "group.id": self._group,
            "isolation.level": "read_uncommitted",
        }
        self._suspects: dict[int, int] = {}

    def _open(self) -> None:
        self._admin = AdminClient(self._settings)
        # A consumer that joins nothing. The admin client asking for offsets aborts the process
        # where a broker dies meanwhile (librdkafka, issues 3663, 4605), and takes 20 times longer.
        group = {"group.id": self._group, "error_cb": self._last}
        self._consumer = Consumer({**self._settings, **group})
        self._uncommitted: Consumer | None = None

    def partitions(self) -> int:
        """How many the topic has now."""
        try:
            found = self._consumer.list_topics(self._topic, timeout=_ASK_SECONDS)
        except KafkaException as error:
            self._consumer.poll(0)
            raise self._away(error) from None
        self.cluster = found.cluster_id or ""
        topic = found.topics.get(self._topic)
        if topic is None or topic.error is not None or not topic.partitions:
            raise UnavailableError(
                f"Kafka at {self._kafka.bootstrap_servers} has no topic {self._topic}; create it"
            )
        return len(topic.partitions)

    def sample(self, at: float) -> Sample:
        sizes: dict[int, int] = {}
        if not self._ids.of(self._topic):
            self._ids.learn(self._ids.first([self._topic]), _ASK_SECONDS)
        self._ids.tick([self._topic], at, self._made_anew)
        if self._starts_at is None or at - self._starts_at >= _STARTS_EVERY_SECONDS:
            self._count = self.partitions()
            self._starts = self._offsets(_EARLIEST)
            sizes = self._sizes.read() if self._sizes is not None else {}
            self._starts_at = at
        ends = self._offsets(_LATEST)
        topic_id, committed, records = self._ids.of(self._topic), {}, {}
        for partition, (offset, note) in self._committed().items():
            # What was committed of the old topic is nothing of the new one.
            committed[partition] = offset if note.is_of(topic_id) else 0
            if note.records is not None:
                records[partition] = note.records
        beyond = self._beyond(ends, committed)
        starts = dict(self._starts)
        return Sample(at, ends, starts, committed, sizes, records, beyond, topic_id)

    def _made_anew(self, _: str) -> bool:
        self._starts_at = None
        return True

    def _beyond(self, ends: dict[int, int], committed: dict[int, int]) -> dict[int, int]:
        """Committed offsets that are not there, and where their logs end. Beyond an end that was
        read before is what came meanwhile, and so is, for who reads it, an open transaction."""
        suspects = {p: at for p, at in committed.items() if at > ends.get(p, at)}
        again = [p for p, at in suspects.items() if self._suspects.get(p) == at]
        self._suspects = suspects
        if not again:
            return {}
        if self._uncommitted is None:
            self._uncommitted = Consumer(self._uncommitted_settings)
        asked = [TopicPartition(self._topic, p, _LATEST) for p in again]
        try:
            found = _plain(self._uncommitted.offsets_for_times(asked, timeout=_ASK_SECONDS))
        except KafkaException as error:
            raise self._fault(f"offsets of topic {self._topic}", error) from None
        return {p: end for p, end in found.items() if committed[p] > end}

    def members(self) -> tuple[GroupMember, ...]:
        """Who subscribes; nobody where partitions are handed over directly."""
        found = self._described()
        if found is None:
            return ()
        return tuple(
            GroupMember(
                member.member_id,
                tuple(
                    sorted(
                        each.partition
                        for each in (
                            member.assignment.topic_partitions if member.assignment else []
                        )
                        if each.topic == self._topic
                    )
                ),
            )
            for member in found.members
        )

    def _described(self) -> ConsumerGroupDescription | None:
        """The group as Kafka describes it; None: there is no such group."""
        until = time.monotonic() + _ASK_SECONDS
        while True:
            try:
                futures = self._admin.describe_consumer_groups(
                    [self._group], request_timeout=_ASK_SECONDS
                )
                found: ConsumerGroupDescription = futures[self._group].result()
                return found
            except KafkaException as error:
                code = error.args[0].code()
                if code == KafkaError.GROUP_ID_NOT_FOUND:
                    return None
                if code not in _SOON or time.monotonic() > until:
                    raise self._fault(f"group {self._group}", error) from None
            time.sleep(_SOON_SECONDS)

    def _offsets(self, logical: int) -> dict[int, int]:
        asked = [TopicPartition(self._topic, p, logical) for p in range(self._count)]
        try:
            return _plain(self._consumer.offsets_for_times(asked, timeout=_ASK_SECONDS))
        except KafkaException as error:
            self._starts_at = None
            raise self._fault(f"offsets of topic {self._topic}", error) from None

    def _committed(self) -> dict[int, tuple[int, Note]]:
        asked = [TopicPartition(self._topic, p) for p in range(self._count)]
        try:
            found = self._consumer.committed(asked, timeout=_ASK_SECONDS)
            _plain(found)
        except KafkaException as error:
            raise self._fault(f"offsets of group {self._group}", error) from None
        return {
            each.partition: (each.offset, read_note(each.metadata))
            for each in found
            if each.offset >= 0
        }

    def _fault(self, what: str, error: KafkaException) -> UnavailableError:
        if error.args[0].code() in AWAY:
            return self._away(error)
        return UnavailableError(f"Kafka at {self._kafka.bootstrap_servers}: {what}: {told(error)}")

    def _away(self, error: KafkaException) -> UnavailableError:
        """New clients ask the next time: these may be cut off (see srtm.kafka.cut_off)."""
        old: list[object] = [self._admin, self._consumer, self._uncommitted]
        self._open()
        let_go(old)
        return UnavailableError(away(self._kafka, error, self._last.text))


def _sizes(file: GroupFile) -> "Sizes | None":
    """The reader of partitions' sizes; None where nobody asks for bytes."""
    if file.group.weigh != "bytes":
        return None
    from srtm.autoscaler.live.sizes import Sizes  # kafka-python

    return Sizes(file)


def _plain(found: list[TopicPartition]) -> dict[int, int]:
    """Raises KafkaException."""
    for each in found:
        if each.error is not None:
            raise KafkaException(each.error)
    return {each.partition: each.offset for each in found}
