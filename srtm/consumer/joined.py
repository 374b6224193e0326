"""The data side of a consumer that subscribes by kafka-python, and is assigned by the plan.

Partitions come and go inside `gather`, while records are waited for, never in the middle of a
batch. What was gathered of partitions that go is dropped; what the sink has is committed before.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer
from kafka.admin import MemberToRemove
from kafka.consumer.subscription_state import AsyncConsumerRebalanceListener
from kafka.errors import InconsistentGroupProtocolError, KafkaError
from kafka.structs import OffsetAndMetadata, TopicPartition

from srtm.clock import NS, monotonic_ns
from srtm.consumer.assignor import Assignor, join, rejoin
from srtm.consumer.batch import Record
from srtm.consumer.file import ConsumerTable, GroupFile, KafkaTable
from srtm.consumer.membership import Membership
from srtm.errors import UnavailableError
from srtm.kafka.python_client import admin_settings, python_settings, quiet

log = logging.getLogger("srtm.consumer")

_SLICE_MS = 10
_COMMIT_MS = 5_000
_FETCH_MS = 20
_HEARTBEAT_MS = 500
"""A member that has not read a new plan yet learns so that the others wait for it."""
_ASK_AGAIN_NS = NS // 10
"""The leader may read a new plan a moment later than this member."""
_LEAVE_MS = 3_000


class Joined:
    """fault: why nothing comes, or is not committed; "" while all is well"""

    def __init__(self, file: GroupFile, table: ConsumerTable, membership: Membership) -> None:
        """Raises UnavailableError."""
        quiet()
        self.fault = ""
        self.positions: dict[int, int] = {}
        """partition -> the offset that is processed next"""
        self.generation = 0
        self._topic = file.group.topic
        self._group = file.group.id
        self._reset = file.group.reset
        self._table = table
        self._membership = membership
        self._kafka = file.kafka
        self._name = membership.name
        self._gathered: list[Record] = []
        self._bytes = 0
        self._due_ns = 0
        self._asked_ns = 0
        self._committed: dict[int, int] = {}
        self._fresh: set[int] = set()
        self._assignor = Assignor(self._topic, membership, self._assigned)
        settings = {
            "fetch_max_wait_ms": _FETCH_MS,
            "heartbeat_interval_ms": _HEARTBEAT_MS,
            "request_timeout_ms": 30_000,
            **python_settings(file.kafka),
            "client_id": f"{self._name}-records",
            "group_id": self._group,
            "group_instance_id": self._name,
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
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
        moved = self._not_committed(gone)
        if moved:
            try:
                await self._consumer.commit_async(moved)
            except KafkaError as error:
                log.warning("offsets are not committed, and come again: %s", error)
        self.lost(gone)

    def lost(self, partitions: Iterable[int]) -> None:
        gone = set(partitions)
        for partition in gone:
            self.positions.pop(partition, None)
            self._committed.pop(partition, None)
        self._fresh -= gone
        self._gathered = [each for each in self._gathered if each.partition not in gone]
        self._bytes = sum(map(_size, self._gathered))

    def hold(self, partitions: Iterable[TopicPartition]) -> None:
        self._consumer.pause(*partitions)

    def _begin(self) -> None:
        """Of what has come: where the last owner committed. In the main thread."""
        for partition in sorted(self._fresh):
            at = TopicPartition(self._topic, partition)
            begin = self._consumer.committed(at, timeout_ms=_COMMIT_MS)
            if begin is None:
                begin = self._never_committed(at)
            self._consumer.seek(at, begin)
            self.positions[partition] = self._committed[partition] = begin
            self._consumer.resume(at)
        self._fresh.clear()

    def _never_committed(self, at: TopicPartition) -> int:
        ask = self._consumer.beginning_offsets
        if self._reset == "latest":
            ask = self._consumer.end_offsets
        begin = int(ask([at], timeout_ms=_COMMIT_MS)[at])
        if self._reset == "latest":  # kept at once, or the next owner would skip what came since
            self._consumer.commit({at: _offset(begin)}, timeout_ms=_COMMIT_MS)
        return begin

    # --- the runner's -----------------------------------------------------------------------------

    def tokens(self) -> dict[int, int]:
        """The group's generation: each rebalance has a larger one."""
        return dict.fromkeys(self.positions, self.generation)

    def gather(self, interrupted: Callable[[], bool]) -> list[Record]:
        """Phase 1, as in `reader`. No more than `batch` records are ever in hand."""
        while not interrupted():
            full = len(self._gathered) >= self._table.batch
            full = full or self._bytes >= self._table.batch_bytes
            if full or (self._gathered and monotonic_ns() >= self._due_ns):
                found, self._gathered, self._bytes = self._gathered, [], 0
                return found
            self._poll(self._table.batch - len(self._gathered))
        return []

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
        if not self._gathered:
            self._due_ns = monotonic_ns() + round(self._table.wait * NS)
        record = Record(
            topic=found.topic,
            partition=found.partition,
            offset=found.offset,
            key=found.key,
            value=found.value,
            headers=tuple(found.headers or ()),
            timestamp=found.timestamp / 1e3 if (found.timestamp or -1) >= 0 else None,
        )
        self._gathered.append(record)
        self._bytes += _size(record)

    def rewind(self) -> None:
        """Read again from where the last commit stands."""
        self._gathered, self._bytes = [], 0
        for partition, at in self.positions.items():
            try:
                self._consumer.seek(TopicPartition(self._topic, partition), at)
            except AssertionError:  # it is gone, and its listener will say so
                continue

    def done(self, records: Iterable[Record]) -> None:
        for each in records:
            if each.partition in self.positions:
                self.positions[each.partition] = each.offset + 1

    def _not_committed(self, partitions: Iterable[int]) -> dict[TopicPartition, OffsetAndMetadata]:
        return {
            TopicPartition(self._topic, p): _offset(self.positions[p])
            for p in partitions
            if self._committed.get(p) != self.positions[p]
        }

    def commit(self) -> bool:
        """False: Kafka did not take it; the positions stay, and go with the next commit."""
        moved = self._not_committed(self.positions)
        if not moved:
            return True
        try:
            self._consumer.commit(moved, timeout_ms=_COMMIT_MS)
        except KafkaError as error:
            self.fault = f"offsets are not committed: {error}"
            log.warning("%s", self.fault)
            return False
        for at, offset in moved.items():
            self._committed[at.partition] = offset.offset
        self.fault = ""
        return True

    def pause(self) -> None:
        """Nothing is to be done: a rebalance is joined in all the same, or everybody waits."""
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


def _offset(at: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(at, "", -1)


def _size(record: Record) -> int:
    return len(record.value or b"") + len(record.key or b"")
