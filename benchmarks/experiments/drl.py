"""SRTM Fig. 6 in virtual time at its own scale: one topic over 1 to 6 brokers."""

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

from rich.table import Table

from benchmarks.experiments.scale import paper_scale
from benchmarks.experiments.scenario import BROKERS, Scenario
from benchmarks.experiments.simulated import Effort, Simulated
from benchmarks.harness.bars import Bar, judge_worst
from benchmarks.harness.report import number, table

LIGHT, HEAVY = Scenario("6a", 1_000), Scenario("6b", 6_000)
PAPER_MS = 14.7
"""SRTM Fig. 6a at k = 6, the one figure that its text gives"""
_EFFORT, _QUICK_EFFORT = Effort(10, 100_000), Effort(3, 40_000)

Row = tuple[float, float, float]
"""p50, p95 and p99 in seconds, means of the repetitions"""


def simulated(scenario: Scenario, quick: bool) -> list[Row]:
    """p50, p95 and p99 by number of brokers, from 1 on."""
    world = Simulated(scenario, paper_scale(), _QUICK_EFFORT if quick else _EFFORT)
    found = []
    for count in range(1, BROKERS + 1):
        seen = world.seen("max-min" if count > 1 else "single", count)
        rows = [[each.latency(p) for p in (0.5, 0.95, 0.99)] for each in seen]
        p50, p95, p99 = (fmean(row[at] for row in rows) for at in range(3))
        found.append((p50, p95, p99))
    return found


def fig_6_table(light: Sequence[Row], heavy: Sequence[Row]) -> Table:
    made = table(
        "SRTM Fig. 6, simulated at its scale: Poisson publishers x 10 msg/s over k brokers; ms",
        *("k", "6a: p50", "p95", "p99", "SRTM's p99", "6b: p50", "p95", "p99"),
    )
    for k, (one, other) in enumerate(zip(light, heavy, strict=True), 1):
        paper = number(PAPER_MS) if k == BROKERS else ""
        shown = [number(each * 1e3) for each in (*one, *other)]
        made.add_row(str(k), *shown[:3], paper, *shown[3:])
    return made


def fig_6_bars(light: Sequence[Row], heavy: Sequence[Row]) -> list[Bar]:
    """6a: each broker more makes p99 longer. 6b: two brokers are best, one is overloaded."""
    steps = [after[2] / before[2] for before, after in pairwise(light)]
    others = [row[2] / heavy[1][2] for k, row in enumerate(heavy, 1) if k != 2]
    longer = "Fig. 6a simulated: p99 with a broker more over that without, smallest"
    worse = "Fig. 6b simulated: p99 of any other k over that of k = 2, smallest"
    return [
        judge_worst(longer, steps, at_least=1.0),
        judge_worst(worse, others, at_least=1.0),
    ]
