"""One of SRTM's figures: its panels simulated at SRTM's scale."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.table import Table

from benchmarks.experiments.point import CURVE, Point
from benchmarks.experiments.scale import PAPER_CAPACITIES, Scale, paper_scale
from benchmarks.experiments.scenario import BROKERS, SPARES, Scenario
from benchmarks.experiments.simulated import Simulated, effort_for
from benchmarks.harness.bars import Bar, judge_worst
from benchmarks.harness.report import Picture, Report, number, table, tabulate
from benchmarks.harness.session import Session

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_COLOURS = {"lb": "tab:gray", "conc": "tab:orange", "max-min": "tab:blue", "srtm": "tab:green"}

Points = dict[tuple[str, float, str], Point]
"""(panel, x, design) -> what it showed"""
Bursts = dict[str, Points]
"""by name of SPARES"""
Here = Mapping[float, Mapping[str, Point]]
"""of one panel: x -> design -> what it showed"""


@dataclass(frozen=True, slots=True)
class Statement:
    """What SRTM states of a panel. values: ratios or counts, of which the worst is judged; exactly
    one of at_least and at_most is given."""

    text: str
    values: Callable[[Here], Sequence[float]]
    at_least: float | None = None
    at_most: float | None = None


@dataclass(frozen=True, slots=True)
class Panel:
    """label: of the paper's figure; kind: what the panels differ by; more: what they share; x: what
    varies; says: what the paper states in words; asked: the x that its statements need."""

    label: str
    kind: str
    more: str
    x: str
    scenarios: Mapping[float, Scenario]
    designs: Sequence[str]
    says: str
    statements: Sequence[Statement]
    asked: Sequence[float]

    @property
    def title(self) -> str:
        return f"{self.kind}{self.more}"

    def here(self, points: Points) -> Here:
        found: dict[float, dict[str, Point]] = {}
        for (label, x, design), point in points.items():
            if label == self.label:
                found.setdefault(x, {})[design] = point
        return dict(sorted(found.items()))

    def bars(self, points: Points, of: str, quick: bool) -> list[Bar]:
        """of: the name of SPARES that the contracts have."""
        here = self.here(points)
        there = sum(x in here for x in self.asked)
        doubt = "few short repetitions" if quick else ""
        if there < len(self.asked):
            doubt = f"{there} of {len(self.asked)} points"
        return [
            judge_worst(
                f"simulated, {of}: {self.label} ({self.kind}){each.text}",
                each.values(here),
                at_least=each.at_least,
                at_most=each.at_most,
                doubt=doubt,
            )
            for each in self.statements
        ]

    def tabled(self, bursts: Bursts) -> Table:
        made = table(
            f"SRTM Fig. {self.label}, simulated: {self.title}\n{self.says}",
            self.x,
            *(f"{design}, {of}: p99, ms (k)" for of in bursts for design in self.designs),
            "target, ms",
            *bursts,
        )
        every = [self.here(points) for points in bursts.values()]
        for x in every[0]:
            firsts = [here[x][self.designs[0]] for here in every]
            made.add_row(
                f"{x:g}",
                *(shown(here[x][design]) for here in every for design in self.designs),
                number(firsts[0].target * 1e3),
                *(f"{each.burst:,.0f}" for each in firsts),
            )
        return made


def shown(point: Point) -> str:
    """`0.87 +- 0.05 (3)`, marked where it is over the target."""
    late = "" if point.met else " late"
    return f"{with_deviation(point)} ({point.brokers}){late}"


def with_deviation(point: Point) -> str:
    return f"{number(point.mean * 1e3)} +- {number(point.deviation * 1e3, 2)}"


def draw(figure: Picture, panels: Sequence[Panel], points: Points) -> None:
    """Bars as the paper draws them, and below them the distributions at the panel's last x."""
    figure.set_size_inches(5.5 * len(panels), 8)
    axes = figure.subplots(2, len(panels), squeeze=False)
    for panel, upper, lower in zip(panels, *axes, strict=True):
        here = panel.here(points)
        title = f"Fig. {panel.label}: {panel.title}"
        upper.set(title=title, xlabel=panel.x, ylabel="p99, ms", yscale="log")
        lower.set(xlabel="latency, ms", ylabel="share of messages", xscale="log")
        if not here:
            continue
        *_, (last, designs) = here.items()
        for place, design in enumerate(panel.designs):
            found = [each[design] for each in here.values()]
            _bars(upper, design, place, len(panel.designs), found)
            curve = [each * 1e3 for each in found[-1].curve]
            lower.plot(curve, CURVE, label=design, color=_COLOURS.get(design))
        target = designs[panel.designs[0]].target * 1e3
        upper.axhline(target, color="black", linestyle=":", label="SLO")
        lower.axvline(target, color="black", linestyle=":")
        lower.set_title(f"{last:g} {panel.x}")
        upper.set_xticks(range(len(here)), [f"{x:g}" for x in here])
        upper.legend()
        lower.legend()


