"""What was there from when to when: a row for each thing, over a common axis of time."""

from collections.abc import Sequence
from dataclasses import dataclass

from srtm.page.frame import NARROW, clipped, figure, line, text
from srtm.page.html import Html, join, tag
from srtm.page.scales import Scale

_ROW = 26.0
_BAR = 14.0


@dataclass(frozen=True)
class Span:
    """begins, ends: in numbers of windows; begun, ended: does it begin or end there, or was it cut
    by the end of what was looked at?"""

    begins: int
    ends: int
    begun: bool
    ended: bool


@dataclass(frozen=True)
class SpanRow:
    name: str
    spans: Sequence[Span]
    colour: int = 0


def span_chart(
    title: str, about: str, rows: Sequence[SpanRow], windows: Sequence[str], x_label: str
) -> Html:
    """windows: what each is called."""

    def draw(width: float) -> tuple[float, Html]:
        narrow = width <= NARROW
        left = 96.0 if narrow else 150.0
        x = Scale(0, max(len(windows), 1), left, width - 10)
        bottom = len(rows) * _ROW + 4
        every = max(1, -(-len(windows) // (3 if narrow else 10)))
        parts = [
            join(
                line(x(number), 0, x(number), bottom, "grid"),
                text(x(number), bottom + 16, name, "start" if number == 0 else "middle"),
            )
            for number, name in enumerate(windows)
            if number % every == 0
        ]
        for number, row in enumerate(rows):
            y = number * _ROW + 6
            parts.append(text(left - 10, y + 11, clipped(row.name, left - 12), "end", "strong"))
            parts += [_span(each, x, y, row.colour) for each in row.spans]
        parts.append(text(width - 10, bottom + 34, x_label, "end"))
        return bottom + 40, join(*parts)

    return figure(title, about, draw)


def _span(each: Span, x: Scale, y: float, colour: int) -> Html:
    """A full dot where it begins or ends; where it was cut, none."""
    begin, end = x(each.begins), x(each.ends)
    middle = y + _BAR / 2
    dots = [
        tag("circle", cx=at, cy=middle, r=5.5, class_=f"f{colour % 8}")
        for at, shown in ((begin + 5.5, each.begun), (end - 5.5, each.ended))
        if shown
    ]
    inset = 5.5 if each.begun else 0.0
    width = max(end - begin - inset - (5.5 if each.ended else 0.0), 1.0)
    bar = tag("rect", x=begin + inset, y=middle - 3.5, width=width, height=7.0,
              class_=f"f{colour % 8}", opacity=0.55)  # fmt: skip
    return join(bar, *dots)
