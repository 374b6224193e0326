"""A world of controllers and consumers around one partition, where everything goes wrong: words are
late or lost, clocks run at different speeds, members and leaders freeze and die. The product's own
`Member` and `Controller` live in it; Kafka, processes and the policy are played."""

import random
from dataclasses import dataclass, field
from typing import Any

from srtm.autoscaler.decision import Action, Decision
from srtm.autoscaler.decision import Member as Share
from srtm.autoscaler.executors.executor import Abilities, Fleet, Wanted
from srtm.autoscaler.live.controller import Controller
from srtm.autoscaler.live.kafka_world import KafkaWorld
from srtm.autoscaler.live.monitor import Reading
from srtm.autoscaler.observation import Observation, PartitionSeen
from srtm.consumer.file import GroupTable
from srtm.consumer.member import Member
from srtm.consumer.process import Process
from srtm.consumer.wire import Ended, Word
from srtm.host.clock import NS

LEASE = 1.0
STEP_NS = 10_000_000
PARTITIONS = 6


def group() -> GroupTable:
    return GroupTable.model_validate(
        {
            "topic": "t",
            "id": "g",
            "slo": "0.99@500ms",
            "lease": LEASE,
            "mu": 100.0,
            "min": 1,
            "max": 4,
        }
    )


@dataclass
class Actor:
    """Reads the partition at its own pace; its clock runs at `speed`."""

    world: "World"
    speed: float
    offset: int = 0
    frozen_until: int = 0
    dead: bool = False
    last_due: int = 0

    @property
    def now(self) -> int:
        return round(self.world.now * self.speed)

    def write(self, word: Word) -> None:
        """It arrives later, in order, or never."""
        if self.world.random.random() < self.world.loss:
            return
        delay = self.world.random.randrange(0, self.world.delay_ns + 1)
        self.last_due = max(self.last_due, self.world.now + delay)
        self.world.flying.append((self.last_due, word))

    def end(self, member: str) -> None:
        self.write(Ended(name=member))

    def read(self) -> list[Word]:
        if self.world.random.random() < 0.3:
            return []
        most = self.world.random.randrange(1, 8)
        words = self.world.log[self.offset : self.offset + most]
        self.offset += len(words)
        return words


@dataclass
class Consumer(Actor):
    member: Member = field(init=False)
    beat_at: int = 0
    launch: str = ""
    pid: int = 0

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.world.names += 1
        self.member = Member(
            name=f"m{self.world.names}",
            launch=self.launch,
            process=Process("here", self.pid, 1),
            lease_seconds=LEASE,
            missed_seconds=100.0,
            joined_ns=self.now,
        )
        for word in self.world.log[: self.offset]:
            self.member.ledger.apply(word)

    def step(self) -> None:
        for word in self.read():
            self.member.see(word)
        self.member.look(self.now)
        if self.member.out:
            self.end(self.member.name)
            self.begin()
        wanted = self.member.wanted
        if wanted is not None and self.world.random.random() < 0.3:
            if wanted.leave:
                self.member.done(wanted.version, {})
                self.write(self.member.report(self.now, gone=True))
                self.dead = True
                return
            self.member.done(wanted.version, wanted.start)
            self.write(self.member.report(self.now))
        elif self.now >= self.beat_at:
            self.beat_at = self.now + round(LEASE * NS / 5)
            self.write(self.member.report(self.now))

    def uses(self) -> frozenset[int]:
        """What it would give to its sink at this moment."""
        if self.dead or self.frozen_until > self.world.now or not self.member.holds(self.now):
            return frozenset()
        return frozenset(self.member.has)


class Whims:
    """A policy that wants something else now and then."""

    name = "whims"

    def __init__(self, world: "World") -> None:
        self._world = world

    def decide(self, seen: Observation) -> Decision:
        chance = self._world.random
        orphans = any(p.id not in seen.owners for p in seen.partitions)
        if not orphans and (self._world.calm or chance.random() < 0.9):
            return Decision(Action.NONE, notes=("a whim cannot be met",))
        who: list[str | None] = [each.id for each in seen.consumers if chance.random() < 0.8]
        if self._world.calm:
            who = [each.id for each in seen.consumers]
        who += [None] * chance.randrange(0, 2) or ([] if who else [None])
        parts: list[list[int]] = [[] for _ in who]
        for partition in range(PARTITIONS):
            parts[chance.randrange(len(who))].append(partition)
        members = tuple(Share(name, tuple(p)) for name, p in zip(who, parts, strict=True))
        return Decision(Action.UP, members, "a whim")


