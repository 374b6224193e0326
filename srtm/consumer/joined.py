"""The data side of a consumer that subscribes by kafka-python, and is assigned by the plan.

Partitions come and go inside `gather`, while records are waited for, never in the middle of a
batch. What was gathered of partitions that go is dropped; what the sink has is committed before.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer
from kafka.admin import MemberToRemove
from kafka.consumer.subscription_state import AsyncConsumerRebalanceListener
from kafka.errors import InconsistentGroupProtocolError, KafkaError
from kafka.structs import OffsetAndMetadata, TopicPartition

from srtm.consumer.assignor import Assignor, join, rejoin
from srtm.consumer.batch import Record
from srtm.consumer.file import ConsumerTable, GroupFile, KafkaTable
from srtm.consumer.membership import Membership
from srtm.consumer.places import Place
from srtm.consumer.records import Records
from srtm.host.clock import NS, monotonic_ns
from srtm.kafka.place import Note
from srtm.kafka.python_client import admin_settings, python_settings, quiet
from srtm.text.errors import UnavailableError

log = logging.getLogger("srtm.consumer")

_SLICE_MS = 10
_COMMIT_MS = 5_000
_FETCH_MS = 20
_HEARTBEAT_MS = 500
"""A member that has not read a new plan yet learns so that the others wait for it."""
_LOOK_NS = NS // 10
_ASK_AGAIN_NS = NS // 10
"""The leader may read a new plan a moment later than this member."""
_LEAVE_MS = 3_000


class Joined(Records):
    def __init__(self, file: GroupFile, table: ConsumerTable, membership: Membership) -> None:
        """Raises UnavailableError."""
        quiet()
        super().__init__(file, table, f"{membership.name}-records")
        self.generation = 0
        self._group = file.group.id
        self._kafka = file.kafka
        self._name = membership.name
        self._asked_ns = 0
        self._look_ns = 0
        self._fresh: set[int] = set()
        self._assignor = Assignor(self._topic, membership, self._assigned)
        settings = {
            "fetch_max_wait_ms": _FETCH_MS,
            "heartbeat_interval_ms": _HEARTBEAT_MS,
            "request_timeout_ms": 30_000,
            "isolation_level": "read_committed",  # as librdkafka has it by default
            **python_settings(file.kafka),
            "client_id": f"{self._name}-records",
            "group_id": self._group,
            "group_instance_id": self._name,
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "allow_auto_create_topics": False,
            "max_poll_records": table.batch,
            # A batch that takes longer ends the process; a rebalance waits for one in hand.
            "max_poll_interval_ms": round(2e3 * table.batch_timeout) + 30_000,
            "partition_assignment_strategy": [self._assignor],
        }
        try:
            self._consumer = KafkaConsumer(**settings)
        except KafkaError as error:
            raise UnavailableError(f"Kafka at {file.kafka.bootstrap_servers}: {error}") from None
        self._consumer.subscribe([self._topic], listener=_Listener(self))

    # --- partitions come and go, in the client's own thread or loop -------------------------------

    def _assigned(self, generation: int, partitions: Sequence[int]) -> None:
        """Paused until it is known where each begins."""
        self.generation = max(generation, 0)
        self._fresh = set(partitions)

    async def revoked(self, partitions: Iterable[int]) -> None:
        gone = set(partitions) & self.positions.keys()
        moved = {p: each for p, each in self._places.moved().items() if p in gone}
        if moved:
            try:
                await self._consumer.commit_async(self._offsets(moved))
            except KafkaError as error:
                log.warning("offsets are not committed, and come again: %s", error)
        self.lost(gone)

    def lost(self, partitions: Iterable[int]) -> None:
        gone = set(partitions)
        self._drop(gone)
        self._fresh -= gone

    def hold(self, partitions: Iterable[TopicPartition]) -> None:
        self._consumer.pause(*partitions)

    def _begin(self) -> None:
        """Begin the partitions that have come, each where its last owner committed. Called in the
        main thread."""
        ids = self._ids.ask([self._topic])
        found = {}
        for partition in sorted(self._fresh):
            at = TopicPartition(self._topic, partition)
            found[at] = self._consumer.committed(at, metadata=True, timeout_ms=_COMMIT_MS)
        self._ids.learn(ids, _COMMIT_MS / 1e3, self._made_anew)
        has_none = self._has_none()
        for at, committed in found.items():
            if committed is None or committed.offset < 0:
                self._places.begin(at.partition, self._never_committed(at))
            elif not self._places.begin(at.partition, committed.offset, committed.metadata):
                self._say_anew(f"{self._topic}[{at.partition}]")
            self._consumer.seek(at, self.positions[at.partition])
            self._consumer.resume(at)
        self._is_anew = self._is_anew and not has_none
        self._fresh.clear()

    def _never_committed(self, at: TopicPartition) -> int:
        ask = self._consumer.beginning_offsets
        if self._reset == "latest" and not self._is_anew:
            ask = self._consumer.end_offsets
        begin = int(ask([at], timeout_ms=_COMMIT_MS)[at])
        if self._reset == "latest":  # kept at once, or the next owner would skip what came since
            place = Place(begin, str(Note(self._places.topic_id, 0)))
            self._consumer.commit(self._offsets({at.partition: place}), timeout_ms=_COMMIT_MS)
        return begin

    # --- the runner's -----------------------------------------------------------------------------

    def tokens(self) -> dict[int, int]:
        """The group's generation: each rebalance has a larger one."""
        return dict.fromkeys(self.positions, self.generation)

    def gather(self, interrupted: Callable[[], bool]) -> list[Record]:
        """No more than `batch` records are ever in hand."""
        while not interrupted():
            self._ids.tick([self._topic], monotonic_ns() / NS, self._made_anew)
            if self._is_anew and not self._gathered:
                self._begin_anew()
                self.rewind()
            if found := self._batch(self._is_anew):
                return found
            self._poll(self._table.batch - len(self._gathered))
            if not self._gathered and self._has_to_commit():
                return []
        return []

    def _has_to_commit(self) -> bool:
        """While nothing is in hand: what has no records, such as markers, is passed all the
        same."""
        now = monotonic_ns()
        if now < self._look_ns:
            return False
        self._look_ns = now + _LOOK_NS
        for partition in self.positions:
            at = TopicPartition(self._topic, partition)
            if at in self._consumer.assignment():
                with suppress(KafkaError):  # it is not known yet: at the next look
                    self._places.reach(partition, self._consumer.position(at, timeout_ms=0) or 0)
        self._places.done()
        return self._places.has_moved

    def _poll(self, most: int) -> None:
        now = monotonic_ns()
        if self._assignor.is_behind and now >= self._asked_ns + _ASK_AGAIN_NS:
            self._asked_ns = now
            rejoin(self._consumer)
        try:
            join(self._consumer)
            found = self._consumer.poll(timeout_ms=_SLICE_MS, max_records=most)
            if self._fresh:
                self._begin()
            self.fault = ""
        except InconsistentGroupProtocolError:
            raise UnavailableError(
                f"group {self._group} has members with another assignor; stop them, or give "
                "[group] another id"
            ) from None
        except KafkaError as error:
            self.fault = str(error)
            return
        for records in found.values():
            for each in records:
                self._take(each)

    def _take(self, found: Any) -> None:
        if found.partition not in self.positions:
            return
        record = Record(
            topic=found.topic,
            partition=found.partition,
            offset=found.offset,
            key=found.key,
            value=found.value,
            headers=tuple(found.headers or ()),
            timestamp=found.timestamp / 1e3 if (found.timestamp or -1) >= 0 else None,
        )
        self._keep(record)

    def rewind(self) -> None:
        self._let_go()
        for partition, at in self.positions.items():
            try:
                self._consumer.seek(TopicPartition(self._topic, partition), at)
            except AssertionError:  # it is gone, and its listener will say so
                continue

    def _offsets(self, places: Mapping[int, Place]) -> dict[TopicPartition, OffsetAndMetadata]:
        return {
            TopicPartition(self._topic, p): OffsetAndMetadata(at.offset, at.note, -1)
            for p, at in places.items()
        }

    def _write(self, places: Mapping[int, Place]) -> str:
        try:
            self._consumer.commit(self._offsets(places), timeout_ms=_COMMIT_MS)
        except KafkaError as error:
            return str(error) or type(error).__name__
        return ""

    def pause(self) -> None:
        """Poll while nothing is to be done: a rebalance is joined in all the same, or everybody
        waits."""
        held = [TopicPartition(self._topic, p) for p in self.positions]
        self._consumer.pause(*held)
        self._poll(self._table.batch)
        there = self._consumer.assignment()
        self._consumer.resume(*(each for each in held if each in there))

    def close(self) -> None:
        """A static member's place would be kept for its session timeout: it is given up."""
        self._consumer.close(autocommit=False, timeout_ms=_LEAVE_MS)
        remove_member(self._kafka, self._group, self._name)


class _Listener(AsyncConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, reader: Joined) -> None:
        self._reader = reader

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        await self._reader.revoked(each.partition for each in revoked)

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._reader.hold(assigned)

    async def on_partitions_lost(self, lost: Iterable[TopicPartition]) -> None:
        log.warning("Kafka has put this member out; what was not committed comes again")
        self._reader.lost(each.partition for each in lost)


def remove_member(kafka: KafkaTable, group: str, name: str) -> None:
    """Take a static member out of its group, if it is there."""
    bounds = {"request_timeout_ms": _LEAVE_MS, "bootstrap_timeout_ms": _LEAVE_MS}
    try:
        admin = KafkaAdminClient(**{**admin_settings(kafka), **bounds})
    except (KafkaError, OSError) as error:
        log.warning("%s stays in group %s for its session timeout: %s", name, group, error)
        return
    try:
        admin.remove_group_members(group, [MemberToRemove(group_instance_id=name)])
    except (KafkaError, OSError) as error:
        log.warning("%s stays in group %s for its session timeout: %s", name, group, error)
    finally:
        admin.close()
