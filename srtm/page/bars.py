"""Horizontal bars, each with its name and its figure."""

from collections.abc import Sequence
from dataclasses import dataclass

from srtm.page.frame import HALF, LINE, NARROW, WIDE, clipped, figure, text, width_of
from srtm.page.html import Html, join, tag
from srtm.page.scales import scale

_BAR = 18.0
_STEP = 30.0


@dataclass(frozen=True)
class Bar:
    """shown: its figure with the unit, written at its end."""

    name: str
    value: float
    shown: str
    colour: int = 0


def bar_chart(title: str, about: str, bars: Sequence[Bar], half: bool = False) -> Html:
    """A chart of bars that begin at 0, so that lengths compare."""

    def draw(width: float) -> tuple[float, Html]:
        stacked = width <= NARROW
        step = _STEP + (LINE if stacked else 0)
        names = (
            0.0 if stacked else min(max(width_of(each.name) for each in bars) + 12, 0.45 * width)
        )
        room = max(width_of(each.shown) for each in bars) + 12
        x = scale([each.value for each in bars], names, width - room, zero=True)
        parts = []
        for number, each in enumerate(bars):
            y = number * step + (LINE if stacked else 0)
            length = max(x(each.value) - names, 2.0)
            parts += [
                text(0, y - 3 if stacked else y + 13,
                     clipped(each.name, (width if stacked else names) - 8), class_="strong"),
                tag("rect", x=names, y=y, width=length, height=_BAR, rx=3.0,
                    class_=f"f{each.colour % 8}"),
                text(names + length + 6, y + 13, each.shown, class_="strong"),
            ]  # fmt: skip
        return len(bars) * step, join(*parts)

    return figure(title, about, draw, HALF if half else WIDE) if bars else Html("")
