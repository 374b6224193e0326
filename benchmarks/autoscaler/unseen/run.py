"""Ours on generated workloads that it has not met, against every rival and every constant group.

Eighty-four cases: seven shapes of a load (walk, crowds, tides, steps, ramps, on-off, spikes), asked
for 90, 99 and 99.9 %, four seeds each; even, skewed and moving shares of nine partitions; Poisson
arrivals and a second's events at once; cold starts of one consumer and warm ones. In those of the
last seed consumers differ: 140, 200 and 260 events/s, in the order of their launches. The seeds are
none of those that the policy's constants were chosen on (`python -m benchmarks tune`).

What has to be kept in a case is what was asked, or what the best rival attained where that is less:
a group of nine from the first second on is among them, and knows nothing of a cost. The cheapest
rival that keeps it is chosen afterwards, among fourteen policies and up to nine constant groups.

Ours runs once more with a contract that the arrivals just keep to: it then expects no more.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.autoscaler.closer import POLICIES_COMPARED
from benchmarks.autoscaler.rivals import OURS
from benchmarks.autoscaler.unseen.cases import (
    MIXED_MUS,
    MIXED_SEEDS,
    PARTITIONS,
    REPORTED_SEEDS,
    SHAPES,
    Case,
    reported,
)
from benchmarks.harness.bars import Bar, judge, judge_worst
from benchmarks.harness.report import Picture, Report, tabulate
from benchmarks.harness.session import Session, side_by_side
from srtm.autoscaler.decision import Action, Decision, Handover, Member, Policy
from srtm.autoscaler.observation import Observation
from srtm.autoscaler.policies import POLICIES, Settings
from srtm.autoscaler.policies.srtm import Srtm
from srtm.autoscaler.policies.srtm.tuning import TUNING, Tuning
from srtm.autoscaler.policies.taken_back import TakenBack
from srtm.autoscaler.simulator.run import simulate

SECONDS, QUICK_SECONDS = 900, 240
QUICK_EVERY = 8
"""With --quick, one in this many of the reported cases is played."""
QUICK_CASE_SECONDS = 8.0
POINTS = 0.1
"""Points of SLA within which a level is kept."""
KEPT_PERCENT, MEAN_RATIO, WORST_RATIO = 90.0, 0.95, 1.15
ROUNDING = 1e-9
BOUNDED = f"{OURS}, bounded"
"""Ours, told of a contract."""


CONSTANT = "constant "
TUNED = ("latency", "li-ku-tuned")
"""The HPA on predicted latency, and Li-Ku as its paper would have it go on."""


class Constant:
    """A group of `count` from the first decision on, its partitions dealt out in turn."""

    def __init__(self, count: int) -> None:
        self.name = f"{CONSTANT}{count}"
        self._count = count
        self._begun = False

    def decide(self, seen: Observation) -> Decision:
        names = [c.id for c in seen.consumers][: self._count]
        begun, self._begun = self._begun, True
        if begun or len(seen.consumers) == self._count:
            return Decision(Action.NONE)
        group: list[str | None] = [*names, *[None] * (self._count - len(names))]
        ids = [p.id for p in seen.partitions]
        members = tuple(
            Member(name, tuple(ids[place :: self._count])) for place, name in enumerate(group)
        )
        action = Action.UP if self._count > len(seen.consumers) else Action.DOWN
        return Decision(action, members, f"always {self._count}", handover=Handover.DIRECT)


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one policy in one case. share: events in time; minutes: replica-minutes."""

    policy: str
    share: float
    minutes: float
    changes: int

    def document(self) -> dict[str, Any]:
        return {
            "policy": self.policy,
            "sla_percent": round(100 * self.share, 4),
            "replica_minutes": round(self.minutes, 3),
            "changes": self.changes,
        }


def rivals_of(case: Case) -> tuple[str, ...]:
    """The papers' policies, those that aim at the SLO of themselves, and the constant groups that
    serve the mean rate."""
    constants = (f"{CONSTANT}{count}" for count in range(case.least, PARTITIONS + 1))
    return (*POLICIES_COMPARED, *TUNED, *constants)


