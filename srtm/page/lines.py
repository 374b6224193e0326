"""Lines over two axes, each with its name at its end."""

from collections.abc import Sequence
from dataclasses import dataclass

from srtm.page.frame import (
    HALF,
    LINE,
    NARROW,
    WIDE,
    clipped,
    figure,
    spread,
    text,
    width_of,
    x_axis,
    y_axis,
)
from srtm.page.html import Html, join, tag
from srtm.page.scales import Scale, scale

COLOURS = 8


@dataclass(frozen=True)
class Line:
    """points: (x, y), in order of x; colour: 0 to 7."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: int = 0


def line_chart(
    title: str,
    about: str,
    lines: Sequence[Line],
    x_label: str,
    y_label: str,
    log_x: bool = False,
    log_y: bool = False,
    half: bool = False,
) -> Html:
    """Axes' labels name their units."""

    def draw(width: float) -> tuple[float, Html]:
        height = 300.0 if width > NARROW else 260.0
        room = min(max((width_of(each.name) for each in lines), default=0) + 16, 0.34 * width)
        left, top, right, bottom = 48.0, 30.0, width - room, height - 44
        every = [point for each in lines for point in each.points]
        x = scale([point[0] for point in every], left, right, log_x)
        y = scale([point[1] for point in every], bottom, top, log_y, zero=not log_y)
        ends = [y(each.points[-1][1]) if each.points else bottom for each in lines]
        places = spread(ends, LINE, top + 4, bottom)
        marks = 6 if width > NARROW else 4
        return height, join(
            y_axis(y, left, right, y_label, 5),
            x_axis(x, top, bottom, x_label, marks),
            *(_drawn(each, x, y, right + 8, place, room) for each, place in
              zip(lines, places, strict=True)),
        )  # fmt: skip

    return figure(title, about, draw, HALF if half else WIDE)


def _drawn(each: Line, x: Scale, y: Scale, at: float, place: float, room: float) -> Html:
    colour = each.colour % COLOURS
    path = " ".join(
        f"{'L' if number else 'M'}{x(px):.1f} {y(py):.1f}"
        for number, (px, py) in enumerate(each.points)
    )
    return join(
        tag("path", d=path or "M0 0", class_=f"line s{colour}"),
        text(at, place + 4, clipped(each.name, room - 8), class_=f"label f{colour}"),
    )