class Launcher:
    """The executor, played: processes begin a little later, or not at all. fleet: what it says that
    it knows; leavers: whom it was told to end"""

    abilities = Abilities()

    def __init__(self, world: "World") -> None:
        self._world = world
        self._begun: set[str] = set()
        self.fleet = Fleet()
        self.leavers: set[str] = set()

    def want(self, at: float, wanted: Wanted) -> None:
        self.leavers |= wanted.leavers
        for id_ in set(wanted.launches) - self._begun - self.fleet.running:
            self._begun.add(id_)
            assert id_ not in self._world.launched, "nothing is launched twice"
            self._world.launched.add(id_)
            if self._world.calm or self._world.random.random() < 0.9:
                self._world.births.append((self._world.now + NS // 2, id_))

    def seen(self) -> Fleet:
        return self.fleet

    def close(self) -> None:
        return None


@dataclass
class Leader(Actor):
    led: KafkaWorld = field(init=False)
    controller: Controller = field(init=False)
    launcher: Launcher = field(init=False)
    decide_at: int = 0
    pid: int = 0

    def __post_init__(self) -> None:
        effects: Any = self
        self.led = KafkaWorld(
            group=group(),
            process=Process("here", self.pid, 1),
            name="c",
            effects=effects,
            dead=lambda process: process.pid in self.world.deaths,
            seconds=lambda: self.now / NS,
            mu=lambda id_, said: None,
        )
        self.launcher = Launcher(self.world)
        self.controller = Controller(
            group=group(),
            world=self.led,
            executor=self.launcher,
            make=lambda slo, mu: Whims(self.world),
            startup_seconds=3.0,
            wall=lambda: "2026-11-29T08:00:00Z",
        )

    def step(self) -> None:
        self.led.see(self.read(), self.now)
        if self.offset < len(self.world.log) - 20 and self.led.direct is None:
            return
        self.controller.tick(self.now)
        if self.now >= self.decide_at:
            self.decide_at = self.now + NS // 10
            partitions = tuple(PartitionSeen(p, 10.0, 0.0) for p in range(PARTITIONS))
            reading = Reading(self.now / NS, partitions, {}, None, 0, 0)
            self.controller.decide(reading, self.now)


@dataclass
class World:
    seed: int
    loss: float = 0.03
    delay_ns: int = 60_000_000
    now: int = NS
    calm: bool = False
    names: int = 0
    pids: int = 0
    log: list[Word] = field(default_factory=list)
    flying: list[tuple[int, Word]] = field(default_factory=list)
    births: list[tuple[int, str]] = field(default_factory=list)
    launched: set[str] = field(default_factory=set)
    deaths: set[int] = field(default_factory=set)
    consumers: list[Consumer] = field(default_factory=list)
    leaders: list[Leader] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        for _ in range(2):
            self.leaders.append(Leader(self, self._speed(), pid=self._pid()))

    def _speed(self) -> float:
        return self.random.uniform(0.985, 1.015)

    def _pid(self) -> int:
        self.pids += 1
        return self.pids

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds * NS / STEP_NS)):
            self.now += STEP_NS
            self.log += [word for due, word in self.flying if due <= self.now]
            self.flying = [each for each in self.flying if each[0] > self.now]
            for due, id_ in self.births:
                if due <= self.now:
                    self.consumers.append(
                        Consumer(self, self._speed(), launch=id_, pid=self._pid())
                    )
            self.births = [each for each in self.births if each[0] > self.now]
            if not self.calm:
                self._disturb()
            actors: list[Consumer | Leader] = [*self.consumers, *self.leaders]
            self.random.shuffle(actors)
            for actor in actors:
                if not actor.dead and actor.frozen_until <= self.now:
                    actor.step()
                self.check()

    def _disturb(self) -> None:
        chance = self.random
        for actor in [*self.consumers, *self.leaders]:
            if chance.random() < 0.002:
                frozen = round(chance.uniform(0, 4 * LEASE) * NS)
                actor.frozen_until = max(actor.frozen_until, self.now + frozen)
        for consumer in self.consumers:
            if not consumer.dead and chance.random() < 0.0005:
                consumer.dead = True
                if chance.random() < 0.5:  # otherwise nobody can tell
                    self.deaths.add(consumer.pid)
        for number, leader in enumerate(self.leaders):
            if chance.random() < 0.0005:
                self.deaths.add(leader.pid)
                self.leaders[number] = Leader(self, self._speed(), pid=self._pid())

    def check(self) -> None:
        """No partition is used by two."""
        users: dict[int, str] = {}
        for consumer in self.consumers:
            for partition in consumer.uses():
                assert partition not in users, (
                    f"seed {self.seed}, {self.now / NS:.2f} s: partition {partition} is used by "
                    f"{users[partition]} and {consumer.member.name}"
                )
                users[partition] = consumer.member.name

    def settle(self) -> None:
        """Nothing goes wrong any more."""
        self.calm, self.loss = True, 0.0
        for actor in [*self.consumers, *self.leaders]:
            actor.frozen_until = 0

    def used(self) -> set[int]:
        return {partition for each in self.consumers for partition in each.uses()}
