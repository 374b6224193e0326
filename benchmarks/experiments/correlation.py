"""What keeping a group's publishers apart gains (SRTM Fig. 9, 10): they send together exactly."""

from benchmarks.experiments.experiment import AT_SAME, Experiment, Panel, Points
from benchmarks.experiments.experiment import run as run_experiment
from benchmarks.experiments.live import Case
from benchmarks.experiments.scenario import Scenario
from benchmarks.harness.bars import Bar, judge
from benchmarks.harness.report import Report
from benchmarks.harness.session import Session
from srtm.load.settings import Arrivals

SIZES = (5, 10, 15, 20, 25, 30)
PUBLISHERS, BATCH = 1_000, 10
_LARGER = 10
"""From this size of groups on, one broker no longer holds the topic, and who is where matters."""
_KINDS: tuple[tuple[str, Arrivals], ...] = (("9a", "poisson"), ("9b", "periodic"))


def run(session: Session) -> Report:
    return run_experiment(session, EXPERIMENT)


def bars(points: Points, quick: bool) -> list[Bar]:
    found = []
    for label, arrivals in _KINDS:
        sizes = [x for (panel, x, of) in points if (panel, of) == (label, AT_SAME)]
        held = [points[label, x, "srtm"].ratio for x in sizes]
        larger = [x for x in sizes if x >= _LARGER]
        gains = [points[label, x, AT_SAME].mean / points[label, x, "srtm"].mean for x in larger]
        fewer = [
            x
            for x in larger
            if points[label, x, "max-min"].met
            and points[label, x, "max-min"].brokers < points[label, x, "srtm"].brokers
        ]
        blind = [points[label, x, "max-min"] for x in larger]
        more = [
            float(points[label, x, "max-min"].brokers - points[label, x, "srtm"].brokers)
            for x in larger
        ]
        worse = [points[label, x, AT_SAME].mean / points[label, x, "max-min"].mean for x in larger]
        doubt = f"{len(sizes)} of {len(SIZES)} sizes" if len(sizes) < len(SIZES) else ""
        doubt = doubt or ("few short repetitions" if quick else "")
        kind = f"simulated: {label} ({arrivals})"
        found += [
            judge(
                f"{kind}: SRTM's p99 over the target, worst of all sizes",
                [max(held)] if held else [],
                at_most=1.0,
                doubt=doubt,
            ),
            judge(
                f"{kind}: Max-Min's p99 over SRTM's on as many brokers, groups of "
                f"{_LARGER} and more, smallest",
                [min(gains)] if gains else [],
                at_least=1.0,
                doubt=doubt,
            ),
            judge(
                f"{kind}: sizes of {_LARGER} and more that Max-Min holds on fewer brokers",
                [float(len(fewer))] if larger else [],
                at_most=0.0,
                doubt=doubt,
            ),
            judge(
                f"{kind}: Max-Min's p99 over the target, the largest groups",
                [blind[-1].ratio] if blind else [],
                at_least=1.0,
                doubt=doubt,
            ),
            judge(
                f"{kind}: brokers of Max-Min more than SRTM's, groups of {_LARGER} and more, most",
                [max(more)] if more else [],
                at_most=0.0,
                doubt=doubt,
            ),
            judge(
                f"{kind}: Max-Min's p99 on as many brokers as SRTM over that on its own number, "
                "smallest",
                [min(worse)] if worse else [],
                at_least=1.0,
                doubt=doubt,
            ),
        ]
    return found


EXPERIMENT = Experiment(
    "correlation",
    [
        Panel(
            label,
            f"{arrivals}, 1,000 publishers in groups",
            "publishers of a group",
            {n: Scenario(f"{label}-{n}", PUBLISHERS, arrivals, BATCH, n) for n in SIZES},
            ("max-min", "srtm", AT_SAME),
            "SRTM: it meets 1 ms up to groups of 30, on more and more brokers (1 to 6, Table 1); "
            "Max-Min does not, and on as many brokers as SRTM (Fig. 10) it is worse still",
        )
        for label, arrivals in _KINDS
    ],
    (10, 30),
    bars,
    [Case(Scenario("9a-25", PUBLISHERS, "poisson", BATCH, 25), ("max-min", "srtm"), count=4)],
)
