"""Ours against a clairvoyant schedule: the same arrivals, hand-over, start-up and billing.

The clairvoyant knows every arrival and searches for the schedule with the fewest replica-minutes
that keeps the SLO; ours sees one second at a time. SLO 0.99@500ms (0.994 where a rebalance takes
2 s), mu 200/s, 5 partitions, start-up 5 s, one consumer at first. Both hand over directly, the back
end that ours has; what becomes of both under Kafka's eager protocol is shown without a bar.
The search is a heuristic, so its lower bound stands beside it: no schedule takes less.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import Any

from rich.table import Table

from benchmarks.autoscaler.rivals import OURS
from benchmarks.autoscaler.scaling import workload
from benchmarks.harness.bars import Bar, judge
from benchmarks.harness.report import Picture, Report, tabulate
from benchmarks.harness.session import Session, side_by_side
from srtm.autoscaler.decision import Handover
from srtm.autoscaler.policies.srtm import Srtm
from srtm.autoscaler.simulator.arrivals import ArrivalModel, arrivals_of, even_shares
from srtm.autoscaler.simulator.clairvoyant import ReplicaPlan, plan
from srtm.autoscaler.simulator.run import Run, simulate
from srtm.autoscaler.simulator.setting import Setting
from srtm.autoscaler.simulator.workload import iot_like, taxi_like
from srtm.limits.slo import SLO

SHARES = even_shares(5)
SEEDS = (1, 2, 3)
"""Seeds of Poisson arrivals; the other models leave nothing to chance when hand-overs are
direct."""
EFFORT, QUICK_EFFORT = 1.0, 0.1
"""The effort of the clairvoyant's search. A tenth finds schedules up to a few per cent dearer."""
_NEAR = 0.02
"""In a quick run, a ratio that is within this part of its bar decides nothing."""
SLICE_SECONDS = 1200
"""Seconds of the second workload that --quick plays: in fewer the start would weigh too much."""
DIRECT = Setting(SLO(0.99, 0.5), handover=Handover.DIRECT)
BURST, POISSON = ArrivalModel.BURST, ArrivalModel.POISSON


@dataclass(frozen=True)
class Match:
    """at_most: ours may take so many times the clairvoyant's replica-minutes; None: no bar."""

    name: str
    rates: Sequence[float]
    model: ArrivalModel
    setting: Setting
    at_most: float | None
    seeds: Sequence[int]


@dataclass
class Result:
    """One (ours, clairvoyant) for each seed."""

    match: Match
    pairs: list[tuple[Run, ReplicaPlan]] = field(default_factory=list)

    def ratios(self) -> list[float]:
        return [ours.replica_minutes / theirs.replica_minutes for ours, theirs in self.pairs]

    def sla_percents(self) -> list[float]:
        return [float(100 * ours.sla_share) for ours, _ in self.pairs]

    def document(self) -> dict[str, Any]:
        return {
            "name": self.match.name,
            "slo": str(self.match.setting.slo),
            "runs": [
                {
                    "seed": seed,
                    "ratio": ratio,
                    "ours": ours.summary(),
                    "clairvoyant": {
                        "sla_percent": float(100 * theirs.share),
                        "replica_minutes": theirs.replica_minutes,
                        "lower_bound": theirs.lower_bound,
                        "simulations": theirs.runs,
                        "keeps_slo": bool(theirs.keeps_slo),
                    },
                }
                for seed, ratio, (ours, theirs) in zip(
                    self.match.seeds, self.ratios(), self.pairs, strict=False
                )
            ],
        }


def run(session: Session) -> Report:
    quick = session.quick
    first = workload("iot-10min.csv", iot_like)
    second = workload("nyc-taxi-2h.csv", taxi_like)
    cut = second.rates[: SLICE_SECONDS if quick else None]
    matches = list(matched(first.rates, cut, quick))
    effort = QUICK_EFFORT if quick else EFFORT
    results = [Result(match) for match in matches]
    turns = [(result, seed) for result in results for seed in result.match.seeds]
    jobs = [partial(play, result.match, seed, effort) for result, seed in turns]
    session.plan(len(turns))
    slowest, before = 0.0, session.seconds_left
    for (result, seed), pair in zip(turns, side_by_side(jobs, session.processes), strict=True):
        session.step(f"{result.match.name}, seed {seed}")
        result.pairs.append(pair)
        if quick:
            slowest, before = max(slowest, before - session.seconds_left), session.seconds_left
            if before < slowest:
                break
    return Report(
        settings={
            "mu": DIRECT.mu,
            "startup_seconds": DIRECT.startup_seconds,
            "initial": DIRECT.initial,
            "lag_phase": DIRECT.lag_phase,
            "partitions": len(SHARES),
            "seeds": {"poisson": len(matches[0].seeds if quick else SEEDS), "burst": 1},
            "effort": effort,
            "slice_seconds": SLICE_SECONDS if quick else None,
        },
        figures={"matches": [result.document() for result in results]},
        bars=[bar for result in results for bar in bars(result, quick)],
        tables=[table_of(results)],
        notes=[
            first.note,
            second.note,
            "ratio: of replica-minutes, ours to the clairvoyant's; the bound is below every "
            "schedule that keeps the SLO, and mostly not reachable",
            "eager: heartbeats are chance to ours, and known to the clairvoyant: no bar",
        ],
        draw=lambda figure: draw(figure, results),
    )


