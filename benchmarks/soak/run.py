"""Does a deployment keep its promises for hours, whatever is done to it?

Two brokers by `srtm up`, publishers on both that always have more to send than the contract allows,
and a fault every few seconds, drawn by a seed: kills, freezes, a store that is copied, lost,
unlinked or put back, a second gateway of a broker's name, other placements. Afterwards each message
is looked for at nsqd itself, with the time that nsqd wrote into it.
"""

import random
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from rich.table import Table

from benchmarks.harness.bars import Bar, judge
from benchmarks.harness.report import Report, tabulate
from benchmarks.harness.session import Session
from benchmarks.soak.faults import Faults
from benchmarks.soak.world import BURST, PUBLISHERS, RATE, Sample, Verdict, World

_PAUSE_SECONDS = (0.5, 4.0)
_SAMPLE_SECONDS = 5.0
_QUICK_SECONDS = 15.0
_MINUTES = 10.0
_GROWTH = {"RSS": (1.1, 8 << 20), "descriptors": (1.0, PUBLISHERS + 4), "threads": (1.0, 1)}
"""Flat is: the last quarter's median is at most so many times the second quarter's, and so much
more. A gateway's figures move with its connections, Python's memory with its arenas."""


def soak(world: World, seconds: float, seed: int) -> tuple[Verdict, list[tuple[float, str]]]:
    """Faults for so long, and what became of the messages."""
    faults, pause = Faults(world, seed), random.Random(seed)
    world.publish()
    ends_at = time.monotonic() + seconds
    sampled_at = collected_at = time.monotonic()
    while time.monotonic() < ends_at:
        time.sleep(pause.uniform(*_PAUSE_SECONDS))
        faults.one()
        if time.monotonic() > sampled_at + _SAMPLE_SECONDS:
            world.sample()
            sampled_at = time.monotonic()
        if time.monotonic() > collected_at + 60:
            world.collect()
            collected_at = time.monotonic()
    return world.judge(), faults.log


def run(session: Session) -> Report:
    seconds = _QUICK_SECONDS if session.quick else 60 * (session.minutes or _MINUTES)
    seed = random.randrange(1 << 32)
    with World(session.folder) as world:
        verdict, log = soak(world, seconds, seed)
    return Report(
        settings={"seconds": seconds, "seed": seed, "rate": RATE, "burst": BURST,
                  "publishers": 2 * PUBLISHERS},
        figures=_figures(verdict, log),
        bars=_bars(verdict, session.quick),
        tables=[_messages(verdict), _processes(verdict)],
        notes=[f"{len(log)} faults; the same seed draws the same ones, at other instants"],
    )  # fmt: skip


def _figures(verdict: Verdict, log: list[tuple[float, str]]) -> dict[str, Any]:
    return {
        "sent": verdict.sent,
        "acknowledged": verdict.acknowledged,
        "stored": verdict.stored,
        "lost": [each.decode() for each in verdict.lost[:100]],
        "unexpected": [each.decode("ascii", "replace") for each in verdict.unexpected[:100]],
        "excess": verdict.excess,
        "faults": [[at - verdict.began_at, what] for at, what in log],
        "worst_interval": verdict.worst,
        "processes": verdict.samples,
    }


def growth(rows: list[Sample], column: int) -> tuple[float, float]:
    """Medians of the second quarter and of the last: the first is still warming up."""
    quarter = max(1, len(rows) // 4)
    second, last = rows[quarter : 2 * quarter] or rows, rows[-quarter:]
    return median(row[column] for row in second), median(row[column] for row in last)


def _bars(verdict: Verdict, quick: bool) -> list[Bar]:
    found = [
        judge("acknowledged and lost", [len(verdict.lost)], at_most=0),
        judge("stored and never sent", [len(verdict.unexpected)], at_most=0),
        judge("messages over the contract", [max(0.0, verdict.excess)], at_most=0),
    ]
    doubt = "too short to tell" if quick or verdict.seconds < 300 else ""
    for name, rows in sorted(verdict.samples.items()):
        if name.startswith("nsqd"):
            continue
        for column, (what, (times, more)) in enumerate(_GROWTH.items(), 1):
            before, after = growth(rows, column)
            over = max(0.0, after - before * times - more)
            found.append(judge(f"{name}: growth of {what}", [over], at_most=0, doubt=doubt))
    return found


def _messages(verdict: Verdict) -> Table:
    return tabulate(
        "messages",
        [verdict],
        ("sent", lambda it: it.sent),
        ("acknowledged", lambda it: it.acknowledged),
        ("stored", lambda it: it.stored),
        ("lost", lambda it: len(it.lost)),
        ("unexpected", lambda it: len(it.unexpected)),
        ("excess", lambda it: it.excess),
    )


def _processes(verdict: Verdict) -> Table:
    def grown(column: int, unit: float = 1.0) -> Callable[[tuple[str, list[Sample]]], str]:
        return lambda row: ", ".join(f"{each / unit:.0f}" for each in growth(row[1], column))

    return tabulate(
        "processes, second quarter of the run and last",
        sorted(verdict.samples.items()),
        ("process", lambda row: row[0]),
        ("RSS, MB", grown(1, 1e6)),
        ("descriptors", grown(2)),
        ("threads", grown(3)),
    )
