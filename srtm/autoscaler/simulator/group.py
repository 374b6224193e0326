"""A simulated consumer group: launches, joins, leaves, and how partitions change hands.

Eager: a member goes on until its heartbeat tells it that a rebalance is due, ends its poll, gives
everything up and rejoins; t_reb after the last one has rejoined everybody has its new partitions.
Cooperative (KIP-429): two rebalances; a member goes on with what it keeps, what moves is given up
after the first and taken up after the second. Direct: the controller tells each member at once;
what moves stands still for t_reb from the end of its owner's poll. A leaving member ends its poll
and goes at once in all three, and what it had stands still until it is assigned again.
"""

import heapq
import itertools
import math
import random
from collections.abc import Callable, Sequence
from functools import partial

from srtm.autoscaler.decision import Handover, Member
from srtm.autoscaler.simulator.consumer import INSTANT, Consumer, Partition
from srtm.autoscaler.simulator.setting import Setting

Assignment = dict[Consumer, tuple[int, ...]]


class Group:
    """State between two events; `advance` runs them. Time is what it is told."""

    def __init__(self, setting: Setting, partitions: Sequence[Partition]) -> None:
        self._setting = setting
        self._random = random.Random(setting.seed)
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = itertools.count()
        self._names = itertools.count()
        self._handover = setting.handover
        self._again = False
        self._stopped_at: dict[int, float] = {}
        self._longest_stop = 0.0
        self.partitions = tuple(partitions)
        self.consumers: list[Consumer] = []
        self.wanted: Assignment = {}
        self.rebalancing = False
        self.rebalances = 0
        self.stopped_seconds: float | None = None
        first = [self._launch(0.0, ready=True) for _ in range(setting.initial)]
        for index, partition in enumerate(self.partitions):
            owner = first[index % len(first)]
            owner.partitions.append(partition)
        self.wanted = {c: self._ids(c) for c in first}
        self._settled = _as_sets(self.wanted)

    # --- what the controller does -----------------------------------------------------------------

    def change(self, at: float, members: Sequence[Member], handover: Handover | None) -> None:
        """Launch, and let leave, so that the group becomes `members`."""
        known = {consumer.id: consumer for consumer in self.wanted}
        wanted: Assignment = {}
        self._check(members)
        for member in members:
            if member.consumer is None:
                wanted[self._launch(at)] = member.partitions
            else:
                wanted[known[member.consumer]] = member.partitions
        for consumer in self.wanted:
            if consumer not in wanted and consumer.joined_at > at:
                consumer.left_at = at  # the launch is called off
        self.wanted = wanted
        self._handover = handover or self._setting.handover
        self._try(at)

    def _check(self, members: Sequence[Member]) -> None:
        """Raises ValueError: a partition left out would be read by nobody, for ever."""
        known = {consumer.id for consumer in self.wanted}
        named = [member.consumer for member in members if member.consumer is not None]
        unknown = [name for name in named if name not in known or named.count(name) > 1]
        if unknown:
            raise ValueError(f"consumer {unknown[0]} is not in the group, or is named twice")
        assigned = sorted(partition for member in members for partition in member.partitions)
        if assigned != list(range(len(self.partitions))):
            raise ValueError(
                f"partitions {assigned} are assigned; each of the {len(self.partitions)} must be, "
                "once"
            )

    def schedule_failure(self, at: float, index: int) -> None:
        """Let the running consumer at `index` die at `at`: it ends its poll, and the group notices
        only when its session times out. A rebalance meanwhile does not wait for it."""
        self._at(at, lambda now: self._fail(now, index))

    def _fail(self, at: float, index: int) -> None:
        members = self._members()
        if not 0 <= index < len(members):
            raise ValueError(
                f"at {at:g} s no consumer {index} can fail: {len(members)} run, counted from 0"
            )
        consumer = members[index]
        consumer.left_at = consumer.finish_batch(at)
        self._give_up(consumer, self._ids(consumer), consumer.left_at)
        self._at(at + self._setting.session_seconds, lambda now: self._notice(now, consumer))

    def next_event(self) -> float:
        return self._events[0][0] if self._events else float("inf")

    def advance(self, until: float) -> None:
        """Run everything up to `until` and serve until then."""
        while self._events and self._events[0][0] <= until:
            at, _, event = heapq.heappop(self._events)
            event(at)
        for consumer in self.consumers:
            consumer.serve(until)

    # --- members ----------------------------------------------------------------------------------

    def _launch(self, at: float, ready: bool = False) -> Consumer:
        setting = self._setting
        number = next(self._names)
        mu = setting.mus[number % len(setting.mus)] if setting.mus else setting.mu
        consumer = Consumer(f"c{number}", mu, at, setting.max_poll)
        consumer.heartbeat_phase = self._random.uniform(0, setting.heartbeat_seconds)
        self.consumers.append(consumer)
        if ready:
            consumer.joined_at = at
        else:
            self._at(at + setting.startup_seconds, lambda now: self._join(now, consumer))
        return consumer

    def _join(self, at: float, consumer: Consumer) -> None:
        if consumer.left_at > at:
            consumer.joined_at = consumer.free_at = at
            self._try(at)

    def _notice(self, at: float, dead: Consumer) -> None:
        """The group's own assignor gives what the dead had to those with the fewest."""
        if dead not in self.wanted:
            return
        orphans = self.wanted.pop(dead)
        for partition in orphans:
            if self.wanted:
                least = min(self.wanted, key=lambda consumer: len(self.wanted[consumer]))
                self.wanted[least] += (partition,)
        self._try(at)

    def _members(self) -> list[Consumer]:
        return [c for c in self.consumers if c.joined_at < math.inf == c.left_at]

    def _ids(self, consumer: Consumer) -> tuple[int, ...]:
        index = {id(partition): number for number, partition in enumerate(self.partitions)}
        return tuple(index[id(partition)] for partition in consumer.partitions)

    # --- a rebalance ------------------------------------------------------------------------------

    def _try(self, at: float) -> None:
        """Begin when everybody who is wanted has joined; one rebalance at a time."""
        if self.rebalancing:
            self._again = True
        elif self._is_settled():
            self._again = False  # a launch that was called off stops nobody
        elif self.wanted and all(consumer.joined_at <= at for consumer in self.wanted):
            self.rebalancing = True
            self._longest_stop = 0.0
            self._again = False
            target = dict(self.wanted)
            staying = [c for c in self._members() if c in target]
            if not staying:
                self.rebalancing = False  # all of them have died; the group will notice
            elif self._handover is Handover.DIRECT:
                self._direct(at, target)
            elif self._handover is Handover.EAGER:
                self._eager(self._let_go(at, target), target, staying)
            else:
                self._cooperative(self._let_go(at, target), target, staying)

    def _is_settled(self) -> bool:
        """Is the group what is wanted already?"""
        same = _as_sets(self.wanted) == self._settled
        return same and set(self._members()) == self.wanted.keys()

    def _let_go(self, at: float, target: Assignment) -> float:
        """Who is not wanted leaves at the end of its poll. When the others can be told of it."""
        last = at
        for consumer in self._members():
            if consumer not in target:
                consumer.left_at = consumer.finish_batch(at)
                self._give_up(consumer, self._ids(consumer), consumer.left_at)
                last = max(last, consumer.left_at)
        return last

    def _heartbeat(self, consumer: Consumer, after: float) -> float:
        if consumer.joined_at == after:
            return after  # its join is what the others are told of
        every = self._setting.heartbeat_seconds
        wait = (consumer.heartbeat_phase - after) % every
        return after if every - wait < INSTANT else after + wait  # it is now, but for the rounding

    def _eager(self, at: float, target: Assignment, staying: list[Consumer]) -> None:
        rejoined = [at]
        rebalance_seconds = self._setting.rebalance_seconds

        def stop(consumer: Consumer, now: float) -> None:
            end = consumer.finish_batch(now)
            self._give_up(consumer, self._ids(consumer), end)
            rejoined.append(end)
            if len(rejoined) == len(staying) + 1:
                end = max(rejoined) + rebalance_seconds
                self._at(end, lambda later: self._finish(later, target))

        told = [self._heartbeat(consumer, at) for consumer in staying]
        if self._setting.told_together:
            told = [max(told)] * len(told)
        for when, consumer in zip(told, staying, strict=True):
            self._at(when, partial(stop, consumer))

    def _cooperative(self, at: float, target: Assignment, staying: list[Consumer]) -> None:
        def told(after: float) -> float:
            return max(self._heartbeat(c, after) for c in staying) + self._setting.rebalance_seconds

        def first(now: float) -> None:
            self._assign_orphans(now, target)
            released = now
            for consumer in staying:
                moved = [p for p in self._ids(consumer) if p not in target[consumer]]
                if moved:
                    end = consumer.finish_batch(now)
                    self._give_up(consumer, moved, end)
                    released = max(released, end)
            if released > now or self._stopped_at:
                self._at(told(released), lambda later: self._finish(later, target))
            else:
                self._finish(now, target)

        self._at(told(at), first)

    def _direct(self, at: float, target: Assignment) -> None:
        for consumer in self._members():
            keeps = target.get(consumer, ())
            moved = [p for p in self._ids(consumer) if p not in keeps]
            end = consumer.finish_batch(at) if moved or consumer not in target else at
            self._give_up(consumer, moved, end)
            if consumer not in target:
                consumer.left_at = end
        owner = {p: consumer for consumer, ids in target.items() for p in ids}
        last = at
        for partition, stopped in self._stopped_at.items():
            ready = max(at, stopped) + self._setting.rebalance_seconds
            self._at(ready, partial(self._take_up, owner[partition], partition))
            last = max(last, stopped)
        self._at(last + self._setting.rebalance_seconds, lambda now: self._finish(now, target))

    def _assign_orphans(self, at: float, target: Assignment) -> None:
        for consumer, ids in target.items():
            for partition in ids:
                if partition in self._stopped_at:
                    self._take_up(consumer, partition, at)

    def _finish(self, at: float, target: Assignment) -> None:
        self._assign_orphans(at, target)
        self._settled = _as_sets(target)
        self.rebalancing = False
        self.rebalances += 1
        self.stopped_seconds = self._longest_stop
        if self._again:
            self._try(at)

    # --- partitions -------------------------------------------------------------------------------

    def _give_up(self, consumer: Consumer, ids: Sequence[int], at: float) -> None:
        for partition in ids:
            consumer.partitions.remove(self.partitions[partition])
            self._stopped_at[partition] = at

    def _take_up(self, consumer: Consumer, partition: int, at: float) -> None:
        if consumer.left_at < math.inf:
            return  # it died, or ends its last poll: whoever is told next takes it
        stopped = self._stopped_at.pop(partition)
        # Its next poll is the first with it; one who died may still be ending its last.
        consumer.free_at = max(stopped, consumer.finish_batch(at))
        consumer.partitions.append(self.partitions[partition])
        self._longest_stop = max(self._longest_stop, consumer.free_at - stopped)

    def _at(self, when: float, event: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), event))


def _as_sets(assignment: Assignment) -> dict[Consumer, frozenset[int]]:
    return {consumer: frozenset(ids) for consumer, ids in assignment.items()}