def policy_of(name: str, case: Case, tuning: Tuning = TUNING) -> Policy:
    setting = case.setting
    if name.startswith(CONSTANT):
        return Constant(int(name.removeprefix(CONSTANT)))
    if name in (OURS, BOUNDED):
        ceiling = case.ceiling if name == BOUNDED else None
        made = Srtm(setting.slo, setting.decision_seconds, tuning=tuning, ceiling=ceiling)
        return TakenBack(made, setting.slo)
    settings = Settings(setting.slo, setting.mu, setting.decision_seconds)
    return POLICIES[name](settings, None)


def played(case: Case, name: str, tuning: Tuning = TUNING) -> Result:
    run = simulate(policy_of(name, case, tuning), case.arrivals, case.setting)
    changes = sum(n for action, n in run.actions.items() if action is not Action.NONE)
    return Result(run.policy, float(run.sla_share), float(run.replica_minutes), changes)


def _all(case: Case, names: tuple[str, ...], tuning: Tuning) -> list[Result]:
    np.seterr(all="ignore")
    return [played(case, name, tuning) for name in names]


def play_all(
    jobs: list[tuple[Case, tuple[str, ...]]], processes: int, tuning: Tuning = TUNING
) -> Iterator[list[Result]]:
    """The results of the jobs in their order, each as soon as it is there."""
    return side_by_side([partial(_all, case, names, tuning) for case, names in jobs], processes)


@dataclass(frozen=True, slots=True)
class Judged:
    """One case. level: the share of events in time that was to be kept."""

    case: Case
    ours: Result
    rivals: tuple[Result, ...]
    bounded: Result | None = None

    @property
    def best(self) -> float:
        return max(rival.share for rival in self.rivals)

    @property
    def level(self) -> float:
        return min(self.case.asked, self.best)

    def keeps(self, result: Result) -> bool:
        return result.share >= self.level - POINTS / 100 - ROUNDING

    @property
    def kept(self) -> bool:
        return self.keeps(self.ours)

    @property
    def cheapest(self) -> Result:
        """The rival that keeps the level with the fewest replica-minutes: known afterwards only."""
        keeping = [rival for rival in self.rivals if self.keeps(rival)]
        return min(keeping, key=lambda rival: rival.minutes)

    @property
    def better(self) -> list[Result]:
        """The rivals that attain more with fewer replica-minutes, the cheapest first."""
        found = [
            rival
            for rival in self.rivals
            if rival.share > self.ours.share + ROUNDING
            and rival.minutes < self.ours.minutes - ROUNDING
        ]
        return sorted(found, key=lambda rival: rival.minutes)

    @property
    def ratio(self) -> float:
        """Replica-minutes, ours to the cheapest rival's."""
        return self.ours.minutes / self.cheapest.minutes

    def document(self) -> dict[str, Any]:
        return {
            "case": self.case.name,
            "level": round(100 * self.level, 4),
            "kept": self.kept,
            "ratio": round(self.ratio, 4),
            "cheapest": self.cheapest.policy,
            "ours": self.ours.document(),
            "bounded": self.bounded.document() if self.bounded else None,
            "rivals": [rival.document() for rival in self.rivals],
        }


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values)) if values else math.nan


def bars(judged: Sequence[Judged], doubt: str = "") -> list[Bar]:
    """doubt: why a run cannot tell."""
    ratios = [each.ratio for each in judged if each.kept]
    kept = [100 * sum(each.kept for each in judged) / len(judged)] if judged else []
    mean = [geometric_mean(ratios)] if ratios else []
    asked = "cases that keep what was asked, or what the best rival attained"
    minutes = "replica-minutes to the cheapest rival's where both keep it"
    better = [float(sum(bool(each.better) for each in judged))] if judged else []
    return [
        judge(f"{asked}, within {POINTS} points, %", kept, at_least=KEPT_PERCENT, doubt=doubt),
        judge(f"{minutes}, geometric mean", mean, at_most=MEAN_RATIO, doubt=doubt),
        judge_worst(f"{minutes}, worst", ratios, at_most=WORST_RATIO, doubt=doubt),
        judge("cases in which a rival is better in both", better, at_most=0, doubt=doubt),
        *_bounded_bars(judged, doubt),
        *_tuned_bars(judged, doubt),
    ]


