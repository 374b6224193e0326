"""Bars as a chart: each figure over its limit, so that all share one axis."""

from collections.abc import Sequence
from math import isfinite

from srtm.page.frame import LINE, NARROW, clipped, figure, line, text, x_axis
from srtm.page.html import Html, join, tag
from srtm.page.scales import scale
from srtm.report.result import Bar

_ROW = 24.0
_FARTHEST = 1e3
"""times the limit: what is farther off stands at the edge"""


def limits_chart(bars: Sequence[Bar]) -> Html:
    """A chart of figures over their limits, as ratios; nothing where no bar has a figure and a
    limit above 0."""
    shown = [(bar, _over(bar, bar.value)) for bar in bars]
    rows = [(bar, ratio) for bar, ratio in shown if ratio is not None]
    if not rows:
        return Html("")

    def draw(width: float) -> tuple[float, Html]:
        narrow = width <= NARROW
        left = 8.0 if narrow else 0.42 * width
        step = _ROW + (LINE if narrow else 0)
        bottom = len(rows) * step + 6
        ends = [_over(bar, each) for bar, _ in rows for each in (bar.low, bar.high)]
        values = [1.0, *(each for _, each in rows), *(each for each in ends if each is not None)]
        x = scale(values, left, width - 12, log=True)
        parts = []
        for number, (bar, ratio) in enumerate(rows):
            y = number * step + (LINE if narrow else 0) + 12
            name = f"{bar.name} ({bar.limit})"
            colour = f"var(--{_VARIABLES[bar.met]})"
            low, high = (_over(bar, each) or ratio for each in (bar.low, bar.high))
            parts += [
                text(0 if narrow else left - 14, y - 9 if narrow else y + 4,
                     clipped(name, width if narrow else left - 14), "start" if narrow else "end",
                     "halo"),
                tag("line", x1=x(low), y1=y, x2=x(high), y2=y, stroke=colour, stroke_width=3.0,
                    opacity=0.45, stroke_linecap="round"),
                _mark(bar.met, x(ratio), y, colour),
            ]  # fmt: skip
        limit = join(
            line(x(1), 0, x(1), bottom, "limit"),
            text(x(1), bottom + 34, "limit", "middle", "strong"),
        )
        axis = x_axis(x, 0, bottom, "" if narrow else "figure over its limit", 4 if narrow else 6)
        return bottom + 42, join(axis, limit, *parts)

    about = (
        "Dots: medians over their limits, with their range. A filled dot is a bar that is met, a "
        "cross one that is missed, a ring one that is undecided."
    )
    return figure("Figures and their limits", about, draw)


_VARIABLES = {True: "good", False: "bad", None: "doubt"}


def _mark(met: bool | None, x: float, y: float, colour: str) -> Html:
    """Told apart without colour."""
    if met is None:
        return tag("circle", cx=x, cy=y, r=5.0, fill="var(--card)", stroke=colour,
                   stroke_width=2.5)  # fmt: skip
    if met:
        return tag("circle", cx=x, cy=y, r=5.5, fill=colour)
    cross = f"M{x - 5:.1f} {y - 5:.1f}l10 10m0 -10l-10 10"
    return tag("path", d=cross, stroke=colour, stroke_width=3.0, stroke_linecap="round")


def _over(bar: Bar, value: float | None) -> float | None:
    limit = bar.at_least if bar.at_least is not None else bar.at_most
    if value is None or not limit or limit < 0:
        return None
    ratio = value / limit
    return min(max(ratio, 1 / _FARTHEST), _FARTHEST) if isfinite(ratio) else None
