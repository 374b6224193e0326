"""The product's controller with a policy that moves partitions on purpose."""

import time
from collections.abc import Callable
from pathlib import Path

from srtm.autoscaler.decision import Action, Decision, Member
from srtm.autoscaler.executors.local import Local
from srtm.autoscaler.live.controller import Controller
from srtm.autoscaler.live.kafka_world import KafkaWorld
from srtm.autoscaler.live.monitor import Reading
from srtm.autoscaler.live.removal import Removal
from srtm.autoscaler.live.states import State
from srtm.autoscaler.observation import Observation, PartitionSeen
from srtm.consumer.file import GroupFile
from srtm.consumer.log import GroupLog
from srtm.consumer.process import here
from srtm.consumer.topic import make_topic
from srtm.host.clock import NS, boottime_ns

_ARM_SECONDS = 240.0
_REST_NS = NS // 4
_LONG_REST_NS = 3 * NS // 2
"""where one comes and goes: it has to have worked before it goes"""


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
        self._world = KafkaWorld(
            group=file.group,
            process=here(),
            name="mover",
            effects=self._words,
            dead=lambda process: process.is_dead,
            seconds=time.time,
            mu=lambda id_, said: None,
        )
        self._controller = Controller(
            group=file.group,
            world=self._world,
            executor=Local(file.executor, folder / "group.toml"),
            make=lambda slo, mu: self,
            wall=lambda: "",
            startup_seconds=file.executor.startup,
        )
        self._removal: Removal | None = None
        if file.group.handover == "assignor":
            self._removal = Removal(file, lambda: list(self._world.ledger.ended))
            self._removal.start()

    def decide(self, seen: Observation) -> Decision:
        there, count = list(seen.consumers), len(seen.partitions)
        if there and (seen.rebalancing or len(seen.owners) < count):
            return Decision(Action.NONE)
        if len(there) < self._most - 1 or (self._one_by_one and len(there) < self._most):
            ids: list[str | None] = [each.id for each in there]
            ids += [None] * (self._most - len(ids))
            parts = [tuple(range(n, count, len(ids))) for n in range(len(ids))]
            members = tuple(Member(id_, part) for id_, part in zip(ids, parts, strict=True))
            return Decision(Action.UP, members, "begin")
        has: dict[str | None, list[int]] = {each.id: sorted(each.partitions) for each in there}
        if self._one_by_one:
            self._made += 1
            moved = self._made % count
            names = list(has)
            owner = names.index(seen.owners[moved])
            has[names[owner]].remove(moved)
            has[names[(owner + 1) % len(names)]].append(moved)
            return _decided(Action.REASSIGN, has, "one moves")
        self._made += count // self._most
        if len(there) == self._most:
            for partition in has.pop(there[-1].id):
                min(has.values(), key=len).append(partition)
            return _decided(Action.DOWN, has, "one leaves")
        fresh: list[int] = []
        while len(fresh) < count // self._most:
            fresh.append(max(has.values(), key=len).pop())
        return _decided(Action.UP, {**has, None: fresh}, "one comes")

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
                    rest_ns = now + (_REST_NS if self._one_by_one else _LONG_REST_NS)
                elif now > rest_ns:
                    reading = Reading(now / NS, partitions, {}, None, 0, 0)
                    self._controller.decide(reading, now)
            self._settle(lambda: self._controller.state is State.SENTINEL)
            time.sleep(0.5)
        finally:
            self._settle(self._controller.dismiss)
            if self._removal is not None:
                self._removal.close()
            self._words.close()

    def _turn(self) -> None:
        words = self._words.read(0.02)
        self._world.see(words, boottime_ns())
        if self._words.caught_up:
            self._controller.tick(boottime_ns())

    def _settle(self, done: Callable[[], bool]) -> None:
        until = time.monotonic() + 30
        while not done() and time.monotonic() < until:
            self._turn()


def _decided(action: Action, has: dict[str | None, list[int]], why: str) -> Decision:
    members = tuple(Member(id_, tuple(sorted(part))) for id_, part in has.items())
    return Decision(action, members, why)
