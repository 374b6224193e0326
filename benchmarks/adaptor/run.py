"""Shares that follow traffic: token waits by policy, and how long after a shift they are back.

Each scenario is run with each seed by each policy, exactly, with reports and leases as live brokers
have them (`srtm adaptor simulate`); reports begin at another part of a second in each seed. The
paper's rule runs at its best window and period (`chosen`) and at those that the paper names.
`hindsight` knows all arrivals: the best constant split of each stretch between shifts that a search
finds. It is a yardstick and no bound, as a policy may move shares within a stretch: the
bound is `none is below` (`tb_adaptor.simulator.bound`). A policy is
back after a shift when the p99 of a second, and of the two after it, is at most 1.5 x hindsight's
for that stretch, or 1 ms. --full adds a swap on real brokers (`live`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.adaptor.live import by_second as by_second_of
from benchmarks.adaptor.live import live, live_bars, live_table
from benchmarks.adaptor.scenarios import CHOOSING, LOAD, SCENARIOS, SECONDS, Scenario
from benchmarks.harness.bars import Bar, judge
from benchmarks.harness.report import Picture, Report, number, table
from benchmarks.harness.session import Session, side_by_side
from srtm.limits.queueing import Floats
from tb_adaptor.policies import POLICIES
from tb_adaptor.simulator.bound import least_wait
from tb_adaptor.simulator.hindsight import hindsight
from tb_adaptor.simulator.judge import excess, nearest_rank, unsplit_waits
from tb_adaptor.simulator.run import Settings, simulate

WINDOWS, PERIODS = (1.0, 2.0, 3.0, 5.0, 10.0), (1.0, 2.0, 5.0, 10.0)
_LEAST_MS = 1.0
"""added to each p99, so that none of 0 decides alone"""


@dataclass(frozen=True)
class Chosen:
    """means_ms: of p99, by settings"""

    settings: Settings
    means_ms: Mapping[Settings, float]

    @property
    def words(self) -> str:
        return (
            f"`paper` is the paper's rule every {self.settings.every:g} s over a window of "
            f"{self.settings.window:g} s, its best on other traffic; `paper, 10 s` is as published"
        )

    def shown(self) -> Table:
        made = table(
            "the paper's rule on other traffic: geometric mean of p99, ms",
            "window",
            *(f"every {period:g} s" for period in PERIODS),
        )
        for window in WINDOWS:
            cells = (self.means_ms.get(Settings(window, period)) for period in PERIODS)
            made.add_row(f"{window:g} s", *("" if each is None else number(each) for each in cells))
        return made


def chosen(seeds: int, periods: Sequence[float], processes: int) -> Chosen:
    """The period is no longer than the window: what came between two would be seen by none."""
    arrivals = [(each.contract, [each.arrivals(n) for n in range(seeds)]) for each in CHOOSING]
    grid = [Settings(w, every) for w in WINDOWS for every in periods if every <= w]

    def mean_ms(settings: Settings) -> float:
        logs = []
        for contract, each in arrivals:
            waits = [simulate("paper", contract, one, None, settings).waits for one in each]
            p99 = nearest_rank(np.concatenate(waits), 0.99) * 1e3
            logs.append(np.log(p99 + _LEAST_MS))
        return float(np.exp(np.mean(logs)))

    jobs = [partial(mean_ms, settings) for settings in grid]
    means = dict(zip(grid, side_by_side(jobs, processes), strict=True))
    return Chosen(min(means, key=lambda each: means[each]), means)


SEEDS, QUICK_SEEDS = 20, 2
_CHOOSING_SEEDS = 4
AS_PUBLISHED = "paper, 10 s"
_WINDOWS_SECONDS = 2 * Settings().window
_NEVER = float("inf")


class Pooled:
    """One policy in one scenario: waits and arrival times by seed, and what each seed was."""

    def __init__(self) -> None:
        self.least_ms: list[float] = []  # p99 of each seed that no policy is below
        self.waits: list[Floats] = []
        self.times: list[Floats] = []
        self.excess = 0.0
        self.rescales: list[int] = []

    def add(self, seed: "Pooled") -> None:
        self.least_ms += seed.least_ms
        self.waits += seed.waits
        self.times += seed.times
        self.excess = max(self.excess, seed.excess)
        self.rescales += seed.rescales

    @property
    def p99_ms(self) -> float:
        return nearest_rank(np.concatenate(self.waits), 0.99) * 1e3

    @property
    def mean_ms(self) -> float:
        return float(np.concatenate(self.waits).mean()) * 1e3


Outcomes = Mapping[str, Mapping[str, Pooled]]
"""by scenario and policy, with `hindsight` and `unsplit` among these"""


def run(session: Session) -> Report:
    seeds = QUICK_SEEDS if session.quick else SEEDS
    session.plan(1 + len(SCENARIOS) * seeds + session.live)
    session.step("the paper's rule at its best")
    best = chosen(
        1 if session.quick else _CHOOSING_SEEDS,
        PERIODS[:1] if session.quick else PERIODS,
        session.processes,
    )
    outcomes = {scenario.name: _empty() for scenario in SCENARIOS}
    turns = [(scenario, seed) for scenario in SCENARIOS for seed in range(seeds)]
    jobs = [partial(_seed, *turn, turn[1] / seeds, best.settings) for turn in turns]
    for (scenario, seed), found in zip(turns, side_by_side(jobs, session.processes), strict=True):
        session.step(f"{scenario.name}, seed {seed}")
        for name, pooled in outcomes[scenario.name].items():
            pooled.add(found[name])
    if session.live:
        session.step("live: a swap between two real brokers")
    lived = live(session) if session.live else []
    back = {
        scenario.name: {
            name: _back(scenario, pooled, outcomes[scenario.name]["hindsight"])
            for name, pooled in outcomes[scenario.name].items()
        }
        for scenario in SCENARIOS
        if scenario.shifts
    }
    return Report(
        settings={
            "seeds": seeds,
            "seconds": SECONDS,
            "load": LOAD,
            "paper_window_seconds": best.settings.window,
            "paper_every_seconds": best.settings.every,
        },
        figures=_figures(outcomes, back) | ({"live": list(map(asdict, lived))} if lived else {}),
        bars=_bars(outcomes, back, session.quick) + (live_bars(lived) if lived else []),
        tables=[
            _waits_table(outcomes),
            _back_table(back),
            best.shown(),
            *([live_table(lived)] if lived else []),
        ],
        notes=[best.words],
        draw=lambda figure: _draw(figure, outcomes),
    )


def _empty() -> dict[str, Pooled]:
    return {name: Pooled() for name in [*POLICIES, AS_PUBLISHED, "hindsight", "unsplit"]}


def _seed(scenario: Scenario, seed: int, phase: float, paper: Settings) -> dict[str, Pooled]:
    pooled = _empty()
    arrivals = scenario.arrivals(seed)
    times = np.concatenate([each.times for each in arrivals.values()])
    for name in [*POLICIES, AS_PUBLISHED]:
        settings = replace(paper if name == "paper" else Settings(), phase=phase)
        policy = "paper" if name == AS_PUBLISHED else name
        outcome = simulate(policy, scenario.contract, arrivals, None, settings)
        pooled[name].waits.append(outcome.waits)
        pooled[name].times.append(times)
        pooled[name].excess = excess(outcome, scenario.contract)
        pooled[name].rescales.append(len(outcome.shares) - 1)
    best = hindsight(scenario.contract, arrivals, scenario.shifts)
    pooled["hindsight"].waits.append(best.waits)
    pooled["hindsight"].times.append(times)
    pooled["unsplit"].least_ms.append(least_wait(scenario.contract, arrivals, 0.99) * 1e3)
    pooled["unsplit"].waits.append(unsplit_waits(scenario.contract, arrivals))
    pooled["unsplit"].times.append(np.sort(times))
    return pooled


def _back(scenario: Scenario, pooled: Pooled, hindsight: Pooled) -> list[float]:
    """Seconds after the first shift, for each seed."""
    shift = scenario.shifts[0]
    ends = scenario.shifts[1] if len(scenario.shifts) > 1 else SECONDS
    best = [
        waits[(times >= shift) & (times < ends)]
        for waits, times in zip(hindsight.waits, hindsight.times, strict=True)
    ]
    bound = max(1.5 * nearest_rank(np.concatenate(best), 0.99), 1e-3)
    return [
        _first_calm(waits, times, shift, ends, bound)
        for waits, times in zip(pooled.waits, pooled.times, strict=True)
    ]


def _first_calm(waits: Floats, times: Floats, shift: float, ends: float, bound: float) -> float:
    calm = []
    for at in np.arange(shift, ends):
        there = waits[(times >= at) & (times < at + 1)]
        calm.append(not there.size or nearest_rank(there, 0.99) <= bound)
    for place in range(len(calm)):
        if all(calm[place : place + 3]):
            return float(place)
    return _NEVER


def _bars(
    outcomes: Outcomes, back: Mapping[str, Mapping[str, list[float]]], quick: bool
) -> list[Bar]:
    doubt = f"{QUICK_SEEDS} seeds" if quick else ""
    worst = max(each.excess for pooled in outcomes.values() for each in pooled.values())
    back_after = median(back["step"]["srtm"])
    moves, ramp = outcomes["burstiness moves"], outcomes["ramp"]
    found = [
        ("step: srtm is back, s (median)", back_after, _WINDOWS_SECONDS),
        (
            "step: srtm is back after paper, s",
            max(back_after - median(back["step"]["paper"]), -SECONDS),
            0.0,
        ),
        (
            "burstiness moves: p99, srtm / rate-only",
            moves["srtm"].p99_ms / moves["rate-only"].p99_ms,
            0.8,
        ),
        (
            "ramp: p99, srtm / paper at its best period and window",
            ramp["srtm"].p99_ms / ramp["paper"].p99_ms,
            1.0,
        ),
    ]
    for name, pooled in outcomes.items():
        better = min(pooled["paper"].p99_ms, pooled["even"].p99_ms)
        over = max(0.0, pooled["srtm"].p99_ms - max(1.1 * better, better + 1))
        found.append((f"{name}: p99 of srtm over the better of paper and even, ms", over, 0.0))
    return [
        judge("messages over the contract, any policy", [worst], at_most=0),
        *(judge(name, [value], at_most=most, doubt=doubt) for name, value, most in found),
    ]


def _figures(outcomes: Outcomes, back: Mapping[str, Mapping[str, list[float]]]) -> dict[str, Any]:
    return {
        scenario: {
            name: {
                "p99_ms": each.p99_ms,
                "mean_ms": each.mean_ms,
                "excess": each.excess,
                "rescales": median(each.rescales) if each.rescales else None,
                "p99_ms_by_seed": [nearest_rank(waits, 0.99) * 1e3 for waits in each.waits],
                "back_seconds": [
                    None if at == _NEVER else at for at in back.get(scenario, {}).get(name, [])
                ],
                "p99_ms_by_second": by_second(each).tolist(),
            }
            for name, each in pooled.items()
        }
        for scenario, pooled in outcomes.items()
    }


def by_second(pooled: Pooled) -> Floats:
    """p99 in ms of what came in each second, over all seeds."""
    return by_second_of(np.concatenate(pooled.times), np.concatenate(pooled.waits), SECONDS)


def _waits_table(outcomes: Outcomes) -> Any:
    names = list(next(iter(outcomes.values())))
    made = table(
        "p99 of the token wait, ms", "scenario", *names, "none is below", "rescales of srtm"
    )
    for scenario, pooled in outcomes.items():
        made.add_row(
            scenario,
            *(number(pooled[name].p99_ms) for name in names),
            number(min(pooled["unsplit"].least_ms)),
            f"{median(pooled['srtm'].rescales):.0f}",
        )
    return made


def _back_table(back: Mapping[str, Mapping[str, list[float]]]) -> Any:
    names = list(next(iter(back.values())))
    made = table("seconds until it is back after a shift, median of the seeds", "scenario", *names)
    for scenario, seconds in back.items():
        medians = (median(seconds[name]) for name in names)
        made.add_row(scenario, *("never" if at == _NEVER else f"{at:.0f}" for at in medians))
    return made


def _draw(figure: Picture, outcomes: Outcomes) -> None:
    shown = [scenario for scenario in SCENARIOS if scenario.shifts]
    figure.set_size_inches(11, 2.4 * len(shown))
    axes = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    for axis, scenario in zip(axes, shown, strict=True):
        for name in ("srtm", "paper", "even", "hindsight"):
            axis.plot(np.maximum(by_second(outcomes[scenario.name][name]), 0.1), label=name)
        axis.set_yscale("log")
        axis.set_title(scenario.name, loc="left")
        axis.set_ylabel("p99 wait, ms")
    axes[0].legend(ncols=4)
    axes[-1].set_xlabel("seconds")
