"""The consumers, as programs: ours, plain ones of both clients, and one that is told its partitions
as it starts. All write the same lines: when a batch began and ended, who worked on it, and each
event with the time when it was done."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.harness.world import write_toml

_HEAD = """
import json, os, signal, sys, time
from pathlib import Path

OUT = os.open(Path(__file__).parent / f"batches-{os.getpid()}.jsonl",
              os.O_WRONLY | os.O_CREAT | os.O_APPEND)
BATCH_SECONDS, EVENT_SECONDS = float(sys.argv[1]), float(sys.argv[2])


def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def work(events):
    begun, done = now(), []
    for number, (partition, value) in enumerate(events, 1):
        left = begun + BATCH_SECONDS + number * EVENT_SECONDS - now()
        if left > 0:
            time.sleep(left)
        done.append([partition, value.decode(), now()])
    return begun, done


def keep(begun, done):
    os.write(OUT, (json.dumps([begun, now(), os.getpid(), done]) + "\\n").encode())
"""
_OURS = """
from srtm.consumer import consume


def process(records):
    return work([(each.partition, each.value) for each in records])


if __name__ == "__main__":
    sys.exit(consume(sys.argv[3], process=process, callback=lambda done, batch: keep(*done)))
"""
_PLAIN = """
over = []
signal.signal(signal.SIGTERM, lambda *_: over.append(1))
ADDRESS, STRATEGY, BEAT_MS, SESSION_MS = *sys.argv[3:5], *map(int, sys.argv[5:7])
MOVES = sys.argv[7] == "moves"  # a commit fails in the middle of a rebalance


def run(poll, commit):
    while not over:
        found = poll()
        if found:
            keep(*work(found))
            try:
                commit()
            except Exception:
                if not MOVES:
                    raise
"""
_CONFLUENT = """
from confluent_kafka import Consumer

consumer = Consumer({
    "bootstrap.servers": ADDRESS, "group.id": "workers", "enable.auto.commit": False,
    "auto.offset.reset": "earliest", "partition.assignment.strategy": STRATEGY,
    "heartbeat.interval.ms": BEAT_MS, "session.timeout.ms": SESSION_MS, "fetch.wait.max.ms": 20,
})
consumer.subscribe(["events"])


def poll():
    found = consumer.consume(50, 0.02)
    return [(each.partition(), each.value()) for each in found if not each.error()]


run(poll, lambda: consumer.commit(asynchronous=False))
consumer.close()
"""
_KAFKA_PYTHON = """
from kafka import KafkaConsumer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor

KINDS = {"range": RangePartitionAssignor, "cooperative-sticky": CooperativeStickyAssignor}
consumer = KafkaConsumer(
    "events", bootstrap_servers=ADDRESS, group_id="workers", enable_auto_commit=False,
    auto_offset_reset="earliest", partition_assignment_strategy=[KINDS[STRATEGY]],
    heartbeat_interval_ms=BEAT_MS, session_timeout_ms=SESSION_MS, fetch_max_wait_ms=20,
    max_poll_records=50, isolation_level="read_committed",
)


def poll():
    found = consumer.poll(timeout_ms=20).values()
    return [(each.partition, each.value) for records in found for each in records]


run(poll, consumer.commit)
consumer.close()
"""
_PERSISTED = """
from srtm.consumer.file import read_group_file
from srtm.consumer.reader import Reader

over = []
signal.signal(signal.SIGTERM, lambda *_: over.append(1))
file = read_group_file(Path(sys.argv[3]))
reader = Reader(file, file.consumer, f"persisted-{os.getpid()}")
reader.start(map(int, sys.argv[4:]))
while not over:
    records = reader.gather(lambda: bool(over))
    if records:
        keep(*work([(each.partition, each.value) for each in records]))
        reader.done(records)
    reader.commit()
reader.close()
"""
_TEXTS = {
    "ours": _HEAD + _OURS,
    "persisted": _HEAD + _PERSISTED,
    "confluent-kafka": _HEAD + _PLAIN + _CONFLUENT,
    "kafka-python": _HEAD + _PLAIN + _KAFKA_PYTHON,
}


@dataclass(frozen=True, slots=True)
class Batch:
    """begun, ended: seconds of the machine's clock; events: each with the time when it was done"""

    begun: float
    ended: float
    consumer: int
    partitions: tuple[int, ...]
    events: tuple[tuple[str, float], ...] = ()


