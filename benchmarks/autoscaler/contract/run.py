"""The policy `contract` against 10,000 random arrivals that its contract allows.

Half of them meet a Kafka group of two to eight partitions, half a pool of an NSQ channel, each with
a contract, a target and surroundings of its own. Every second one strikes: it is the one before it
until a moment that is bad for what the policy did there (a launch or a hand-over has begun, or is
nearly over, or consumers have just been let go), and then all that the buckets have comes at once,
and r from then on. Partitions have a bucket of their share of (r, b) each, and get it all.

No event may be late, whatever the SLO's percentile is. The consumers are held against the fewest
with which any policy could do that (least.py): of constant groups, and while nothing comes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from rich.table import Table

from benchmarks.autoscaler.contract import least
from benchmarks.autoscaler.contract.cases import Played, drawn, kept_for_ever, play
from benchmarks.harness.bars import judge
from benchmarks.harness.report import Picture, Report, tabulate
from benchmarks.harness.session import Session, side_by_side

CASES, QUICK_CASES = 5_000, 400
"""Each is played twice."""
BLOCK = 50
MOST_RATIO = 1.05
FIRST_SEED = 1_000_000
"""The tests begin at 0."""


@dataclass(frozen=True, slots=True)
class Result:
    """for_ever, idle: consumers of the policy; the least ones: the fewest of any policy."""

    seed: int
    pooled: bool
    played: tuple[Played, Played]
    for_ever: int
    idle: int
    least_for_ever: int
    least_idle: int


def result_of(seed: int) -> Result:
    pooled = bool(seed % 2)
    case = drawn(seed, 1 if pooled else 2 + seed // 2 % 7)
    played = play(case, pooled)
    return Result(
        seed,
        pooled,
        played,
        kept_for_ever(case, pooled),
        played[0].idle,
        least.for_ever(case, pooled),
        least.idle(case, pooled),
    )


def _block(first: int) -> list[Result]:
    return [result_of(seed) for seed in range(first, first + BLOCK)]


def run(session: Session) -> Report:
    blocks = (QUICK_CASES if session.quick else CASES) // BLOCK
    session.plan(blocks)
    starts = [FIRST_SEED + BLOCK * block for block in range(blocks)]
    results: list[Result] = []
    for found in side_by_side([partial(_block, start) for start in starts], session.processes):
        session.step(f"{len(results) + BLOCK} cases")
        results += found
        if session.seconds_left < 5:
            break
    late = [float(each.late) for result in results for each in result.played]
    kinds = {"groups": False, "pools": True}
    bars = [judge("late events in all arrivals", [sum(late)], at_most=0)]
    for kind, pooled in kinds.items():
        some = [each for each in results if each.pooled is pooled]
        bars += [
            judge(
                f"{kind}: {what}, consumers to the fewest of any policy", ratio, at_most=MOST_RATIO
            )
            for what, ratio in (("for ever", _for_ever(some)), ("idle", _idle(some)))
        ]
    return Report(
        settings={"cases": len(results), "arrivals": 2 * len(results), "first seed": FIRST_SEED},
        figures={
            "events": sum(each.events for result in results for each in result.played),
            "late seeds": [r.seed for r in results if any(each.late for each in r.played)],
        },
        bars=bars,
        tables=[table_of(results)],
        notes=[
            "idle: at the end of a calm, when the policy has scaled in; the fewest of all need "
            "no hand-over to get there"
        ],
        draw=lambda figure: draw(figure, results),
    )


def _for_ever(results: Sequence[Result]) -> list[float]:
    whole = sum(each.least_for_ever for each in results)
    return [sum(each.for_ever for each in results) / whole] if results else []


def _idle(results: Sequence[Result]) -> list[float]:
    whole = sum(each.least_idle for each in results)
    return [sum(each.idle for each in results) / whole] if results else []


def table_of(results: Sequence[Result]) -> Table:
    rows = [
        (kind, struck, [r for r in results if r.pooled is pooled])
        for kind, pooled in (("group", False), ("pool", True))
        for struck in (0, 1)
    ]
    return tabulate(
        "random arrivals that a contract allows",
        [row for row in rows if row[2]],
        ("consumers", lambda row: row[0]),
        ("burst", lambda row: "at a bad moment" if row[1] else "at random"),
        ("arrivals", lambda row: len(row[2])),
        ("events", lambda row: sum(r.played[row[1]].events for r in row[2])),
        ("late", lambda row: sum(r.played[row[1]].late for r in row[2])),
        ("longest delay / target", lambda row: max(r.played[row[1]].longest_part for r in row[2])),
        ("scaled in", lambda row: sum(r.idle < r.for_ever for r in row[2])),
    )


def draw(figure: Picture, results: Sequence[Result]) -> None:
    """Draw how often the longest delay of an arrival was which part of the target."""
    axes = figure.add_subplot()
    for kind, pooled in (("groups", False), ("pools", True)):
        parts = [each.longest_part for r in results if r.pooled is pooled for each in r.played]
        axes.hist(parts, bins=50, range=(0.0, 1.1), histtype="step", label=kind)
    axes.axvline(1.0, color="grey")
    axes.set(xlabel="longest delay / target", ylabel="arrivals")
    axes.legend()
