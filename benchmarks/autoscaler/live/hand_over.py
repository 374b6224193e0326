"""How long a partition stands still as it changes hands, and those that stay: direct, by the
assignor, by KIP-848, and by what plain clients do, on a real Kafka.

Real consumers write down when each batch began and ended, and what was in it. A hand-over of a
partition lasts from the end of its last batch with its old consumer to the begin of its first one
with the new: less the time that the new one was at work on other batches meanwhile, since no
hand-over can interrupt a batch. Events come all the time, so a hand-over that takes no time would
show half of their distance.
"""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

from benchmarks.autoscaler.live.load import even_load
from benchmarks.autoscaler.live.mover import Mover
from benchmarks.autoscaler.live.workers import (
    command,
    moves_of,
    read_batches,
    stays_of,
    write_group,
)
from benchmarks.harness.bars import judge
from benchmarks.harness.kafka import events_kafka
from benchmarks.harness.machine import load_average
from benchmarks.harness.report import Report, number, table
from benchmarks.harness.session import Session
from benchmarks.harness.world import child, until
from srtm.consumer.file import read_group_file

PARTITIONS = 6
CONSUMERS = 3
RATE = 50.0
"""events/s of each partition"""
_ONE_CHANGE_SECONDS = 2.0
"""Moves that are no further apart than this belong to one change of the group: as a consumer comes
or goes, its partitions move one soon after the other."""
_SETTLED_SECONDS = 1.5
_CHANGE_SECONDS = 30.0
_BATCHES = "batches-*.jsonl"

Handover = Literal["direct", "assignor", "kip-848", "range", "cooperative-sticky"]


@dataclass(frozen=True, slots=True)
class Arm:
    """one_by_one: a partition at a time, by a controller; otherwise a consumer comes and goes.
    heartbeat_ms: of members with the broker"""

    name: str
    client: Literal["ours", "confluent-kafka", "kafka-python"]
    handover: Handover
    batch_seconds: float = 0.0
    heartbeat_ms: int = 500
    one_by_one: bool = False

    @property
    def is_judged(self) -> bool:
        return self.handover == "direct" and self.one_by_one


ARMS = (
    Arm("direct, idle", "ours", "direct", one_by_one=True),
    Arm("direct, 100 ms batches", "ours", "direct", 0.1, one_by_one=True),
    Arm("assignor, idle", "ours", "assignor", one_by_one=True),
    Arm("assignor, 100 ms batches", "ours", "assignor", 0.1, one_by_one=True),
    Arm("direct, one comes and goes", "ours", "direct"),
    Arm("assignor, one comes and goes", "ours", "assignor"),
    Arm("kip-848, heartbeat 500 ms", "ours", "kip-848"),
    Arm("kip-848, heartbeat 5 s", "ours", "kip-848", heartbeat_ms=5000),
    Arm("eager, confluent-kafka", "confluent-kafka", "range"),
    Arm("cooperative, confluent-kafka", "confluent-kafka", "cooperative-sticky"),
    Arm("eager, kafka-python", "kafka-python", "range"),
    Arm("cooperative, kafka-python", "kafka-python", "cooperative-sticky"),
)


def run(session: Session) -> Report:
    moves = 20 if session.quick else 100
    arms = [arm for arm in ARMS if arm.is_judged] if session.quick else list(ARMS)
    session.plan(len(arms))
    figures: dict[str, dict[str, Any]] = {}
    for number_, arm in enumerate(arms):
        session.step(arm.name)
        folder = session.folder / f"arm-{number_}"
        wanted = moves if arm.is_judged else moves // 2 if arm.one_by_one else moves // 4
        figures[arm.name] = _measure(arm, folder, wanted)
    return _report(arms, figures, moves, session.quick)


