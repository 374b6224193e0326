"""Landau's consumer (section 4.3) on a real Kafka: the parts of its cycle, and one that crashed.

A consumer reads a backlog of 1 to 64 partitions in batches of 5 MB, as in his Tables 4.1 and 4.2
and Fig. 4.5. His sink posts to BigQuery, which takes four fifths of his cycle; this one counts, so
nothing hides what partitions cost. Kafka gives it the partitions (KIP-848): no controller is there.

Two groups of two consumers then serve the same events, more than one consumer could, and crash in
turns. One is the product's under its controller, which gives the partitions to others. The other is
his way (4.3.4): a consumer that is back takes up what it had. The product's reader plays it, is
told its partitions as it starts, and is started again at once, which no cluster does.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from confluent_kafka import Producer

from benchmarks.autoscaler.live.crashes import HIS, MU, PARTITIONS, RATE, Crashes, crash_in_turns
from benchmarks.autoscaler.live.cycles import Cycle, read_cycles
from benchmarks.autoscaler.live.workers import write_group
from benchmarks.harness.bars import Bar, judge
from benchmarks.harness.kafka import events_kafka
from benchmarks.harness.machine import load_average
from benchmarks.harness.report import Report, span, tabulate
from benchmarks.harness.session import Session
from benchmarks.harness.world import child, until
from srtm.kafka.server import create_topic
from srtm.text.errors import UnavailableError

MESSAGE_BYTES = 123
"""of the only payload whose size he prints (section 4.2); for this test he prints none"""
BATCH_BYTES = 5_000_000
"""BATCH_BYTES of section 4.3.5"""
_BATCH = BATCH_BYTES // MESSAGE_BYTES
_WAIT = "1s"
"""WAIT_TIME_SECS of section 4.3.5"""
PRINTED = (
    ("Landau, 32 partitions", (0.394, 0.000775, 1.69, None), 2.08, 2.418855),
    ("Landau, 116 partitions", (0.462, 0.00684, 1.72, None), 2.18, 2.307501),
    ("Landau, 144 partitions", (0.397, 0.00896, 1.68, None), 2.08, 2.418220),
)
"""Table 4.2: seconds of its phases 1 to 3, of which the last commits too, of a cycle, and MB/s"""
_PHASES = ("gather", "process", "sink", "commit")

_READ_SECONDS = 90.0
_END_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Read:
    """One repetition of reading the backlog of so many partitions."""

    partitions: int
    repetition: int
    cycles: list[Cycle]

    @property
    def rate(self) -> float:
        """MB/s, from the end of the first cycle on, in which the consumer joins."""
        rest = self.cycles[1:]
        return sum(each.size for each in rest) / sum(each.seconds for each in rest) / 1e6


def run(session: Session) -> Report:
    quick = session.quick
    numbers = (1, 64) if quick else (1, 4, 16, 64)
    repetitions, cycles, rounds = (1, 4, 1) if quick else (5, 8, 6)
    session.plan(len(numbers) * (repetitions + 1) + rounds)
    load = load_average()
    with events_kafka(session.folder / "kafka", PARTITIONS, 500) as server:
        for partitions in numbers:
            session.step(f"a backlog in {partitions} partitions")
            _fill(server.address, partitions, cycles * _BATCH)
        reads = []
        for repetition in range(repetitions):
            for partitions in numbers:
                session.step(f"{partitions} partitions are read")
                folder = session.folder / f"read-{partitions}-{repetition}"
                found = _read(server.address, folder, partitions, cycles * _BATCH)
                reads.append(Read(partitions, repetition, found))
        crashes = crash_in_turns(session, server.address, rounds)
    rows: list[tuple[Any, ...]] = [*_rows(reads, numbers), *((*row, "") for row in PRINTED)]
    return Report(
        settings={
            "message_bytes": MESSAGE_BYTES,
            "batch_bytes": BATCH_BYTES,
            "cycles": cycles,
            "partitions": PARTITIONS,
            "events_per_second": RATE * PARTITIONS,
            "mu": MU,
        },
        figures={
            "reads": [
                {
                    "partitions": each.partitions,
                    "mb_per_second": each.rate,
                    "cycles": [{"bytes": c.size, **c.phases} for c in each.cycles],
                }
                for each in reads
            ],
            "stood_seconds": crashes.seconds,
            "lost": crashes.lost,
            "twice": crashes.twice,
            "load_average": load,
        },
        bars=bars(reads, crashes, "one short round" if quick else ""),
        tables=[
            tabulate(
                "a cycle of 5 MB (s), by the partitions of its consumer",
                rows,
                ("", lambda row: row[0]),
                *((name, lambda row, n=n: row[1][n]) for n, name in enumerate(_PHASES)),
                ("cycle", lambda row: row[2]),
                ("MB/s", lambda row: row[3]),
                ("range", lambda row: row[4]),
            ),
            tabulate(
                "a consumer crashes: its partitions stand still (s)",
                crashes.seconds.items(),
                ("", lambda row: row[0]),
                ("crashes", lambda row: str(len(row[1]))),
                ("median", lambda row: median(row[1])),
                ("range", lambda row: span(row[1])),
            ),
        ],
        notes=[
            "silent: the consumer is stopped, so its controller does not see it die, as on another "
            "host; the lease of 2 s has to be over",
            f"events done again by who took over: {crashes.twice}",
        ],
    )


def bars(reads: Sequence[Read], crashes: Crashes, doubt: str) -> list[Bar]:
    rates: dict[int, list[float]] = {}
    for each in reads:
        rates.setdefault(each.repetition, []).append(each.rate)
    evens = [min(found) / max(found) for found in rates.values()]
    return [
        judge("Fig. 4.5: MB/s, least over most by partitions", evens, at_least=0.9, doubt=doubt),
        *(
            judge(
                f"4.3.4: {arm}: seconds that partitions stand still, over his way",
                [a / b for a, b in zip(found, crashes.seconds[HIS], strict=True)],
                at_most=1.0,
                doubt=doubt,
            )
            for arm, found in crashes.seconds.items()
            if arm != HIS
        ),
        judge("4.3.4: events lost", [float(crashes.lost)], at_most=0.0),
    ]


def _rows(reads: Sequence[Read], numbers: Sequence[int]) -> Iterator[tuple[Any, ...]]:
    for partitions in numbers:
        mine = [each for each in reads if each.partitions == partitions]
        cycles = [cycle for each in mine for cycle in each.cycles[1:]]
        phases = [median(cycle.phases[name] for cycle in cycles) for name in _PHASES]
        rates = [each.rate for each in mine]
        name = f"ours, {partitions} partition{'s' * (partitions > 1)}"
        seconds = median(cycle.seconds for cycle in cycles)
        yield name, phases, seconds, median(rates), span(rates)


def _topic(partitions: int) -> str:
    return f"backlog-{partitions}"


def _fill(address: str, partitions: int, records: int) -> None:
    topic, value = _topic(partitions), bytes(MESSAGE_BYTES)
    create_topic(address, topic, partitions)
    room = {"queue.buffering.max.messages": records + 1, "queue.buffering.max.kbytes": 1 << 20}
    producer = Producer({"bootstrap.servers": address, "linger.ms": 50, **room})
    for number in range(records):
        producer.produce(topic, value, partition=number % partitions)
    left = producer.flush(_READ_SECONDS)
    if left:
        raise UnavailableError(f"Kafka did not take {left} records in {_READ_SECONDS:g} s")


def _read(address: str, folder: Path, partitions: int, records: int) -> list[Cycle]:
    folder.mkdir()
    group = {"topic": _topic(partitions), "id": folder.name, "slo": "0.99@1s"}
    table = {"batch": _BATCH, "batch-bytes": BATCH_BYTES, "wait": _WAIT}
    file = write_group(folder, address, {**group, "handover": "kip-848"}, table, (0.0, 0.0))
    out, log = folder / "cycles.jsonl", folder / "consumer.log"
    program = (sys.executable, "-m", "benchmarks.autoscaler.live.cycles", str(file), str(out))
    with child(program, log, _END_SECONDS):
        until(
            lambda: sum(each.size for each in read_cycles(out)) >= records * MESSAGE_BYTES,
            lambda: f"all is read: {log.read_text('utf-8', 'replace')[-500:]}",
            _READ_SECONDS,
        )
    return read_cycles(out)
