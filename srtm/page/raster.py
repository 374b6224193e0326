"""A raster: one row for each sender, one tick for each arrival."""

from collections.abc import Sequence
from dataclasses import dataclass

from srtm.page.frame import LINE, NARROW, clipped, figure, text, x_axis
from srtm.page.html import Html, join, tag
from srtm.page.scales import Scale

_ROW = 9.0
_GAP = 8.0


@dataclass(frozen=True)
class Lane:
    """Rows that belong together. rows: times of each, in the axis' unit."""

    name: str
    rows: Sequence[Sequence[float]]
    colour: int


def raster(
    title: str, about: str, lanes: Sequence[Lane], low: float, high: float, x_label: str
) -> Html:
    def draw(width: float) -> tuple[float, Html]:
        narrow = width <= NARROW
        left = 0.0 if narrow else 130.0
        x = Scale(low, high, left, width - 4, False)
        y = 0.0
        parts = []
        for lane in lanes:
            if narrow:
                y += LINE
            height = max(len(lane.rows) * _ROW, LINE)
            place = y - 4 if narrow else y + height / 2 + 4
            room = width if narrow else left - 14
            name = clipped(lane.name, room)
            parts.append(
                text(0 if narrow else left - 14, place, name, "start" if narrow else "end",
                     f"label f{lane.colour % 8}")
            )  # fmt: skip
            ticks = " ".join(
                f"M{x(time):.1f} {y + number * _ROW:.1f}v{_ROW - 2:.0f}"
                for number, row in enumerate(lane.rows)
                for time in row
            )
            parts.append(tag("path", d=ticks or "M0 0", class_=f"s{lane.colour % 8}",
                             stroke_width=1.6))  # fmt: skip
            if not any(lane.rows):
                parts.append(text(left, y + height / 2 + 4, "not in this stretch"))
            y += height + _GAP
        axis = x_axis(x, 0, y, x_label, 4 if narrow else 8)
        return y + 40, join(axis, *parts)

    return figure(title, about, draw)
