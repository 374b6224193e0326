"""Simulated groups for the autoscaler's benchmarks: workloads, cases, what came of them."""

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from benchmarks.harness.bars import Bar, judge
from benchmarks.harness.report import number, tabulate
from srtm.autoscaler.decision import Action, Policy
from srtm.autoscaler.policies import POLICIES, Settings, Trace
from srtm.autoscaler.simulator.arrivals import Arrivals
from srtm.autoscaler.simulator.run import Run, simulate
from srtm.autoscaler.simulator.setting import Setting
from srtm.autoscaler.simulator.workload import read_workload

FOLDER = "SRTM_WORKLOADS"
"""Environment variable: the folder with iot-10min.csv and nyc-taxi-2h.csv."""
_BESIDE = Path(__file__).parents[3] / "shared" / "workloads"
SLA_POINTS, MINUTES_SHARE = 2.0, 0.1
"""How near a paper's figures ours are to come: points of SLA, share of replica-minutes."""
TIMES = 2.0
"""The largest factor between our late events or scale actions and the paper's, either way. Two
points of SLA say nothing where the paper has less than two per cent of late events."""


@dataclass(frozen=True, slots=True)
class Workload:
    """rates: events/s by second. doubt: why a paper's figures cannot be judged on it, if they
    cannot. note: for the reader."""

    rates: list[float]
    note: str
    doubt: str = ""


def workload(file: str, generated: Callable[[], list[float]]) -> Workload:
    """The file where there is one, or a generated likeness. Raises UsageError for a file that is
    no workload."""
    folder = os.environ.get(FOLDER)
    path = (Path(folder) if folder else _BESIDE) / file
    if folder or path.exists():
        return Workload(read_workload(path), f"{file}: as recorded")
    note = f"{file}: not there (set {FOLDER}); a generated workload of its shape"
    return Workload(generated(), note, "a generated workload")


@dataclass(frozen=True, slots=True)
class Printed:
    """What a paper prints of a run; None: it does not. minutes: replica-minutes. why: why ours is
    not near it, where it is not. one_run: it is one run of something that varies a lot with chance
    (when each member's heartbeat comes): few seeds do not judge it, and the range is worth a
    look."""

    sla: tuple[float, ...] = ()
    minutes: float | None = None
    ups: float | None = None
    downs: float | None = None
    why: str = ""
    one_run: bool = False

    @property
    def ups_downs(self) -> str:
        return "-" if self.ups is None else f"{self.ups:g}/{self.downs:g}"


@dataclass(frozen=True)
class Case:
    """One line of a table: a policy against arrivals, once for each seed. arrivals: the events for
    a seed; trace: for policies that know it."""

    name: str
    policy: str
    setting: Setting
    arrivals: Callable[[int], Arrivals]
    trace: Trace | None = None
    printed: Printed = Printed()
    cooldown_seconds: float | None = None
    make: Callable[[Settings, Trace | None], Policy] | None = None


@dataclass
class Outcome:
    """The runs of a case, one for each seed."""

    case: Case
    runs: list[Run] = field(default_factory=list)

    def values(self, figure: str) -> list[float]:
        return [_FIGURES[figure](run) for run in self.runs]

    def median(self, figure: str) -> float:
        return median(self.values(figure))

    def mean(self, figure: str) -> float:
        return sum(self.values(figure)) / len(self.runs)

    def document(self) -> dict[str, Any]:
        printed = self.case.printed
        return {
            "name": self.case.name,
            "policy": self.case.policy,
            "paper": {
                "sla_percent": list(printed.sla),
                "replica_minutes": printed.minutes,
                "scale_ups": printed.ups,
                "scale_downs": printed.downs,
            },
            "runs": [run.summary() for run in self.runs],
            "notes": sorted({note for run in self.runs for note in run.notes}),
        }


_FIGURES: dict[str, Callable[[Run], float]] = {
    "sla": lambda run: float(100 * run.sla_share),
    "late": lambda run: float(100 * (1 - run.sla_share)),
    "minutes": lambda run: float(run.replica_minutes),
    "ups": lambda run: run.actions.get(Action.UP, 0),
    "downs": lambda run: run.actions.get(Action.DOWN, 0),
    "rebalances": lambda run: run.rebalances,
    "mean_ms": lambda run: 1e3 * float(run.latency.mean()),
    "throughput": lambda run: float(str(run.summary()["throughput"])),
    "max_s": lambda run: float(run.latency.max()),
}


def play(case: Case, seeds: Sequence[int]) -> Outcome:
    return Outcome(case, runs_of(case, seeds))


def runs_of(case: Case, seeds: Sequence[int]) -> list[Run]:
    """Run a case; a policy is made anew for each seed."""
    return [simulated(case, replace(case.setting, seed=seed)) for seed in seeds]


def simulated(case: Case, setting: Setting) -> Run:
    """One run, in a setting that may differ from the case's own."""
    settings = Settings(
        setting.slo,
        setting.mu,
        setting.decision_seconds,
        cooldown_seconds=case.cooldown_seconds,
        handover=setting.handover,
    )
    make = case.make or POLICIES[case.policy]
    return simulate(make(settings, case.trace), case.arrivals(setting.seed), setting)


