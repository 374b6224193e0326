"""How long a partition stands still as it changes hands: direct, and by KIP-848, on a real Kafka.

Real consumers write down when each batch began and ended, and what was in it. A hand-over of a
partition lasts from the end of its last batch with its old consumer to the begin of its first one
with the new: less the time that the new one was at work on other batches meanwhile, since no
hand-over can interrupt a batch. Events come all the time, so a hand-over that takes no time would
show half of their distance.
"""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.harness.bars import judge
from benchmarks.harness.kafka import kafka
from benchmarks.harness.report import Report, number, table
from benchmarks.harness.session import Session
from srtm.autoscaler.decision import Action, Decision, Member
from srtm.autoscaler.executors.local import Local
from srtm.autoscaler.live.controller import Controller
from srtm.autoscaler.live.monitor import Reading
from srtm.autoscaler.live.states import State
from srtm.autoscaler.observation import Observation, PartitionSeen
from srtm.clock import NS, boottime_ns
from srtm.consumer.file import GroupFile
from srtm.consumer.log import GroupLog, make_topic
from srtm.consumer.process import here

PARTITIONS = 6
CONSUMERS = 3
RATE = 50.0
"""events/s of each partition"""
_ARM_SECONDS = 240.0
_WORKER = """
import json, os, sys, time
from pathlib import Path
from srtm.consumer import consume

HERE = Path(__file__).parent
OUT = os.open(HERE / f"{sys.argv[3]}-{os.getpid()}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
EACH = float(sys.argv[2])


def handle(records):
    begun = time.clock_gettime(time.CLOCK_BOOTTIME)
    time.sleep(EACH)
    return begun


def keep(begun, batch):
    ended = time.clock_gettime(time.CLOCK_BOOTTIME)
    os.write(OUT, (json.dumps([begun, ended, os.getpid(), sorted(batch.ranges)]) + "\\n").encode())


if __name__ == "__main__":
    sys.exit(consume(sys.argv[1], process=handle, callback=keep))
"""


@dataclass(frozen=True, slots=True)
class Arm:
    """moves: one partition at a time, or as the broker makes them when the number changes"""

    name: str
    handover: str
    batch_seconds: float
    heartbeat_ms: int


ARMS = (
    Arm("direct, idle", "direct", 0.0, 500),
    Arm("direct, 100 ms batches", "direct", 0.1, 500),
    Arm("kip-848, heartbeat 500 ms", "kip-848", 0.0, 500),
    Arm("kip-848, heartbeat 5 s", "kip-848", 0.0, 5000),
)


@dataclass(frozen=True, slots=True)
class Batch:
    """begun, ended: seconds of the machine's clock"""

    begun: float
    ended: float
    consumer: int
    partitions: tuple[int, ...]


def run(session: Session) -> Report:
    moves = 20 if session.quick else 100
    arms = ARMS[:2] if session.quick else ARMS
    session.plan(len(arms))
    found: dict[str, list[float]] = {}
    for number_, arm in enumerate(arms):
        session.step(arm.name)
        wanted = moves if arm.handover == "direct" else moves // 4
        found[arm.name] = _measure(arm, session.folder / f"arm-{number_}", wanted)
    return _report(found, moves, session.quick)


def _measure(arm: Arm, folder: Path, moves: int) -> list[float]:
    folder.mkdir(parents=True)
    beat = str(arm.heartbeat_ms)
    settings = {
        "group.consumer.heartbeat.interval.ms": beat,
        "group.consumer.min.heartbeat.interval.ms": beat,
    }
    with kafka(folder / "kafka", settings) as server:
        admin = AdminClient({"bootstrap.servers": server.address, "log_level": 0})
        admin.create_topics([NewTopic("events", PARTITIONS, 1)])["events"].result(20)
        group = _group(server.address, folder, arm)
        with _load(server.address):
            _Mover(group, folder, arm, moves).run()
    return standstills(_batches(folder))


def _group(address: str, folder: Path, arm: Arm) -> GroupFile:
    (folder / "worker.py").write_text(_WORKER)
    (folder / "group.toml").write_text(
        f'[kafka]\nbootstrap-servers = "{address}"\n'
        '[group]\ntopic = "events"\nid = "workers"\nslo = "0.99@500ms"\nmu = 1000\n'
        f'handover = "{arm.handover}"\nmin = {CONSUMERS - 1}\nmax = {CONSUMERS}\n'
        '[consumer]\nprocess = "given:here"\nwait = "1ms"\n'
    )
    values = {
        "kafka": {"bootstrap-servers": address},
        "group": {
            "topic": "events",
            "id": "workers",
            "slo": "0.99@500ms",
            "mu": 1000.0,
            "handover": arm.handover,
            "min": CONSUMERS - 1,
            "max": CONSUMERS,
        },
        "executor": {
            "command": (
                sys.executable,
                str(folder / "worker.py"),
                str(folder / "group.toml"),
                str(arm.batch_seconds),
                "batches",
            ),
            "log-folder": "logs",
        },
    }
    return GroupFile.model_validate(values)


