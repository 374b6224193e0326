"""Tables and pictures of the experiments: p99 with its deviation, and the brokers that it took."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from benchmarks.experiments.point import CURVE, Point
from benchmarks.harness.report import number, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = {"lb": "tab:gray", "conc": "tab:orange", "max-min": "tab:blue", "srtm": "tab:green"}
_Points = Mapping[tuple[str, float, str], Point]


def panel_table(
    label: str,
    title: str,
    x: str,
    designs: Sequence[str],
    bursts: Mapping[str, _Points],
    says: str,
) -> Table:
    """bursts: points by the b that the contracts have"""
    made = table(
        f"SRTM Fig. {label}, simulated: {title}\n{says}",
        x,
        *(f"{design}, {of}: p99, ms (k)" for of in bursts for design in designs),
        "target, ms",
        *bursts,
    )
    first = next(iter(bursts.values()))
    for at in sorted({each for panel, each, _ in first if panel == label}):
        found = [[points[label, at, design] for design in designs] for points in bursts.values()]
        made.add_row(
            f"{at:g}",
            *(shown(each) for points in found for each in points),
            number(found[0][0].target * 1e3),
            *(f"{points[0].burst:,.0f}" for points in found),
        )
    return made


def shown(point: Point) -> str:
    """`0.87 +- 0.05 (3)`, marked where it is over the target."""
    late = "" if point.met else " late"
    return (
        f"{number(point.mean * 1e3)} +- {number(point.deviation * 1e3, 2)} ({point.brokers}){late}"
    )


def draw(
    figure: "Figure", panels: Sequence[tuple[str, str, str, Sequence[str]]], points: _Points
) -> None:
    """Bars as the paper draws them, and below them the distributions at the panel's last x."""
    figure.set_size_inches(5.5 * len(panels), 8)
    axes = figure.subplots(2, len(panels), squeeze=False)
    for place, (label, title, x, designs) in enumerate(panels):
        xs = sorted({each for panel, each, _ in points if panel == label})
        upper, lower = axes[0][place], axes[1][place]
        upper.set(title=f"Fig. {label}: {title}", xlabel=x, ylabel="p99, ms", yscale="log")
        lower.set(xlabel="latency, ms", ylabel="share of messages", xscale="log")
        if not xs:
            continue
        target = points[label, xs[0], designs[0]].target * 1e3
        for number_, design in enumerate(designs):
            found = [points[label, at, design] for at in xs]
            _bars(upper, design, number_, len(designs), found)
            last = found[-1]
            lower.plot(
                [each * 1e3 for each in last.curve], CURVE, label=design, color=_COLOURS.get(design)
            )
        upper.axhline(target, color="black", linestyle=":", label="SLO")
        lower.axvline(target, color="black", linestyle=":")
        lower.set_title(f"{xs[-1]:g} {x}")
        upper.set_xticks(range(len(xs)), [f"{each:g}" for each in xs])
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
    made = table(
        f"measured on real brokers, {scale}, and simulated with the same messages",
        *("publishers", "arrivals", "batch", "group", "design", "k", "p99 measured, ms"),
        *("simulated, ms", "target, ms", "generator late, p99 ms"),
    )
    for one, other in found:
        scenario = one.scenario
        made.add_row(
            f"{scenario.publishers:,}",
            scenario.arrivals,
            str(scenario.batch),
            str(scenario.group_size),
            one.design,
            str(one.brokers),
            f"{number(one.mean * 1e3)} +- {number(one.deviation * 1e3, 2)}",
            f"{number(other.mean * 1e3)} +- {number(other.deviation * 1e3, 2)}",
            number(one.target * 1e3),
            number(one.lag * 1e3),
        )
    return made
