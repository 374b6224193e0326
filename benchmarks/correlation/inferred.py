"""Token wait on real brokers with the groups that Spark found, those that users named, and none.

For each seed, on four brokers of its own: the demo's rooms send without keys, placed by `conc`, and
are traced by the gateways; Spark groups them; they are placed with what it found, and with their
rooms' names as keys, and send again at the same times. Judged is how much of what named groups gain
at p99 of the token wait, as the gateways measured it, the found ones keep.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.bars import Bar, judge
from benchmarks.harness.machine import load_average
from benchmarks.harness.report import Picture, Report, number, table
from benchmarks.harness.session import Session
from benchmarks.harness.world import distributor_of
from srtm.correlation.session import require_spark, spark_session
from srtm.demo.demo_command import TRACE, spec
from srtm.demo.infer import kept_share, p99_wait, three_ways
from srtm.demo.load import GROUP, PUBLISHERS, RATE, TOPIC, fit_contract
from srtm.demo.measure import Outcome
from srtm.deploy.up import running
from srtm.limits.contract import Contract
from srtm.limits.slo import SLO

SEEDS = 5
_SECONDS = 17.0
_SLO = SLO(0.99, 0.05)
"""asked of no one here: waits are compared"""

_NAMES = ("no groups", "found", "named")


@dataclass(frozen=True)
class Trial:
    """outcomes: without groups, with found ones, with named ones; load: average before."""

    seed: int
    outcomes: tuple[Outcome, Outcome, Outcome]
    load: float

    def waits_ms(self, on_paper: bool = False) -> list[float]:
        return [p99_wait(each, on_paper) * 1e3 for each in self.outcomes]

    @property
    def late_ms(self) -> float:
        """By how much the load was late at p99; 0 where that is no more than named groups gain on
        paper. What was measured with more is the machine's doing."""
        lag = max(each.send_lag_seconds for each in self.outcomes) * 1e3
        blind, _, named = self.waits_ms(on_paper=True)
        return lag if lag > blind - named else 0.0

    def kept(self, on_paper: bool = False) -> float | None:
        return kept_share(*self.waits_ms(on_paper))


def run(session: Session) -> Report:
    require_spark()
    trials: list[Trial] = []
    seeds = 0 if session.quick else SEEDS
    session.plan(seeds + 1)
    if seeds:
        with spark_session():
            for seed in range(1, seeds + 1):
                session.step(f"seed {seed}: three placements")
                trials.append(_trial(session.folder / f"{seed}", seed))
    return report(trials)


def _trial(folder: Path, seed: int) -> Trial:
    folder.mkdir()
    load = load_average()[0]
    fit = fit_contract(_SECONDS, seed)
    contract = Contract(topic=f"{TOPIC}-{seed}", rate=fit.rate, burst=float(fit.burst), slo=_SLO)
    with running(spec(str(folder), traced=True), say=_quiet) as up:
        remote, trace = distributor_of(up), folder / TRACE
        blind, found, named = three_ways(
            up.deployment, remote, contract, _SECONDS, trace, _quiet, seed
        )
    return Trial(seed, (blind, found, named), load)


def _quiet(_: str) -> None:
    """What the demo says on a terminal."""


def report(trials: list[Trial]) -> Report:
    made = table(
        f"token wait at p99, ms; {PUBLISHERS} publishers x {RATE:g} msg/s in rooms of {GROUP}",
        *("seed", "no groups", "found", "named", "of the gain kept"),
        *("on paper: none", "found", "named", "kept", "load average before"),
    )
    for each in trials:
        cells = []
        for on_paper in (False, True):
            share = each.kept(on_paper)
            cells += [number(wait) for wait in each.waits_ms(on_paper)]
            cells.append("-" if share is None else f"{share:.1%}")
        made.add_row(str(each.seed), *cells, f"{each.load:g}")
    return Report(
        settings={"seeds": len(trials), "seconds": _SECONDS, "publishers": PUBLISHERS},
        figures={"trials": [_figures(each) for each in trials]},
        bars=[
            _bar("share of the named groups' gain that found ones keep", trials, False),
            _bar("the same for these send times in exact buckets", trials, True),
        ],
        tables=[made],
        draw=(lambda figure: _draw(figure, trials)) if trials else None,
    )


def _bar(name: str, trials: list[Trial], on_paper: bool) -> Bar:
    shares = [share for each in trials if (share := each.kept(on_paper)) is not None]
    doubt = "" if trials else "tracing takes longer than --quick has"
    if trials and not shares:
        doubt = "named groups gained nothing"
    late = max((each.late_ms for each in trials if each.kept() is not None), default=0.0)
    if not on_paper and late > 0:
        doubt = f"the load itself was {late:.3g} ms late at p99, more than there is to gain"
    return judge(name, shares, at_least=0.9, doubt=doubt, repeats=min(len(trials), 3) or 1)


def _figures(trial: Trial) -> dict[str, Any]:
    return {
        "seed": trial.seed,
        "p99_wait_ms": dict(zip(_NAMES, trial.waits_ms(), strict=True)),
        "on_paper_ms": dict(zip(_NAMES, trial.waits_ms(on_paper=True), strict=True)),
        "late_share": [each.late_share for each in trial.outcomes],
        "brokers": [each.brokers for each in trial.outcomes],
        "load_average": trial.load,
    }


def _draw(figure: Picture, trials: list[Trial]) -> None:
    axes = figure.subplots()
    for place, name in enumerate(_NAMES):
        waits = [each.waits_ms()[place] for each in trials]
        axes.bar([at + (place - 1) * 0.27 for at in range(len(trials))], waits, 0.25, label=name)
    axes.set_xticks(range(len(trials)), [f"seed {each.seed}" for each in trials])
    axes.set_ylabel("token wait at p99, ms")
    axes.legend()