def matched(first: Sequence[float], second: Sequence[float], quick: bool) -> list[Match]:
    """The matches: those with a bar, then the eager ones."""
    matches = []

    def add(
        name: str,
        rates: Sequence[float],
        setting: Setting,
        limits: dict[ArrivalModel, float | None],
    ) -> None:
        for model, at_most in limits.items():
            seeds = SEEDS if model is POISSON and not quick and at_most is not None else SEEDS[:1]
            matches.append(Match(f"{name}, {model.value}", rates, model, setting, at_most, seeds))

    for seconds in (0.05, 0.5):
        setting = replace(DIRECT, rebalance_seconds=seconds)
        add(f"first, {1e3 * seconds:g} ms", first, setting, {BURST: 1.10, POISSON: 1.20})
    slow = replace(DIRECT, slo=SLO(0.994, 0.5), rebalance_seconds=2.0)
    add("first, 2 s", first, slow, {BURST: 1.10, POISSON: 1.30})
    add("second, 500 ms", second, DIRECT, {BURST: 1.25, POISSON: 1.10})
    for beat in (3.0, 0.5):
        setting = replace(DIRECT, handover=Handover.EAGER, heartbeat_seconds=beat)
        name = f"first, 500 ms, eager, heartbeat {beat:g} s"
        add(name, first, setting, {BURST: None, POISSON: None})
    return matches


def play(match: Match, seed: int, effort: float) -> tuple[Run, ReplicaPlan]:
    """Ours, and the clairvoyant's plan, of the same arrivals."""
    arrivals = arrivals_of(match.rates, SHARES, match.model, seed)
    setting = replace(match.setting, seed=seed)
    ours = Srtm(setting.slo, setting.decision_seconds, (setting.handover,))
    return simulate(ours, arrivals, setting), plan(arrivals, setting, effort)


def bars(result: Result, quick: bool) -> list[Bar]:
    match = result.match
    if match.at_most is None:
        return []
    doubt = "" if result.pairs else "no time"
    if not all(theirs.keeps_slo for _, theirs in result.pairs):
        doubt = "the clairvoyant does not keep the SLO"
    elif quick and any(abs(ratio / match.at_most - 1) < _NEAR for ratio in result.ratios()):
        doubt = "too near for one seed and a short search"
    ratio = judge(
        f"{match.name}: {OURS} over clairvoyant, replica-minutes",
        result.ratios(),
        at_most=match.at_most,
        quick=quick,
        doubt=doubt,
    )
    kept = judge(
        f"{match.name}: {OURS}, SLA %",
        result.sla_percents(),
        at_least=100 * match.setting.slo.percentile,
        quick=quick,
        doubt="" if result.pairs else "no time",
    )
    return [ratio, kept]


def table_of(results: Sequence[Result]) -> Table:
    """Medians over the seeds."""

    def theirs(figure: Callable[[ReplicaPlan], float]) -> Callable[[Result], str]:
        return lambda each: f"{median(figure(found) for _, found in each.pairs):.2f}"

    return tabulate(
        "ours against the clairvoyant; medians over seeds",
        [each for each in results if each.pairs],
        ("run", lambda each: each.match.name),
        ("seeds", lambda each: len(each.pairs)),
        ("SLO %", lambda each: f"{100 * each.match.setting.slo.percentile:g}"),
        (f"{OURS} SLA %", lambda each: f"{median(each.sla_percents()):.2f}"),
        (f"{OURS} min", lambda each: f"{median(r.replica_minutes for r, _ in each.pairs):.2f}"),
        ("clairvoyant SLA %", theirs(lambda found: 100 * found.share)),
        ("clairvoyant min", theirs(lambda found: found.replica_minutes)),
        ("bound min", theirs(lambda found: found.lower_bound)),
        ("ratio", lambda each: f"{median(each.ratios()):.3f}"),
        ("range", lambda each: f"{min(each.ratios()):.3f} .. {max(each.ratios()):.3f}"),
        ("bar", lambda each: each.match.at_most),
        ("changes", lambda each: f"{median(run.rebalances for run, _ in each.pairs):g}"),
    )


def draw(figure: Picture, results: Sequence[Result]) -> None:
    """Replica-minutes by match: ours, the clairvoyant's, and the bound, first seed."""
    axes = figure.subplots(1, 1)
    shown = [result for result in results if result.pairs]
    for at, result in enumerate(shown):
        theirs = result.pairs[0][1]
        base = theirs.replica_minutes
        axes.plot([at] * len(result.pairs), result.ratios(), "o", color="C0", ms=4)
        axes.plot(at, 1.0, "_", color="C1", ms=14)
        axes.plot(at, theirs.lower_bound / base, "_", color="C2", ms=14)
        if result.match.at_most is not None:
            axes.plot(at, result.match.at_most, "v", color="C3", ms=4)
    axes.set_xticks(range(len(shown)), [result.match.name for result in shown], rotation=30)
    axes.tick_params(axis="x", labelsize=6)
    axes.set(ylabel="replica-minutes / clairvoyant's")
    axes.set_title("blue: ours, orange: clairvoyant, green: its lower bound, red: the bar")