def command(
    folder: Path, client: str, batch_seconds: float, event_seconds: float, *rest: str
) -> tuple[str, ...]:
    """The command line of one consumer in `folder`, where its program is written; it works so long
    on each batch, and on each event. rest: the group's file (and of `persisted` its partitions), or
    Kafka's address, the strategy, the heartbeat and the session timeout in ms, and whether
    partitions move (`moves`, `stays`)."""
    program = folder / "worker.py"
    program.write_text(_TEXTS[client])
    return (sys.executable, str(program), str(batch_seconds), str(event_seconds), *rest)


def write_group(
    folder: Path,
    kafka: str,
    group: Mapping[str, Any],
    consumer: Mapping[str, Any],
    seconds: tuple[float, float],
    controller: Mapping[str, Any] | None = None,
    kind: str = "consumer",
) -> Path:
    """The file of a group of our consumers. seconds: of work on a batch, and on an event; kind: of
    the group"""
    file = folder / "group.toml"
    worker = command(folder, "ours", *seconds, str(file))
    tables = {
        "kafka": {"bootstrap-servers": kafka, "group-type": kind},
        "group": {"topic": "events", "id": "workers", **group},
        "consumer": {"process": "given:here", **consumer},
        "executor": {"command": list(worker), "log-folder": "logs"},
    }
    return write_toml(file, tables | ({"controller": controller} if controller else {}))


def read_batches(folder: Path) -> list[Batch]:
    """What the consumers in `folder` have written so far, by its begin."""
    found = []
    for file in folder.glob("batches-*.jsonl"):
        for line in file.read_text().splitlines():
            begun, ended, consumer, done = json.loads(line)
            partitions = tuple(sorted({partition for partition, _, _ in done}))
            events = tuple((value, at) for _, value, at in done)
            found.append(Batch(begun, ended, consumer, partitions, events))
    return sorted(found, key=lambda each: each.begun)


_AROUND_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Move:
    """A partition's last batch with one consumer, and its first with another; stood: seconds in
    between, less what the new one worked on other batches meanwhile."""

    partition: int
    begun: float
    ended: float
    stood: float


def moves_of(batches: Sequence[Batch]) -> list[Move]:
    """Each change of a partition's consumer."""
    last: dict[int, Batch] = {}
    found = []
    for batch in batches:
        for partition in batch.partitions:
            before = last.get(partition)
            if before is not None and before.consumer != batch.consumer:
                at_work = _work(batches, batch.consumer, before.ended, batch.begun)
                stood = max(batch.begun - before.ended - at_work, 0.0)
                found.append(Move(partition, before.ended, batch.begun, stood))
            last[partition] = batch
    return found


def stays_of(batches: Sequence[Batch], moves: Sequence[Move], apart: float) -> list[float]:
    """apart: moves that are no further apart (seconds) are of one change of the group.

    For each change of the group, and each partition that stays with its consumer: the longest
    time that it stood still then, less its consumer's work on other batches."""
    found = []
    for begin, end, moved in _episodes(moves, apart):
        for partition in {p for batch in batches for p in batch.partitions} - moved:
            mine = [each for each in batches if partition in each.partitions
                    and each.ended > begin - _AROUND_SECONDS
                    and each.begun < end + _AROUND_SECONDS]  # fmt: skip
            gaps = [
                after.begun - before.ended
                - _work(batches, after.consumer, before.ended, after.begun)
                for before, after in pairwise(mine)
                if after.begun > begin and before.ended < end
            ]  # fmt: skip
            if gaps:
                found.append(max(0.0, *gaps))
    return found


def _episodes(moves: Sequence[Move], apart: float) -> list[tuple[float, float, set[int]]]:
    found: list[tuple[float, float, set[int]]] = []
    for move in sorted(moves, key=lambda each: each.begun):
        if found and move.begun < found[-1][1] + apart:
            begin, end, moved = found[-1]
            found[-1] = (begin, max(end, move.ended), moved | {move.partition})
        else:
            found.append((move.begun, move.ended, {move.partition}))
    return found


def _work(batches: Sequence[Batch], consumer: int, begin: float, end: float) -> float:
    return sum(
        max(0.0, min(each.ended, end) - max(each.begun, begin))
        for each in batches
        if each.consumer == consumer and each.begun < end and each.ended > begin
    )
