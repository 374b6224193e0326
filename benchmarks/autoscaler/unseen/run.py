"""Ours on generated workloads that it has not met, against every rival and every constant group.

Eighty-four cases: seven shapes of a load (walk, crowds, tides, steps, ramps, on-off, spikes), asked
for 90, 99 and 99.9 %, four seeds each; even, skewed and moving shares of nine partitions; Poisson
arrivals and a second's events at once; cold starts of one consumer and warm ones. In those of the
last seed consumers differ: 140, 200 and 260 events/s, in the order of their launches. The seeds are
none of those that the policy's constants were chosen on (`python -m benchmarks tune`).

What has to be kept in a case is what was asked, or what the best rival attained where that is less:
a group of nine from the first second on is among them, and knows nothing of a cost. The cheapest
rival that keeps it is chosen afterwards, among twelve policies and up to nine constant groups.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from benchmarks.autoscaler.unseen.cases import (
    MIXED_MUS,
    MIXED_SEEDS,
    PARTITIONS,
    REPORTED_SEEDS,
    Case,
    reported,
)
from benchmarks.autoscaler.unseen.judged import Judged, bars, geometric_mean
from benchmarks.autoscaler.unseen.players import OURS, play_all, rivals_of
from benchmarks.autoscaler.unseen.shapes import SHAPES
from benchmarks.harness.report import Report, number, table
from benchmarks.harness.session import Session

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SECONDS, QUICK_SECONDS = 900, 240
QUICK_EVERY = 8
"""With --quick, one in this many of the reported cases is played."""
QUICK_CASE_SECONDS = 8.0


def run(session: Session) -> Report:
    cases = list(reported(QUICK_SECONDS if session.quick else SECONDS))
    if session.quick:
        cases = cases[::QUICK_EVERY]
    session.plan(len(cases))
    judged = _judged(session, cases)
    doubt = f"{len(judged)} short cases" if session.quick else ""
    return Report(
        settings={
            "cases": len(judged),
            "seconds": QUICK_SECONDS if session.quick else SECONDS,
            "partitions": PARTITIONS,
            "seeds": [*REPORTED_SEEDS, *MIXED_SEEDS],
            "mus of the last seed": list(MIXED_MUS),
        },
        figures={"cases": [each.document() for each in judged]},
        bars=bars(judged, doubt),
        tables=[table_of(judged), shapes_table(judged)],
        notes=[
            "level: what was asked, or what the best rival attained where that is less; a constant "
            "group of nine is a rival, so nobody is excused from a surprise",
            "the cheapest rival is chosen afterwards, case by case: no policy could be that one",
        ],
        draw=lambda figure: draw(figure, judged),
    )


def _judged(session: Session, cases: list[Case]) -> list[Judged]:
    jobs = [(case, (OURS, *rivals_of(case))) for case in cases]
    judged = []
    for case, (ours, *rivals) in zip(cases, play_all(jobs, session.processes), strict=False):
        session.step(case.name)
        judged.append(Judged(case, ours, tuple(rivals)))
        if session.seconds_left < QUICK_CASE_SECONDS:
            break
    return judged


def table_of(judged: Sequence[Judged]) -> Table:
    made = table(
        f"{OURS} on generated workloads",
        *("case", "level %", f"{OURS} %", "kept", "replica-min", "changes", "cheapest rival", "%"),
        *("replica-min", "ratio"),
    )
    for each in judged:
        made.add_row(
            each.case.name,
            f"{100 * each.level:.2f}",
            f"{100 * each.ours.share:.2f}",
            "yes" if each.kept else "NO",
            f"{each.ours.minutes:.1f}",
            f"{each.ours.changes}",
            each.cheapest.policy,
            f"{100 * each.cheapest.share:.2f}",
            f"{each.cheapest.minutes:.1f}",
            f"{each.ratio:.2f}",
        )
    return made


def shapes_table(judged: Sequence[Judged]) -> Table:
    """The table of figures by shape and by what was asked."""
    made = table("by shape and by what was asked", "cases", "number", "kept", "ratio where kept")
    asked = sorted({each.case.asked for each in judged})
    groups = {shape: [j for j in judged if j.case.name.startswith(shape)] for shape in SHAPES}
    groups |= {f"{100 * a:g} %": [j for j in judged if j.case.asked == a] for a in asked}
    groups["consumers that differ"] = [j for j in judged if j.case.setting.mus]
    for name, group in groups.items():
        if group:
            ratios = [each.ratio for each in group if each.kept]
            made.add_row(
                name,
                str(len(group)),
                str(sum(each.kept for each in group)),
                number(geometric_mean(ratios)) if ratios else "-",
            )
    return made


def draw(figure: "Figure", judged: Sequence[Judged]) -> None:
    """Draw a point for each case: our share less its level, in points, and our replica-minutes to
    the cheapest rival's."""
    axes = figure.subplots(1, 1)
    for shape in SHAPES:
        group = [each for each in judged if each.case.name.startswith(shape)]
        points = [100 * (each.ours.share - each.level) for each in group]
        axes.scatter(points, [each.ratio for each in group], s=14, label=shape)
    axes.axvline(-0.1, color="grey")
    axes.axhline(1.0, color="grey")
    axes.set(xlabel=f"{OURS} less the level, points", ylabel="replica-minutes ratio")
    axes.legend(fontsize="x-small", ncols=2)
