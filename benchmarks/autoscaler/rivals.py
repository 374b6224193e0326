"""Ours against other policies, each at the share of events in time that it attains itself.

Ours keeps an SLO, and a rival attains anything: one run aimed at 0.99 says nothing of a rival at
0.94 or at 0.9995. So ours is run once for each rival, asked for what that rival attained.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

from rich.table import Table

from benchmarks.autoscaler.scaling import Case, Outcome, play, simulated
from benchmarks.harness.bars import Bar, judge
from benchmarks.harness.report import tabulate
from benchmarks.harness.session import Session, side_by_side
from srtm.autoscaler.simulator.run import Run

OURS = "srtm"
OURS_POINTS = 0.1
"""SLA points by which ours may be below a policy that it is compared with."""
ASKED_LOW, ASKED_HIGH = 0.50, 0.9995
"""Bounds of the percentile that ours is asked for: nobody asks for less, and more is no SLO."""


def play_for(rival: Outcome) -> Outcome:
    """Ours on the rival's arrivals, seed by seed, asked for the share of events in time that the
    rival attained (within ASKED_LOW and ASKED_HIGH); target and surroundings are the same."""
    outcome = Outcome(_asked_instead(rival.case))
    for run in rival.runs:
        share = min(ASKED_HIGH, max(ASKED_LOW, run.sla_share))
        slo = replace(run.setting.slo, percentile=share)
        outcome.runs.append(simulated(outcome.case, replace(run.setting, slo=slo)))
    return outcome


def contests(rivals: Sequence[Case], seed: int, processes: int) -> Iterator["Rivalry"]:
    """A rivalry for each rival: its run, and ours asked for what it attained. Rivals run side by
    side."""

    def runs(case: Case) -> tuple[list[Run], list[Run]]:
        rival = play(case, (seed,))
        return rival.runs, play_for(rival).runs

    jobs = [partial(runs, case) for case in rivals]
    for case, (theirs, ours) in zip(rivals, side_by_side(jobs, processes), strict=True):
        yield Rivalry(Outcome(case, theirs), Outcome(_asked_instead(case), ours))


def _asked_instead(rival: Case) -> Case:
    return replace(rival, policy=OURS, make=None, cooldown_seconds=None)


def contest(
    session: Session, cases: Sequence[Case], rivals: Sequence[str], seeds: Sequence[int]
) -> tuple[dict[str, Outcome], list["Rivalry"]]:
    """Every case by its name, then ours against those of them that `rivals` names."""
    session.plan(len(cases) + len(rivals))
    outcomes = {}
    for case in cases:
        session.step(case.name)
        outcomes[case.name] = play(case, seeds)
    rivalries = []
    for name in rivals:
        session.step(f"{OURS} against {name}")
        rivalries.append(Rivalry(outcomes[name], play_for(outcomes[name])))
    return outcomes, rivalries


@dataclass(frozen=True)
class Rivalry:
    """A rival's runs, and those of ours that were asked for what it attained."""

    rival: Outcome
    ours: Outcome

    @property
    def asked(self) -> list[float]:
        """What ours was asked for, by seed."""
        return [run.setting.slo.percentile for run in self.ours.runs]

    @property
    def points(self) -> list[float]:
        """SLA, ours less the rival's, by seed."""
        pairs = zip(self.ours.values("sla"), self.rival.values("sla"), strict=True)
        return [a - b for a, b in pairs]

    @property
    def ratios(self) -> list[float]:
        """Replica-minutes, ours to the rival's, by seed."""
        pairs = zip(self.ours.values("minutes"), self.rival.values("minutes"), strict=True)
        return [a / b for a, b in pairs]

    def bars(self, where: str) -> list[Bar]:
        """Two bars: ours has at least the rival's SLA less 0.1 points, at no more
        replica-minutes."""
        name = f"{where}: {OURS} against {self.rival.case.name.removeprefix(where + ': ')}"
        return [
            judge(f"{name}, SLA points", self.points, at_least=-OURS_POINTS),
            judge(f"{name}, replica-minutes ratio", self.ratios, at_most=1.0),
        ]

    def document(self) -> dict[str, Any]:
        return {
            "rival": self.rival.case.name,
            "asked": self.asked,
            "points": self.points,
            "ratios": self.ratios,
            "ours": self.ours.document(),
        }


def rivalries_table(title: str, rivalries: Sequence[Rivalry]) -> Table:
    """Medians over the seeds."""
    return tabulate(
        f"{title}: {OURS} asked for the SLA that each rival attained",
        rivalries,
        ("rival", lambda each: each.rival.case.name),
        ("SLA %", lambda each: f"{each.rival.median('sla'):.2f}"),
        ("replica-min", lambda each: f"{each.rival.median('minutes'):.2f}"),
        ("asked %", lambda each: f"{median(100 * share for share in each.asked):.2f}"),
        (f"{OURS} SLA %", lambda each: f"{each.ours.median('sla'):.2f}"),
        (f"{OURS} replica-min", lambda each: f"{each.ours.median('minutes'):.2f}"),
        ("SLA points", lambda each: f"{median(each.points):+.2f}"),
        ("replica-min ratio", lambda each: f"{median(each.ratios):.3f}"),
    )
