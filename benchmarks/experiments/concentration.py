"""What concentration gains (SRTM Fig. 7): a topic on the fewest brokers, or on all of them."""

from benchmarks.experiments.experiment import Experiment, Panel, Points
from benchmarks.experiments.experiment import run as run_experiment
from benchmarks.experiments.live import Case
from benchmarks.experiments.scenario import Scenario
from benchmarks.harness.bars import Bar, judge
from benchmarks.harness.report import Report
from benchmarks.harness.session import Session
from srtm.load.settings import Arrivals

_PUBLISHERS = (2_000, 4_000, 6_000, 8_000, 10_000, 12_000)
_KINDS: tuple[tuple[str, Arrivals, int], ...] = (
    ("7a", "poisson", 1),
    ("7b", "poisson", 10),
    ("7c", "periodic", 1),
    ("7d", "periodic", 10),
)


def run(session: Session) -> Report:
    return run_experiment(session, EXPERIMENT)


def bars(points: Points, quick: bool) -> list[Bar]:
    """The worst of Conc's points and of ours, the best of LB's."""
    found = []
    for label, arrivals, batch in _KINDS:
        for design in ("conc", "srtm", "lb"):
            ratios = [
                each.ratio
                for (panel, _, of), each in points.items()
                if (panel, of) == (label, design)
            ]
            doubt = f"{len(ratios)} of {len(_PUBLISHERS)} points" if quick else ""
            what = f"simulated: {label} ({arrivals}, batch {batch}), {design}: p99 over the target"
            if design != "lb":
                worst = [max(ratios)] if ratios else []
                found.append(judge(f"{what}, worst", worst, at_most=1.0, doubt=doubt))
            else:
                best = [min(ratios)] if ratios else []
                found.append(judge(f"{what}, best", best, at_least=1.0, doubt=doubt))
    return found


EXPERIMENT = Experiment(
    "concentration",
    [
        Panel(
            label,
            f"{arrivals}, batch {batch}",
            "publishers",
            {n: Scenario(f"{label}-{n}", n, arrivals, batch) for n in _PUBLISHERS},
            ("lb", "conc", "srtm"),
            "SRTM: Conc meets 1 ms at every point, LB at none; LB's loss falls as rates grow, and "
            "is worse in batches",
        )
        for label, arrivals, batch in _KINDS
    ],
    (2_000, 12_000),
    bars,
    [
        Case(Scenario("7a-2000", 2_000), ("lb", "conc", "srtm"), ("conc", "srtm"), ("lb",)),
        Case(
            Scenario("7b-4000", 4_000, batch=10), ("lb", "conc", "srtm"), ("conc", "srtm"), ("lb",)
        ),
        Case(Scenario("7a-8000", 8_000), ("lb", "conc", "srtm"), ("conc", "srtm"), ("lb",)),
    ],
)
