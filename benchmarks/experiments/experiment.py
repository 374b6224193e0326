"""One of SRTM's figures: its panels simulated at SRTM's scale, some of it measured at ours."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table

from benchmarks.experiments import live
from benchmarks.experiments.panel import Bursts, Panel, Points, beside, draw
from benchmarks.experiments.scale import PAPER_CAPACITIES, Scale, paper_scale
from benchmarks.experiments.scenario import BROKERS, SPARES
from benchmarks.experiments.simulated import Simulated, effort_for
from benchmarks.harness.bars import Bar
from benchmarks.harness.report import Report, number, table
from benchmarks.harness.session import Session

AT_SAME = "max-min at srtm's k"
"""Max-Min on as many brokers as SRTM has (SRTM Fig. 10)."""
_LIVE_SECONDS = 32.0
"""Seconds of a quick run that are kept for real brokers."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """quick_x: of each panel, what a short run keeps. measured: scenarios for real brokers, their
    designs and, where concentration does not say it, on how many brokers."""

    name: str
    panels: Sequence[Panel]
    quick_x: Sequence[float]
    measured: Sequence[live.Case]
    notes: Sequence[str] = ()

    def bars(self, points: Points, of: str, quick: bool) -> list[Bar]:
        """What SRTM states, with one of SPARES."""
        return [bar for panel in self.panels for bar in panel.bars(points, of, quick)]


def run(session: Session, what: Experiment) -> Report:
    scale = paper_scale()
    cases = _everything(what) if session.live else what.measured
    live.check_hosts(session, cases)
    bursts = _simulated(session, what, scale)
    judged = {of: what.bars(points, of, session.quick) for of, points in bursts.items()}
    pairs = live.measured(session, cases)
    return Report(
        settings={
            "scale": 1.0,
            "slo": str(scale.slo),
            "brokers": BROKERS,
            "burst": "b: SRTM's, the smallest with zero p99 token wait in a trace; 2 b: twice it",
            "capacities_per_second": {str(batch): rate for batch, rate in PAPER_CAPACITIES.items()},
            "base_seconds": scale.service.base,
            "event_seconds": scale.service.event,
            "message_seconds": scale.service.message,
            "measured": pairs.settings,
        },
        figures={
            "simulated": [
                {"panel": panel, "x": x, "of": of, **point.document()}
                for of, points in bursts.items()
                for (panel, x, _), point in points.items()
            ],
            "measured": [
                {"measured": one.document(), "simulated": other.document()}
                for one, other in pairs.points
            ],
        },
        bars=[bar for bars in judged.values() for bar in bars] + pairs.bars,
        tables=[
            *(panel.tabled(bursts) for panel in what.panels),
            claims_table(judged),
            *([beside(pairs.points, pairs.scale)] if pairs.points else []),
        ],
        notes=[
            "simulated: buckets are exact; brokers are one server each, with figures that make it "
            "hold what SRTM's brokers held (benchmarks/experiments/scale.py)",
            "p99 is that of the broker where it is longest, mean and deviation of all repetitions; "
            "where no number of brokers keeps the SLO, the best is shown (SRTM section 6)",
            "the number of brokers is searched on other repetitions than those that judge it",
            "b is SRTM's, the smallest with which 99 % of a trace find their token; with 2 b "
            "a split has some of what the SLO allows left to spend",
            "the brokers' constants are fitted to the text of Fig. 6b, 8a, 8c and 8d, which are no "
            "check of them",
            *what.notes,
            *pairs.notes,
        ],
        draw=lambda figure: draw(figure, what.panels, bursts["b"]),
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


def claims_table(judged: Mapping[str, list[Bar]]) -> Table:
    """Each statement of SRTM with each b: does it come out here?"""
    made = table("what SRTM states, by b", "statement", "limit", *judged, *("" for _ in judged))
    for bars in zip(*judged.values(), strict=True):
        name = bars[0].name.partition(": ")[2]
        words = {True: "reproduced", False: "not reproduced", None: "undecided"}
        values = (number(bar.value) for bar in bars)
        made.add_row(name, bars[0].limit, *values, *(words[bar.met] for bar in bars))
    return made


def _simulated(session: Session, what: Experiment, scale: Scale) -> Bursts:
    """The simulated points of every panel; in a quick run those that there is time for, panel by
    panel."""
    bursts: Bursts = {of: {} for of in SPARES}
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
        for of, spare in SPARES.items():
            points = bursts[of]
            world = Simulated(scenario, scale, effort_for(scenario, session.quick), spare)
            for design in panel.designs:
                if design == AT_SAME:
                    found = world.point("max-min", points[panel.label, x, "srtm"].brokers)
                else:
                    found = world.point(design)
                points[panel.label, x, design] = found
    return bursts
