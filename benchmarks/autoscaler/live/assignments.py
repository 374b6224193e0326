"""Which partitions Kafka gave to whom. Its assignors see no load and take members in the order of
their random names, so nobody can foretell it: the simulator is given what was seen."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from srtm.autoscaler.decision import Action, Decision, Member, Policy
from srtm.autoscaler.observation import Observation
from srtm.autoscaler.simulator.grouping import Parts

_EVERY_SECONDS = 0.25
_ASK_SECONDS = 5.0


class Assignments:
    """The assignments of one group, as they change. They are read by a thread of its own, within
    `watching`."""

    def __init__(self, address: str, group: str, partitions: int) -> None:
        self._address = address
        self._group = group
        self._partitions = partitions
        self._over = threading.Event()
        self._now: Parts = ()
        self.seen: list[Parts] = []
        """each in which everybody had something, once for each time that it came about"""

    def is_whole(self, consumers: int) -> bool:
        """Has everybody something, and everything somebody?"""
        return len(self._now) == consumers

    def begin(self) -> None:
        """What came before does not count, but for how it has ended."""
        del self.seen[:-1]

    @contextmanager
    def watching(self) -> Iterator["Assignments"]:
        thread = threading.Thread(target=self._watch, name="assignments")
        thread.start()
        try:
            yield self
        finally:
            self._over.set()
            thread.join()

    def _watch(self) -> None:
        # The thread's own, so that it has ended before its Kafka does.
        admin = AdminClient({"bootstrap.servers": self._address, "log_level": 0})
        while not self._over.wait(_EVERY_SECONDS):
            self._now = self._read(admin)
            if self._now and (not self.seen or self.seen[-1] != self._now):
                self.seen.append(self._now)

    def _read(self, admin: AdminClient) -> Parts:
        """Empty where it is not whole, or Kafka does not say."""
        asked = admin.describe_consumer_groups([self._group], request_timeout=_ASK_SECONDS)
        try:
            members = asked[self._group].result().members
        except KafkaException:
            return ()
        held = [
            tuple(sorted(each.partition for each in member.assignment.topic_partitions))
            for member in members
            if member.assignment
        ]
        is_whole = sorted(chain.from_iterable(held)) == list(range(self._partitions))
        return tuple(sorted(held)) if is_whole and all(held) else ()


class AsSeen:
    """A policy that says how many consumers there are, and gives them the partitions that groups
    of so many had: those of the first such group the first time, and so on; the policy's own where
    there was none."""

    def __init__(self, policy: Policy, seen: Sequence[Parts]) -> None:
        self.name = policy.name
        self._policy = policy
        self._left: dict[int, list[Parts]] = {}
        for parts in seen:
            self._left.setdefault(len(parts), []).append(parts)

    def decide(self, seen: Observation) -> Decision:
        decision = self._policy.decide(seen)
        left = self._left.get(len(decision.members))
        if decision.action is Action.NONE or not left:
            return decision
        parts = left.pop(0) if len(left) > 1 else left[0]
        has = {each.id: set(each.partitions) for each in seen.consumers}
        return replace(decision, members=_matched(decision.members, parts, has))


def _matched(
    members: Sequence[Member], parts: Parts, has: dict[str, set[int]]
) -> tuple[Member, ...]:
    """The members with their parts: each consumer keeps as many of its partitions as it can, the
    biggest overlap first, as assignors are sticky."""
    pairs = sorted(
        (
            (-len(has.get(member.consumer or "", set()).intersection(part)), m, p)
            for m, member in enumerate(members)
            for p, part in enumerate(parts)
        )
    )
    found: dict[int, int] = {}
    for _, m, p in pairs:
        if m not in found and p not in found.values():
            found[m] = p
    return tuple(replace(each, partitions=parts[found[m]]) for m, each in enumerate(members))
