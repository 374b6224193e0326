"""Two groups of two consumers serve the same events, more than one consumer could, and crash in
turns.

One group is the product's under its controller, which gives the partitions to others. The other is
Landau's (section 4.3.4): a consumer that is back takes up the partitions that it had. The product's
reader plays it, is told its partitions as it starts, and is started again at once.
"""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.autoscaler.live.controlled import controlled
from benchmarks.autoscaler.live.load import even_load
from benchmarks.autoscaler.live.workers import Batch, command, read_batches, write_group
from benchmarks.harness.session import Session
from benchmarks.harness.world import start, until
from srtm.host.clock import NS, boottime_ns
from srtm.text.address import free_addresses

PARTITIONS = 6
RATE = 40.0
"""events/s of each partition"""
MU = 200.0
"""events/s that a consumer serves: two are needed, and have room"""
_GROUP = {"slo": "0.99@500ms", "policy": "landau-mbfp", "mu": MU, "min": 2, "max": 2}
"""by his own policy: three partitions are what a consumer may have of his capacity"""
_CONSUMER = {"batch": 20, "wait": "5ms"}
KILLED, HIS, SILENT = "ours, killed", "his way, killed", "ours, silent"
_REST_SECONDS = 2.0
_BACK_SECONDS = 60.0
_END_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Crashes:
    """seconds: by arm, in order, until the last of the victim's partitions was read again; lost:
    events that no consumer of a group has done; twice: that one has done again"""

    seconds: dict[str, list[float]]
    lost: int
    twice: dict[str, int]


def crash_in_turns(session: Session, address: str, rounds: int) -> Crashes:
    """Let a consumer of each arm crash in turns. address: of a Kafka with the topic `events`.
    Raises UnavailableError."""
    ours, his = session.folder / "ours", session.folder / "his"
    for each in (ours, his):
        each.mkdir()
    door = str(free_addresses(1)[0])
    work = (0.0, 1 / MU)
    file = write_group(ours, address, _GROUP, _CONSUMER, work, {"http-address": door})
    arms = (KILLED, HIS) if session.quick else (KILLED, HIS, SILENT)
    seconds: dict[str, list[float]] = {each: [] for each in arms}
    with controlled(file, door, ours / "run.log") as group, _persisted(his, address) as again:
        group.settle(2)  # or the load of its start would wait: a backlog is another matter
        with even_load(address, PARTITIONS, RATE) as sent:
            for number in range(rounds):
                session.step(f"crash {number + 1}")
                for arm in arms:
                    _settle(ours, his)
                    how = signal.SIGSTOP if arm == SILENT else signal.SIGKILL
                    stood = _crash(his, how, again) if arm == HIS else _crash(ours, how)
                    seconds[arm].append(stood)
                    group.settle(2)
        done = {"ours": _done(ours, sent.count), "his way": _done(his, sent.count)}
    lost = sum(sent.count - len(each) for each in done.values())
    return Crashes(seconds, lost, {name: each.total() - len(each) for name, each in done.items()})


@contextmanager
def _persisted(folder: Path, address: str) -> Iterator[Callable[[int], None]]:
    """Two consumers that keep their partitions. Yields what starts one again: its pid is given."""
    file = write_group(folder, address, {**_GROUP, "id": "persisted"}, _CONSUMER, (0.0, 0.0))
    parts = [map(str, range(number, PARTITIONS, 2)) for number in range(2)]
    programs = [command(folder, "persisted", 0.0, 1 / MU, str(file), *each) for each in parts]
    log = folder / "consumers.log"
    running = [start(each, log) for each in programs]

    def again(pid: int) -> None:
        place = [each.pid for each in running].index(pid)
        running[place].wait(_END_SECONDS)
        running[place] = start(programs[place], log)

    try:
        yield again
    finally:
        for each in running:
            each.kill()
            each.wait()


def _settle(*folders: Path) -> None:
    """Wait until two consumers in each folder share the partitions, and lags are gone."""

    def shared() -> bool:
        shares = [Counter(owners(read_batches(each)).values()) for each in folders]
        return all(len(each) == 2 and min(each.values()) > 1 for each in shares)

    until(shared, "two consumers of each group work", _BACK_SECONDS, poll=0.5)
    time.sleep(_REST_SECONDS)


def _crash(folder: Path, how: signal.Signals, again: Callable[[int], None] | None = None) -> float:
    """Seconds until all partitions of the consumer that has most of them are read again."""
    known = owners(read_batches(folder))
    ((victim, _),) = Counter(known.values()).most_common(1)
    partitions = {each for each, owner in known.items() if owner == victim}
    os.kill(victim, how)
    at = boottime_ns() / NS
    if again is not None:
        again(victim)

    def back() -> dict[int, float]:
        return taken_up(read_batches(folder), partitions, victim, at)

    try:
        until(lambda: back().keys() == partitions, "they are read again", _BACK_SECONDS, poll=0.5)
    finally:
        if how == signal.SIGSTOP:
            os.kill(victim, signal.SIGKILL)
    return max(back().values())


def owners(batches: Sequence[Batch]) -> dict[int, int]:
    """Partition -> the consumer of its last batch."""
    return {partition: batch.consumer for batch in batches for partition in batch.partitions}


def taken_up(
    batches: Sequence[Batch], partitions: Set[int], victim: int, at: float
) -> dict[int, float]:
    """Seconds from `at` to the first batch of each partition with somebody else than the victim;
    a partition without one is missing."""
    found: dict[int, float] = {}
    for batch in batches:
        if batch.begun > at and batch.consumer != victim:
            for partition in partitions & set(batch.partitions):
                found.setdefault(partition, batch.begun - at)
    return found


def _done(folder: Path, count: int) -> Counter[str]:
    """How often each event was done; all of `count` are waited for."""
    deadline = time.monotonic() + _BACK_SECONDS
    while True:
        found = Counter(event for batch in read_batches(folder) for event, _ in batch.events)
        if len(found) >= count or time.monotonic() > deadline:
            return found
        time.sleep(0.5)
