"""The product's controller with a policy that moves partitions on purpose."""

import time
from collections.abc import Callable
from pathlib import Path

from srtm.autoscaler.decision import Action, Decision, Member
from srtm.autoscaler.live.controller import Controller
from srtm.autoscaler.live.local import Local
from srtm.autoscaler.live.monitor import Reading
from srtm.autoscaler.live.removal import Removal
from srtm.autoscaler.live.states import State
from srtm.autoscaler.observation import Observation, PartitionSeen
from srtm.clock import NS, boottime_ns
from srtm.consumer.file import GroupFile
from srtm.consumer.log import GroupLog
from srtm.consumer.process import here
from srtm.consumer.topic import make_topic

_ARM_SECONDS = 240.0
_REST_NS = NS // 4


class Mover:
    """The product's controller, with a policy that moves on purpose."""

    name = "mover"

    def __init__(
        self, file: GroupFile, folder: Path, partitions: int, moves: int, one_by_one: bool
    ) -> None:
        """one_by_one: a partition at a time; otherwise a consumer comes and goes."""
        self._moves = moves
        self._made = 0
        self._count = partitions
        self._most = file.group.max
        self._one_by_one = one_by_one
        make_topic(file)
        self._words = GroupLog(file, "mover")
        self._controller = Controller(
            group=file.group,
            process=here(),
            name="mover",
            effects=self._words,
            executor=Local(file.executor, folder / "group.toml"),
            make=lambda mu: self,
            dead=lambda process: process.is_dead,
            wall=lambda: "",
            seconds=time.time,
        )
        self._removal: Removal | None = None
        if file.group.handover == "assignor":
            self._removal = Removal(file, lambda: list(self._controller.ledger.ended))
            self._removal.start()

    def decide(self, seen: Observation) -> Decision:
        there = list(seen.consumers)
        if there and seen.rebalancing:
            return Decision(Action.NONE)
        count = len(seen.partitions)
        if len(there) < self._most - 1 or (self._one_by_one and len(there) < self._most):
            who: list[str | None] = [each.id for each in there]
            who += [None] * (self._most - len(who))
            parts = [tuple(range(n, count, len(who))) for n in range(len(who))]
            return Decision(
                Action.UP, tuple(Member(id_, p) for id_, p in zip(who, parts, strict=True)), "begin"
            )
        self._made += 1 if self._one_by_one else 2
        if self._one_by_one:
            moved = self._made % count
            owner = seen.owners.get(moved)
            names = [each.id for each in there]
            target = names[(names.index(owner) + 1) % len(names)] if owner else names[0]
            members = tuple(
                Member(
                    each.id,
                    tuple(p for p in each.partitions if p != moved)
                    + ((moved,) if each.id == target else ()),
                )
                for each in there
            )
            return Decision(Action.REASSIGN, members, "one moves")
        if len(there) == self._most:
            kept = [Member(each.id, each.partitions) for each in there[:-1]]
            rest = tuple(there[-1].partitions)
            kept[0] = Member(kept[0].consumer, kept[0].partitions + rest)
            return Decision(Action.DOWN, tuple(kept), "one leaves")
        whole = [Member(each.id, each.partitions) for each in there]
        return Decision(Action.UP, (*whole, Member(None, ())), "one comes")

    def run(self) -> None:
        """Raises TimeoutError."""
        until = time.monotonic() + _ARM_SECONDS
        partitions = tuple(PartitionSeen(p, 1.0, 0.0) for p in range(self._count))
        rest_ns = 0
        try:
            while self._made < self._moves:
                if time.monotonic() > until:
                    raise TimeoutError(f"{self._made} of {self._moves} moves in {_ARM_SECONDS:g} s")
                self._turn()
                now = boottime_ns()
                if self._controller.state is not State.SENTINEL:
                    rest_ns = now + _REST_NS
                elif now > rest_ns:
                    reading = Reading(now / NS, partitions, {}, None, 0, 0)
                    self._controller.decide(reading, {}, now)
            self._settle(lambda: self._controller.state is State.SENTINEL)
            time.sleep(0.5)
        finally:
            self._settle(self._controller.dismiss)
            if self._removal is not None:
                self._removal.close()
            self._words.close()

    def _turn(self) -> None:
        words = self._words.read(0.02)
        self._controller.see(words, boottime_ns())
        if self._words.caught_up:
            self._controller.tick(boottime_ns())

    def _settle(self, done: Callable[[], bool]) -> None:
        until = time.monotonic() + 30
        while not done() and time.monotonic() < until:
            self._turn()