def _bounded_bars(judged: Sequence[Judged], doubt: str) -> list[Bar]:
    """Ours with a contract to ours without one."""
    pairs = [(each, each.bounded) for each in judged if each.bounded is not None]
    if not pairs:
        return []
    more = [float(sum(each.keeps(bounded) - each.kept for each, bounded in pairs))]
    ratios = [bounded.minutes / each.ours.minutes for each, bounded in pairs]
    return [
        judge("told of the contract, cases kept more than without", more, at_least=0, doubt=doubt),
        judge(
            "told of the contract, replica-minutes to those without, geometric mean",
            [geometric_mean(ratios)],
            at_most=1.0,
            doubt=doubt,
        ),
    ]


def _tuned_bars(judged: Sequence[Judged], doubt: str) -> list[Bar]:
    """What Li-Ku gains by tuning its thresholds, its paper's future work."""
    by_name = [({rival.policy: rival for rival in each.rivals}, each) for each in judged]
    more = [
        each.keeps(rivals["li-ku-tuned"]) - each.keeps(rivals["li-ku"])
        for rivals, each in by_name
        if "li-ku-tuned" in rivals
    ]
    name = "li-ku-tuned: cases kept more than by li-ku"
    return [judge(name, [float(sum(more))], at_least=1, doubt=doubt)] if more else []


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
    jobs = [(case, (OURS, BOUNDED, *rivals_of(case))) for case in cases]
    judged = []
    for case, (ours, bounded, *rivals) in zip(
        cases, play_all(jobs, session.processes), strict=False
    ):
        session.step(case.name)
        judged.append(Judged(case, ours, tuple(rivals), bounded))
        if session.seconds_left < QUICK_CASE_SECONDS:
            break
    return judged


def table_of(judged: Sequence[Judged]) -> Table:
    return tabulate(
        f"{OURS} on generated workloads",
        judged,
        ("case", lambda each: each.case.name),
        ("level %", lambda each: f"{100 * each.level:.2f}"),
        (f"{OURS} %", lambda each: f"{100 * each.ours.share:.2f}"),
        ("kept", lambda each: "yes" if each.kept else "NO"),
        ("replica-min", lambda each: f"{each.ours.minutes:.1f}"),
        ("changes", lambda each: each.ours.changes),
        ("bounded %", lambda each: f"{100 * each.bounded.share:.2f}" if each.bounded else "-"),
        ("replica-min", lambda each: f"{each.bounded.minutes:.1f}" if each.bounded else "-"),
        ("cheapest rival", lambda each: each.cheapest.policy),
        ("%", lambda each: f"{100 * each.cheapest.share:.2f}"),
        ("replica-min", lambda each: f"{each.cheapest.minutes:.1f}"),
        ("ratio", lambda each: f"{each.ratio:.2f}"),
        ("better in both", lambda each: ", ".join(r.policy for r in each.better[:2]) or "-"),
    )


def shapes_table(judged: Sequence[Judged]) -> Table:
    """The table of figures by shape and by what was asked."""
    asked = sorted({each.case.asked for each in judged})
    groups = {shape: [j for j in judged if j.case.name.startswith(shape)] for shape in SHAPES}
    groups |= {f"{100 * a:g} %": [j for j in judged if j.case.asked == a] for a in asked}
    groups["consumers that differ"] = [j for j in judged if j.case.setting.mus]

    def ratio(group: Sequence[Judged]) -> float | None:
        ratios = [each.ratio for each in group if each.kept]
        return geometric_mean(ratios) if ratios else None

    return tabulate(
        "by shape and by what was asked",
        [(name, group) for name, group in groups.items() if group],
        ("cases", lambda row: row[0]),
        ("number", lambda row: len(row[1])),
        ("kept", lambda row: sum(each.kept for each in row[1])),
        ("ratio where kept", lambda row: ratio(row[1])),
    )


def draw(figure: Picture, judged: Sequence[Judged]) -> None:
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
