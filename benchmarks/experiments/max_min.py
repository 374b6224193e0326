"""What max-min gains over concentration alone (SRTM Fig. 8), where brokers carry others already."""

from benchmarks.experiments.experiment import Experiment, Panel, Points
from benchmarks.experiments.experiment import run as run_experiment
from benchmarks.experiments.live import Case
from benchmarks.experiments.scenario import Scenario
from benchmarks.harness.bars import Bar, judge
from benchmarks.harness.report import Report
from benchmarks.harness.session import Session
from srtm.load.settings import Arrivals

INITIAL = (10_000.0, 40_000.0, 50_000.0, 60_000.0, 70_000.0, 80_000.0)
_PUBLISHERS = (2_000, 4_000, 6_000, 8_000, 10_000)
_KINDS: tuple[tuple[str, Arrivals, int], ...] = (
    ("8a", "poisson", 1),
    ("8b", "periodic", 1),
    ("8c", "poisson", 10),
    ("8d", "periodic", 10),
)
_ALIKE = (2_000, 4_000)
"""One broker holds them: Conc and Max-Min are the same there."""
_SPLIT = {1: (6_000, 8_000), 10: (8_000,)}
"""Numbers of publishers, by batch, at which the text says that Max-Min is better. Of 10,000 in
batches it says that Conc improves, and of 10,000 single ones nothing."""
_PAPER_MS = {"conc": 1.50, "max-min": 0.87}
"""8,000 Poisson publishers of single messages."""


def run(session: Session) -> Report:
    return run_experiment(session, EXPERIMENT)


def bars(points: Points, quick: bool) -> list[Bar]:
    found = []
    for label, arrivals, batch in _KINDS:
        kind = f"simulated: {label} ({arrivals}, batch {batch})"
        gains, held, ours = [], [], []
        for x in (*_ALIKE, *_SPLIT[batch]):
            point = points.get((label, x, "max-min"))
            if point is None:
                continue
            held.append(point.ratio)
            ours.append(points[label, x, "srtm"].ratio)
            if x in _SPLIT[batch]:
                gains.append(points[label, x, "conc"].mean / point.mean)
        asked = len(_ALIKE) + len(_SPLIT[batch])
        doubt = f"{len(held)} of {asked} points" if len(held) < asked else ""
        doubt = doubt or ("few short repetitions" if quick else "")
        found.append(
            judge(
                f"{kind}: Conc's p99 over Max-Min's, smallest where split",
                [min(gains)] if gains else [],
                at_least=1.0,
                doubt=doubt,
            )
        )
        for design, ratios in (("Max-Min", held), ("SRTM", ours)):
            found.append(
                judge(
                    f"{kind}: {design}'s p99 over the target, worst",
                    [max(ratios)] if ratios else [],
                    at_most=1.0,
                    doubt=doubt,
                )
            )
    return found


EXPERIMENT = Experiment(
    "max-min",
    [
        Panel(
            label,
            f"{arrivals}, batch {batch}",
            "publishers",
            {n: Scenario(f"{label}-{n}", n, arrivals, batch, initial=INITIAL) for n in _PUBLISHERS},
            ("conc", "max-min", "srtm"),
            "SRTM: alike up to 4,000 publishers; at 8,000 (8a) Conc 1.50 ms, Max-Min 0.87 ms on "
            "brokers 1 to 3; in batches Conc is better at 10,000 than at 8,000",
        )
        for label, arrivals, batch in _KINDS
    ],
    (4_000, 8_000),
    bars,
    [
        Case(
            Scenario("8a-8000", 8_000, initial=INITIAL),
            ("conc", "max-min", "srtm"),
            ("max-min", "srtm"),
        )
    ],
    [
        f"SRTM's text gives two figures, of 8,000 publishers in 8a: {_PAPER_MS['conc']} and "
        f"{_PAPER_MS['max-min']} ms"
    ],
)