def against_paper(outcome: Outcome, quick: bool, doubt: str = "") -> list[Bar]:
    """The distance to what the paper prints, either way: points of SLA, times its late events, per
    cent of replica-minutes, times its scale actions."""
    case, printed = outcome.case, outcome.case.printed
    if quick and printed.one_run:
        doubt = doubt or "its median needs more seeds"

    def bar(what: str, values: Sequence[float], at_most: float) -> Bar:
        name = f"{case.name}: {what} the paper"
        found = judge(name, values, at_most=at_most, quick=quick, doubt=doubt)
        return replace(found, why=printed.why) if found.met is False else found

    bars = []
    if printed.sla:
        sla = outcome.values("sla")
        away = [min(abs(v - p) for p in printed.sla) for v in sla]
        bars.append(bar("SLA, points from", away, SLA_POINTS))
        late = [min(times(100 - v, 100 - p) for p in printed.sla) for v in sla]
        bars.append(bar("late events, times those of", late, TIMES))
    if printed.minutes is not None:
        off = [abs(value / printed.minutes - 1) for value in outcome.values("minutes")]
        shares = [100 * each for each in off]
        bars.append(bar("replica-minutes, % from", shares, 100 * MINUTES_SHARE))
    for figure, count in (("ups", printed.ups), ("downs", printed.downs)):
        if count is not None:
            found = [times(value, count) for value in outcome.values(figure)]
            bars.append(bar(f"scale-{figure}, times those of", found, TIMES))
    return bars


def times(one: float, other: float) -> float:
    """How many times the smaller goes into the larger; 1 where they are the same, 0 too."""
    small, large = sorted((one, other))
    if large - small < 1e-9:
        return 1.0
    return large / small if small > 1e-9 else math.inf


def table_of(title: str, outcomes: Sequence[Outcome]) -> Table:
    """Ours (median and range over the seeds) beside the paper's."""
    return tabulate(
        title,
        outcomes,
        ("run", lambda each: each.case.name),
        ("SLA %", lambda each: f"{each.median('sla'):.2f}"),
        ("range", lambda each: _span(each.values("sla"))),
        ("paper", lambda each: " or ".join(f"{p:g}" for p in each.case.printed.sla) or "-"),
        ("replica-min", lambda each: f"{each.median('minutes'):.2f}"),
        ("range", lambda each: _span(each.values("minutes"))),
        ("paper", lambda each: number(each.case.printed.minutes, 4)),
        ("ups/downs", lambda each: f"{each.median('ups'):g}/{each.median('downs'):g}"),
        ("paper", lambda each: each.case.printed.ups_downs),
        ("rebalances", lambda each: f"{each.median('rebalances'):g}"),
        ("mean ms", lambda each: each.median("mean_ms")),
        ("max s", lambda each: each.median("max_s")),
    )


def _span(values: Sequence[float]) -> str:
    return f"{min(values):.1f} .. {max(values):.1f}"


TITLES = {
    "sla": "in time, %",
    "late": "late, %",
    "minutes": "replica-minutes",
    "ups": "scale-ups",
    "downs": "scale-downs",
    "mean_ms": "time in the system, ms",
    "throughput": "throughput, events/s",
}


@dataclass(frozen=True, slots=True)
class Claim:
    """where: table, figure or section; figure: of TITLES; order: runs, from the most of it to the
    least; printed: the paper's figures in that order, in any unit; why: what ours hangs on, or why
    it comes out otherwise"""

    where: str
    figure: str
    order: tuple[str, ...]
    printed: tuple[float, ...] = ()
    why: str = ""

    @property
    def name(self) -> str:
        return f"{self.where}: {TITLES[self.figure]}: {' > '.join(self.order)}"

    def judged(self, outcomes: Mapping[str, Outcome], by_mean: bool) -> "Judged":
        found = [outcomes[run] for run in self.order if run in outcomes]
        ours = [each.mean(self.figure) if by_mean else each.median(self.figure) for each in found]
        return Judged(self, tuple(ours) if len(ours) == len(self.order) else ())


@dataclass(frozen=True, slots=True)
class Judged:
    """ours: figures in the paper's order; empty where a run is missing"""

    claim: Claim
    ours: tuple[float, ...]

    @property
    def reversed(self) -> list[str]:
        """Neighbours of which the second has as much or more."""
        names = pairwise(self.claim.order)
        return [
            f"{less} over {more}"
            for (more, less), (high, low) in zip(names, pairwise(self.ours), strict=True)
            if low >= high
        ]

    @property
    def verdict(self) -> str:
        if not self.ours:
            return "not run"
        return f"reversed: {', '.join(self.reversed)}" if self.reversed else "reproduced"

    def bar(self, doubt: str) -> Bar:
        count = [float(len(self.reversed))] if self.ours else []
        unsure = doubt or ("" if count else "not run")
        bar = judge(self.claim.name, count, at_most=0.0, doubt=unsure)
        return replace(bar, why=self.claim.why) if bar.met is False else bar


def judge_claims(
    claims: Iterable[Claim],
    outcomes: Sequence[Outcome],
    doubt: str = "",
    by_mean: bool = False,
) -> tuple[Table, list[Bar]]:
    """A row and a bar for each: how many neighbours of its order are the other way round.

    doubt: why this run cannot tell; by_mean: over the seeds, as the paper's are; else medians
    """
    named = {outcome.case.name: outcome for outcome in outcomes}
    found = [claim.judged(named, by_mean) for claim in claims]
    made = tabulate(
        "the papers' orderings, each from the most to the least",
        found,
        ("where", lambda each: each.claim.where),
        ("figure", lambda each: TITLES[each.claim.figure]),
        ("order", lambda each: " > ".join(each.claim.order)),
        ("paper", lambda each: " > ".join(number(v, 4) for v in each.claim.printed) or "-"),
        ("ours", lambda each: ", ".join(number(v, 4) for v in each.ours) or "-"),
        ("verdict", lambda each: each.verdict),
        ("why", lambda each: each.claim.why),
    )
    return made, [each.bar(doubt) for each in found]