def _measure(arm: Arm, folder: Path, moves: int) -> dict[str, Any]:
    folder.mkdir(parents=True)
    load = load_average()
    with (
        events_kafka(folder / "kafka", PARTITIONS, arm.heartbeat_ms) as server,
        even_load(server.address, PARTITIONS, RATE),
    ):
        if arm.client == "ours":
            group = {
                "slo": "0.99@500ms",
                "mu": 1000.0,
                "handover": arm.handover,
                "min": CONSUMERS - 1,
                "max": CONSUMERS,
            }
            seconds = (arm.batch_seconds, 0.0)
            file = write_group(folder, server.address, group, {"wait": "1ms"}, seconds)
            Mover(read_group_file(file), folder, PARTITIONS, moves, arm.one_by_one).run()
        else:
            how = (server.address, arm.handover, str(arm.heartbeat_ms), "6000", "moves")
            worker = command(folder, arm.client, arm.batch_seconds, 0.0, *how)
            _come_and_go(worker, folder, moves)
    batches = read_batches(folder)
    moved = moves_of(batches)
    apart = 0.0 if arm.one_by_one else _ONE_CHANGE_SECONDS
    return {
        "moves": len(moved),
        **_quantiles("", [each.stood for each in moved]),
        **_quantiles("stay_", stays_of(batches, moved, apart)),
        "load_average": load,
    }


def _come_and_go(worker: Sequence[str], folder: Path, moves: int) -> None:
    """Let a plain consumer come and go until so many partitions have moved. Raises
    UnavailableError."""
    log = folder / "workers.log"

    def work(count: int) -> None:
        """Wait until so many consumers have worked on something."""
        until(
            lambda: sum(file.stat().st_size > 0 for file in folder.glob(_BATCHES)) >= count,
            lambda: f"{count} consumers work: {log.read_text('utf-8', 'replace')[-500:]}",
            _CHANGE_SECONDS,
        )

    with ExitStack() as stack:
        for _ in range(CONSUMERS - 1):
            stack.enter_context(child(worker, log))
        work(CONSUMERS - 1)
        while len(moves_of(read_batches(folder))) < moves:
            before = len(list(folder.glob(_BATCHES)))
            with child(worker, log) as guest:
                work(before + 1)
                time.sleep(_SETTLED_SECONDS)
                guest.terminate()
                guest.wait(_CHANGE_SECONDS)  # one that is killed would be a hand-over after a crash
            time.sleep(_SETTLED_SECONDS)


def _quantiles(prefix: str, seconds: list[float]) -> dict[str, float | None]:
    ranked = sorted(1e3 * each for each in seconds)

    def at(share: float) -> float | None:
        return ranked[min(int(share * len(ranked)), len(ranked) - 1)] if ranked else None

    return {
        f"{prefix}p50_ms": median(ranked) if ranked else None,
        f"{prefix}p90_ms": at(0.9),
        f"{prefix}p99_ms": at(0.99),
        f"{prefix}max_ms": ranked[-1] if ranked else None,
    }


def _report(arms: list[Arm], figures: dict[str, dict[str, Any]], moves: int, quick: bool) -> Report:
    shown = table(
        "a partition stands still, beyond the batches in hand (ms)",
        *("", "moves", "p50", "p90", "p99", "max", "stays: p50", "p99", "max"),
    )
    columns = ("p50_ms", "p90_ms", "p99_ms", "max_ms", "stay_p50_ms", "stay_p99_ms", "stay_max_ms")
    for name, row in figures.items():
        shown.add_row(name, str(row["moves"]), *(number(row[key]) for key in columns))
    bars = []
    for arm in [each for each in arms if each.is_judged]:
        row = figures[arm.name]
        doubt = f"{row['moves']} of {moves} moves" if quick or row["moves"] < moves else ""
        for share, most in (("p50", 50.0), ("p99", 150.0)):
            value = row[f"{share}_ms"]
            values = [value] if value is not None else []
            bars.append(judge(f"{arm.name}: {share} ms", values, at_most=most, doubt=doubt))
    settings = {
        "partitions": PARTITIONS,
        "consumers": CONSUMERS,
        "events_per_second": RATE * PARTITIONS,
        "moves": moves,
    }
    notes = [
        f"events of a partition are {1e3 / RATE:g} ms apart: half of that is in each figure",
        "direct and assignor move one partition at a time but where one comes and goes; the others "
        "move as a consumer comes and goes",
        "stays: the longest standstill of each partition that keeps its consumer, in each change",
    ]
    return Report(settings, {"standstill": figures}, bars, [shown], notes)
