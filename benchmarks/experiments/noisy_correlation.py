"""What is left of it where a group's publishers send only about together (SRTM Fig. 11)."""

from benchmarks.experiments.correlation import BATCH, PUBLISHERS
from benchmarks.experiments.experiment import AT_SAME, Experiment, Panel, Points
from benchmarks.experiments.experiment import run as run_experiment
from benchmarks.experiments.scenario import Scenario
from benchmarks.harness.bars import Bar, judge
from benchmarks.harness.report import Report
from benchmarks.harness.session import Session
from srtm.load.settings import Arrivals

JITTERS = (0, 1, 2, 4, 8, 16)  # ms
GROUP = 25
_KINDS: tuple[tuple[str, Arrivals], ...] = (("11a", "poisson"), ("11b", "periodic"))


def run(session: Session) -> Report:
    return run_experiment(session, EXPERIMENT)


def bars(points: Points, quick: bool) -> list[Bar]:
    found = []
    for label, arrivals in _KINDS:
        there = all((label, x, AT_SAME) in points for x in (JITTERS[0], JITTERS[-1]))
        doubt = "" if there else "not both ends of the range"
        doubt = doubt or ("few short repetitions" if quick else "")
        fades, falls, held = [], [], []
        if there:
            first, last = (
                points[label, x, AT_SAME].mean / points[label, x, "srtm"].mean
                for x in (JITTERS[0], JITTERS[-1])
            )
            fades = [first / last]
            falls = [
                float(
                    min(
                        points[label, JITTERS[0], of].brokers
                        - points[label, JITTERS[-1], of].brokers
                        for of in ("max-min", "srtm")
                    )
                )
            ]
            held = [
                max(
                    each.ratio
                    for (panel, _, of), each in points.items()
                    if (panel, of) == (label, "srtm")
                )
            ]
        kind = f"simulated: {label} ({arrivals})"
        found += [
            judge(
                f"{kind}: gain on as many brokers, at 0 ms over at 16 ms",
                fades,
                at_least=1.0,
                doubt=doubt,
            ),
            judge(
                f"{kind}: brokers at 0 ms more than at 16 ms, either design",
                falls,
                at_least=1.0,
                doubt=doubt,
            ),
            judge(f"{kind}: SRTM's p99 over the target, worst", held, at_most=1.0, doubt=doubt),
        ]
    return found


EXPERIMENT = Experiment(
    "noisy-correlation",
    [
        Panel(
            label,
            f"{arrivals}, groups of {GROUP} spread over",
            "ms",
            {
                ms: Scenario(f"{label}-{ms}", PUBLISHERS, arrivals, BATCH, GROUP, ms / 1e3)
                for ms in JITTERS
            },
            ("max-min", "srtm", AT_SAME),
            "SRTM: with a little noise knowing the groups still helps; with more, p99 and the "
            "number of brokers fall for both designs, and the gain fades",
        )
        for label, arrivals in _KINDS
    ],
    (0, 16),
    bars,
    [],
)
