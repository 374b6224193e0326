"""What charts share: an SVG in two widths, axes with units, and labels that do not collide."""

from collections.abc import Callable, Sequence

from srtm.page.html import Child, Html, join, tag
from srtm.page.scales import Scale, short

WIDE, NARROW = 960.0, 360.0
"""px of a chart on a screen and on a phone: text has the same size on both"""
HALF = 470.0
LINE = 15.0
"""px of a line of text"""
_LETTER = 7.2
"""px of a bold letter, on average"""


def figure(
    title: str, about: str, draw: Callable[[float], tuple[float, Html]], wide: float = WIDE
) -> Html:
    """draw: of a width in px: the chart's height and its elements. It is drawn twice, and the
    style shows the one that fits."""

    def drawn(width: float, name: str) -> Html:
        height, body = draw(width)
        box = f"0 0 {width:.0f} {height:.0f}"
        return tag("svg", body, viewBox=box, class_=name, role="img", aria_label=title)

    return tag(
        "figure",
        tag("figcaption", title, tag("span", about) if about else None),
        drawn(wide, "wide"),
        drawn(NARROW, "narrow"),
    )


def text(x: float, y: float, words: Child, anchor: str = "start", class_: str = "") -> Html:
    return tag("text", words, x=x, y=y, text_anchor=anchor, class_=class_ or None)


def line(x1: float, y1: float, x2: float, y2: float, class_: str, title: str = "") -> Html:
    if not title:
        return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)
    return tag("g", tag("title", title), line(x1, y1, x2, y2, class_))


def width_of(words: str) -> float:
    return len(words) * _LETTER


def clipped(words: str, room: float) -> str:
    """No wider than `room` px; what was cut is told by its end."""
    most = max(int(room / _LETTER), 2)
    return words if len(words) <= most else words[: most - 1] + "…"


def x_axis(x: Scale, top: float, bottom: float, label: str, most: int) -> Html:
    """Marks with lines up to `top`, and the axis' name with its unit below."""
    return join(
        *(
            join(
                line(x(each), top, x(each), bottom, "grid"),
                text(x(each), bottom + 16, short(each), "middle"),
            )
            for each in x.ticks(most)
        ),
        line(min(x.begin, x.end), bottom, max(x.begin, x.end), bottom, "axis"),
        text(x.end, bottom + 34, label, "end"),
    )


def y_axis(y: Scale, left: float, right: float, label: str, most: int) -> Html:
    """Marks with lines to `right`; the name lies above the axis, to be read without turning."""
    return join(
        *(
            join(
                line(left, y(each), right, y(each), "grid"),
                text(left - 8, y(each) + 4, short(each), "end"),
            )
            for each in y.ticks(most)
        ),
        text(0, min(y.begin, y.end) - 12, label),
    )


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places for labels, near those that are asked for, in their order, `gap` apart."""
    order = sorted(range(len(places)), key=lambda at: places[at])
    found = list(places)
    last = low - gap
    for at in order:
        found[at] = max(places[at], last + gap)
        last = found[at]
    over = high
    for at in reversed(order):
        found[at] = min(found[at], over)
        over = found[at] - gap
    return found