@contextmanager
def _load(address: str) -> Iterator[None]:
    """Events to each partition in turn, at even distances."""
    over = threading.Event()

    def produce() -> None:
        producer = Producer(
            {"bootstrap.servers": address, "linger.ms": 0, "log.connection.close": False}
        )
        begun, sent = time.monotonic(), 0
        while not over.wait(0.002):
            while sent < (time.monotonic() - begun) * RATE * PARTITIONS:
                producer.produce("events", b"event", partition=sent % PARTITIONS)
                sent += 1
            producer.poll(0)
        producer.flush(5)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class _Mover:
    """The product's controller, with a policy that moves on purpose."""

    name = "mover"

    def __init__(self, file: GroupFile, folder: Path, arm: Arm, moves: int) -> None:
        self._moves = moves
        self._made = 0
        self._one_by_one = arm.handover == "direct"
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
        )

    def decide(self, seen: Observation) -> Decision:
        there = list(seen.consumers)
        if there and seen.rebalancing:
            return Decision(Action.NONE)
        count = len(seen.partitions)
        if len(there) < CONSUMERS - 1 or (self._one_by_one and len(there) < CONSUMERS):
            who: list[str | None] = [each.id for each in there]
            who += [None] * (CONSUMERS - len(who))
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
        if len(there) == CONSUMERS:
            kept = [Member(each.id, each.partitions) for each in there[:-1]]
            rest = tuple(there[-1].partitions)
            kept[0] = Member(kept[0].consumer, kept[0].partitions + rest)
            return Decision(Action.DOWN, tuple(kept), "one leaves")
        whole = [Member(each.id, each.partitions) for each in there]
        return Decision(Action.UP, (*whole, Member(None, ())), "one comes")

    def run(self) -> None:
        """Raises TimeoutError."""
        until = time.monotonic() + _ARM_SECONDS
        partitions = tuple(PartitionSeen(p, RATE, 0.0) for p in range(PARTITIONS))
        rest_ns = 0
        try:
            while self._made < self._moves:
                if time.monotonic() > until:
                    raise TimeoutError(f"{self._made} of {self._moves} moves in {_ARM_SECONDS:g} s")
                self._turn()
                now = boottime_ns()
                if self._controller.state is not State.SENTINEL:
                    rest_ns = now + NS // 4
                elif now > rest_ns:
                    reading = Reading(now / NS, partitions, {}, None, 0, 0)
                    self._controller.decide(reading, {}, now)
            self._settle(lambda: self._controller.state is State.SENTINEL)
            time.sleep(0.5)
        finally:
            self._settle(self._controller.dismiss)
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


def _batches(folder: Path) -> list[Batch]:
    found = []
    for file in folder.glob("batches-*.jsonl"):
        for line in file.read_text().splitlines():
            begun, ended, consumer, partitions = json.loads(line)
            found.append(Batch(begun, ended, consumer, tuple(partitions)))
    return sorted(found, key=lambda each: each.begun)


def standstills(batches: list[Batch]) -> list[float]:
    """Seconds for each change of a partition's consumer, beyond the batches in hand."""
    last: dict[int, Batch] = {}
    found = []
    for batch in batches:
        for partition in batch.partitions:
            before = last.get(partition)
            if before is not None and before.consumer != batch.consumer:
                at_work = sum(
                    max(0.0, min(each.ended, batch.begun) - max(each.begun, before.ended))
                    for each in batches
                    if each.consumer == batch.consumer and each.begun < batch.begun
                )
                found.append(max(batch.begun - before.ended - at_work, 0.0))
            last[partition] = batch
    return found


def _quantile(values: list[float], share: float) -> float:
    ranked = sorted(values)
    return ranked[min(int(share * len(ranked)), len(ranked) - 1)]


def _report(found: dict[str, list[float]], moves: int, quick: bool) -> Report:
    shown = table(
        "a partition stands still, beyond the batches in hand (ms)",
        *("", "moves", "p50", "p90", "p99", "max"),
    )
    figures: dict[str, Any] = {}
    for name, seconds in found.items():
        ms = [1e3 * each for each in seconds] or [float("nan")]
        row = {
            "moves": len(seconds),
            "p50_ms": median(ms),
            "p90_ms": _quantile(ms, 0.9),
            "p99_ms": _quantile(ms, 0.99),
            "max_ms": max(ms),
        }
        figures[name] = row
        shown.add_row(name, str(len(seconds)), *(number(row[key]) for key in list(row)[1:]))
    bars = []
    for name in [each for each in found if each.startswith("direct")]:
        doubt = f"{figures[name]['moves']} of {moves} moves" if quick else ""
        p50, p99 = figures[name]["p50_ms"], figures[name]["p99_ms"]
        bars.append(judge(f"{name}: p50 ms", [p50], at_most=50.0, doubt=doubt))
        bars.append(judge(f"{name}: p99 ms", [p99], at_most=150.0, doubt=doubt))
    settings = {
        "partitions": PARTITIONS,
        "consumers": CONSUMERS,
        "events_per_second": RATE * PARTITIONS,
        "moves": moves,
    }
    notes = [
        f"events of a partition are {1e3 / RATE:g} ms apart: half of that is in each figure",
        "by KIP-848 partitions move as a consumer comes and goes; direct moves one at a time",
    ]
    return Report(settings, {"standstill": figures}, bars, [shown], notes)
