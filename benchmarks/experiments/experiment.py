"""One of SRTM's figures: its panels simulated at SRTM's scale, some of it measured at ours."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.experiments import live
from benchmarks.experiments.figures import beside, draw, panel_table
from benchmarks.experiments.point import Point
from benchmarks.experiments.scale import PAPER_CAPACITIES, Scale, paper_scale
from benchmarks.experiments.scenario import BROKERS, SPARE, Scenario
from benchmarks.experiments.simulated import Simulated, effort_for
from benchmarks.harness.bars import Bar
from benchmarks.harness.report import Report
from benchmarks.harness.session import Session

AT_SAME = "max-min at srtm's k"
"""Max-Min on as many brokers as SRTM has (SRTM Fig. 10)."""
_LIVE_SECONDS = 32.0
"""Of a quick run, kept for real brokers."""


@dataclass(frozen=True, slots=True)
class Panel:
    """label: of the paper's figure; says: what the paper states of it in words; x: what varies."""

    label: str
    title: str
    x: str
    scenarios: Mapping[float, Scenario]
    designs: Sequence[str]
    says: str


Points = dict[tuple[str, float, str], Point]
"""(panel, x, design) -> what it showed"""


@dataclass(frozen=True, slots=True)
class Experiment:
    """quick_x: of each panel, what a short run keeps. measured: scenarios for real brokers, their
    designs and, where concentration does not say it, on how many brokers."""

    name: str
    panels: Sequence[Panel]
    quick_x: Sequence[float]
    bars: Callable[[Points, bool], list[Bar]]
    measured: Sequence[live.Case]
    notes: Sequence[str] = field(default=())


def run(session: Session, what: Experiment) -> Report:
    scale = paper_scale()
    cases = _everything(what) if session.live else what.measured
    live.check_hosts(session, cases)
    points = _simulated(session, what, scale)
    pairs = live.measured(session, cases)
    return Report(
        settings={
            "scale": 1.0,
            "slo": str(scale.slo),
            "brokers": BROKERS,
            "burst": f"{SPARE:g} x the smallest with zero p99 token wait in a trace",
            "capacities_per_second": {str(batch): rate for batch, rate in PAPER_CAPACITIES.items()},
            "base_seconds": scale.service.base,
            "event_seconds": scale.service.event,
            "message_seconds": scale.service.message,
            "measured": pairs.settings,
        },
        figures={
            "simulated": [
                {"panel": panel, "x": x, **point.document()}
                for (panel, x, _), point in points.items()
            ],
            "measured": [
                {"measured": one.document(), "simulated": other.document()}
                for one, other in pairs.points
            ],
        },
        bars=what.bars(points, session.quick) + pairs.bars,
        tables=[
            *(
                panel_table(panel.label, panel.title, panel.x, panel.designs, points, panel.says)
                for panel in what.panels
            ),
            *([beside(pairs.points, pairs.scale)] if pairs.points else []),
        ],
        notes=[
            "simulated: buckets are exact; brokers are one server each, with figures that make it "
            "hold what SRTM's brokers held (benchmarks/experiments/scale.py)",
            "p99 is that of the broker where it is longest, mean and deviation of all repetitions; "
            "where no number of brokers keeps the SLO, the best is shown (SRTM section 6)",
            *what.notes,
            *pairs.notes,
        ],
        draw=lambda figure: draw(
            figure, [(p.label, p.title, p.x, p.designs) for p in what.panels], points
        ),
    )


def _everything(what: Experiment) -> list[live.Case]:
    """Every point of every panel; what is judged elsewhere stays so."""
    judged = {case.scenario.name: case for case in what.measured}
    return [
        judged.get(
            scenario.name,
            live.Case(scenario, [each for each in panel.designs if each != AT_SAME]),
        )
        for panel in what.panels
        for scenario in panel.scenarios.values()
    ]


def _simulated(session: Session, what: Experiment, scale: Scale) -> Points:
    """Of a quick run what there is time for, panel by panel."""
    points: Points = {}
    xs = [
        (panel, x)
        for panel in what.panels
        for x in panel.scenarios
        if not session.quick or x in what.quick_x
    ]
    if session.quick:
        xs.sort(key=lambda each: what.quick_x.index(each[1]))  # every panel has one before any two
    kept = _LIVE_SECONDS if what.measured else 0.0
    session.plan(len(xs) + len(what.measured) + 1)
    for panel, x in xs:
        if session.seconds_left < kept:
            break
        scenario = panel.scenarios[x]
        session.step(f"simulated: {panel.label}, {x:g} {panel.x}")
        world = Simulated(scenario, scale, effort_for(scenario, session.quick))
        for design in panel.designs:
            if design == AT_SAME:
                found = world.point("max-min", points[panel.label, x, "srtm"].brokers)
            else:
                found = world.point(design)
            points[panel.label, x, design] = found
    return points