def _bars(axes: "Axes", design: str, place: int, of: int, points: Sequence[Point]) -> None:
    """Draw the bars of one design, with the number of brokers on top of each."""
    width = 0.8 / of
    at = [n + (place - (of - 1) / 2) * width for n in range(len(points))]
    means = [each.mean * 1e3 for each in points]
    spread = [
        min(each.deviation * 1e3, 0.9 * mean) for each, mean in zip(points, means, strict=True)
    ]
    drawn = axes.bar(at, means, width, yerr=spread, label=design, color=_COLOURS.get(design))
    axes.bar_label(drawn, [str(each.brokers) for each in points], fontsize=7)


def beside(found: Sequence[tuple[Point, Point]], scale: str) -> Table:
    """Measured and simulated, of the same messages."""
    return tabulate(
        f"measured on real brokers, {scale}, and simulated with the same messages",
        found,
        ("publishers", lambda pair: f"{pair[0].scenario.publishers:,}"),
        ("arrivals", lambda pair: pair[0].scenario.arrivals),
        ("batch", lambda pair: pair[0].scenario.batch),
        ("group", lambda pair: pair[0].scenario.group_size),
        ("design", lambda pair: pair[0].design),
        ("k", lambda pair: pair[0].brokers),
        ("p99 measured, ms", lambda pair: with_deviation(pair[0])),
        ("simulated, ms", lambda pair: with_deviation(pair[1])),
        ("target, ms", lambda pair: pair[0].target * 1e3),
        ("generator late, p99 ms", lambda pair: pair[0].lag * 1e3),
    )


AT_SAME = "max-min at srtm's k"
"""Max-Min on as many brokers as SRTM has (SRTM Fig. 10)."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """quick_x: of each panel, what a short run keeps."""

    name: str
    panels: Sequence[Panel]
    quick_x: Sequence[float]
    notes: Sequence[str] = ()

    def bars(self, points: Points, of: str, quick: bool) -> list[Bar]:
        """What SRTM states, with one of SPARES."""
        return [bar for panel in self.panels for bar in panel.bars(points, of, quick)]


def run(session: Session, what: Experiment) -> Report:
    scale = paper_scale()
    bursts = _simulated(session, what, scale)
    judged = {of: what.bars(points, of, session.quick) for of, points in bursts.items()}
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
        },
        figures={
            "simulated": [
                {"panel": panel, "x": x, "of": of, **point.document()}
                for of, points in bursts.items()
                for (panel, x, _), point in points.items()
            ],
        },
        bars=[bar for bars in judged.values() for bar in bars],
        tables=[
            *(panel.tabled(bursts) for panel in what.panels),
            claims_table(judged),
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
        ],
        draw=lambda figure: draw(figure, what.panels, bursts["b"]),
    )


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
    session.plan(len(xs))
    for panel, x in xs:
        if session.seconds_left < 0:
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
