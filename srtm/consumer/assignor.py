"""A kafka-python assignor that shares partitions out by the controller's plan.

Kafka asks one member of the group, its leader, who gets what. The plan was read beforehand, by the
thread that reads the group's topic; inside `assign` it is only looked up, since a slow call there
stops the client's heartbeats. Members are known by the name that each puts into its subscription,
so neither their order nor a restart matters. No exception leaves `assign`: it would come out of the
leader's `poll`, and stop the group.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from kafka.protocol.consumer.metadata import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)

from srtm.consumer.file import read_group_file
from srtm.consumer.membership import Membership
from srtm.consumer.sharing import shared
from srtm.consumer.wire import PartitionPlan

log = logging.getLogger("srtm.consumer")

NAME = "srtm-plan"
_VERSION = 0
"""of Kafka's consumer protocol: the whole assignment is given up and made anew in one round, which
takes less time than the two rounds of a cooperative one."""


_JOIN_MS = 200


class Source(Protocol):
    """What is known without asking anybody."""

    @property
    def name(self) -> str: ...

    @property
    def plan(self) -> PartitionPlan | None: ...

    @property
    def leader_is_away(self) -> bool: ...


class Assignor(AbstractPartitionAssignor):  # type: ignore[misc]  # kafka-python is not typed
    """assigned: told of each assignment: generation and partitions

    version: of the plan that this member knew when it joined last, or that it was assigned by, if
    that is newer
    """

    name = NAME

    def __init__(
        self,
        topic: str,
        source: Source,
        assigned: Callable[[int, Sequence[int]], None] = lambda generation, partitions: None,
    ) -> None:
        self._topic = topic
        self._source = source
        self._assigned = assigned
        self.version = 0
        self._was_blind = False

    @property
    def is_behind(self) -> bool:
        """Is there a plan that no rebalance has carried out yet, or did we lead one that knew of no
        partitions? Metadata that come while it runs make no other one."""
        plan = self._source.plan
        return self._was_blind or (plan is not None and plan.version > self.version)

    def metadata(self, topics: Any) -> ConsumerProtocolSubscription:
        """The version is in it so that a member that joins again for a new plan is no repetition:
        the broker would answer that without a rebalance."""
        plan = self._source.plan
        self._was_blind = False
        self.version = plan.version if plan else 0
        said = json.dumps({"name": self._source.name, "version": self.version}).encode()
        return ConsumerProtocolSubscription(_VERSION, sorted(topics), said)

    def assign(self, cluster: Any, members: Any) -> dict[str, ConsumerProtocolAssignment]:
        """member id -> partitions, and the version of the plan: who has read a newer one than it
        joined with need not join again, where the others would find out by their heartbeats."""
        members = list(members)
        plan = self._source.plan
        said = json.dumps({"version": plan.version}).encode() if plan else b""
        try:
            parts = self._shares(cluster, members, plan)
        except Exception:
            log.exception("the plan cannot be followed; partitions are shared out evenly")
            parts = _evenly(self._topic, cluster, members)
        return {
            member.member_id: ConsumerProtocolAssignment(
                _VERSION, [(self._topic, list(parts.get(member.member_id, ())))], said
            )
            for member in members
        }

    def _shares(
        self, cluster: Any, members: Sequence[Any], plan: PartitionPlan | None
    ) -> Mapping[str, Sequence[int]]:
        partitions = cluster.partitions_for_topic(self._topic)
        if partitions is None:  # metadata can be missing at this moment
            partitions = {p for part in plan.parts.values() for p in part} if plan else set()
            self._was_blind = not partitions
        names = named(members)
        found = shared(partitions, sorted(names), plan, self._source.leader_is_away)
        return {names[name]: part for name, part in found.items()}

    def on_assignment(self, assignment: Any, generation: int) -> None:
        self.version = max(self.version, said_version(assignment.user_data))
        partitions = [each.partition for each in assignment.partitions()]
        self._assigned(generation, sorted(partitions))


def named(members: Sequence[Any]) -> dict[str, str]:
    """Name -> member id. A second one of a name, or one that says none, goes by its member id."""
    found: dict[str, str] = {}
    for member in sorted(members, key=lambda each: str(each.member_id)):
        name = said_name(member.metadata.user_data) or str(member.group_instance_id or "")
        known = name if name and name not in found else str(member.member_id)
        found[known] = member.member_id
    return found


def said_name(data: object) -> str:
    """What a member calls itself; "" where it says nothing that is understood."""
    name = _said(data, "name")
    return name if isinstance(name, str) else ""


def said_version(data: object) -> int:
    """The version of the plan that an assignment was made by; 0 where it says none."""
    version = _said(data, "version")
    return version if isinstance(version, int) else 0


def _said(data: object, key: str) -> object:
    try:
        return json.loads(bytes(data or b""))[key]  # type: ignore[call-overload]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _evenly(topic: str, cluster: Any, members: Sequence[Any]) -> dict[str, list[int]]:
    """Share the partitions out evenly, without a look at anything that could be wrong."""
    ids = sorted(str(each.member_id) for each in members)
    found: dict[str, list[int]] = {id_: [] for id_ in ids}
    try:
        partitions = sorted(cluster.partitions_for_topic(topic) or ())
    except Exception:
        partitions = []
    for number, partition in enumerate(partitions):
        found[ids[number % len(ids)]].append(partition)
    return found


class PlanAssignor(Assignor):
    """An assignor for a KafkaConsumer of your own: it speaks with the controller in a thread of its
    own.

    Give it to `partition_assignment_strategy`, call `follow` with the consumer before each `poll`,
    and `close` at the end. Raises SrtmError for a file that is wrong, or where Kafka is away.
    """

    def __init__(self, file: str | Path) -> None:
        group = read_group_file(Path(file))
        self._membership = Membership(group)
        self._membership.start()
        super().__init__(group.group.topic, self._membership, self._report)

    def follow(self, consumer: Any) -> None:
        """Join again where a new plan is there: a few ms, 0.2 s at most. Cheap otherwise."""
        if self._membership.out:
            self._membership.rejoin()
            rejoin(consumer)
        elif self.is_behind:
            rejoin(consumer)
        join(consumer)

    def _report(self, generation: int, partitions: Sequence[int]) -> None:
        has = dict.fromkeys(partitions, max(generation, 0))
        self._membership.done(self._membership.version, has)

    @property
    def is_to_leave(self) -> bool:
        """Does the controller want this consumer to end? It gets no partitions any more."""
        command = self._membership.wanted()
        return command is not None and command.leave

    def close(self) -> None:
        self._membership.leave()


def rejoin(consumer: Any) -> None:
    """Let the consumer join again at its next poll. kafka-python has no public way to ask for a
    rebalance."""
    consumer._coordinator.request_rejoin()


def join(consumer: Any) -> None:
    """Wait for a join that is due or under way, for a moment.

    kafka-python drops one that ends between two polls, and joins once more: of the group's leader
    that is another rebalance, of which the others hear by their heartbeats. Where metadata were the
    reason, the leader's own assignment takes that away, and nobody would wait for the end of the
    join: it would have no partitions for ever.
    """
    coordinator = consumer._coordinator
    if coordinator.need_rejoin() or coordinator.rejoining:
        coordinator.request_rejoin()
        coordinator.poll(timeout_ms=_JOIN_MS)
