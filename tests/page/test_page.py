"""HTML that nothing breaks, scales, and charts in two widths."""

import re
from html.parser import HTMLParser
from itertools import pairwise
from math import isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.page import (
    Bar,
    Html,
    Lane,
    Line,
    Span,
    SpanRow,
    bar_chart,
    document,
    line_chart,
    raster,
    span_chart,
    table,
    tag,
)
from srtm.page.frame import clipped, spread
from srtm.page.scales import scale, short


class _Read(HTMLParser):
    """What a reader of HTML makes of a text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.attributes: list[str | None] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += [value for _, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


VISIBLE = st.text(st.characters(min_codepoint=32, exclude_categories=["Cs", "Cc"]))


@given(VISIBLE, VISIBLE)
def test_whatever_text_is_it_stays_text(words: str, attribute: str) -> None:
    read = _Read(tag("p", words, title=attribute))
    assert read.elements == ["p"]
    assert read.text == words
    assert read.attributes == [attribute]


def test_elements_are_nested_and_what_is_none_is_left_out() -> None:
    inner = tag("b", "x < y", class_="k", id=None)
    assert inner == '<b class="k">x &lt; y</b>'
    assert tag("p", inner, None, 1.5, " & ") == f"<p>{inner}1.5 &amp; </p>"
    assert tag("p", Html("<i>")) == "<p><i></p>"
    assert "\x00" not in tag("p", "a\x00b")


def test_a_page_loads_and_runs_nothing() -> None:
    text = document("t & t", tag("p", "x"))
    assert "<title>t &amp; t</title>" in text
    assert "default-src &#x27;none&#x27;" in text
    assert not re.search(r"<script|@import|url\(|src=|https?:", text)


def test_a_table_keeps_figures_to_the_right() -> None:
    text = table(["who", "ms"], [["a", "1"], ["b", "2"]], classes=[None, "missed-row"])
    assert '<tr class="missed-row"><td>b</td><td class="right">2</td></tr>' in text


# --- scales -----------------------------------------------------------------------------------

VALUES = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=20)


@given(VALUES, st.booleans())
def test_values_and_marks_lie_on_the_axis(values: list[float], log: bool) -> None:
    found = scale(values, 10, 110, log)
    for each in [*values, *found.ticks(5)]:
        assert 10 - 1e-6 <= found(each) <= 110 + 1e-6
    assert len(found.ticks(5)) <= 12
    ordered = sorted(values)
    places = [found(each) for each in ordered]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("values", "log", "marks"),
    [
        pytest.param([0, 10], False, [0, 2.5, 5, 7.5, 10], id="even"),
        pytest.param([1, 1e4], True, [1, 10, 100, 1_000, 10_000], id="decades"),
        pytest.param([2, 40], True, [2, 5, 10, 20], id="less-than-a-decade-or-two"),
    ],
)
def test_marks(values: list[float], log: bool, marks: list[float]) -> None:
    found = scale(values, 0, 100, log).ticks(5)
    assert all(isclose(*each, abs_tol=1e-9) for each in zip(found, marks, strict=True))


@pytest.mark.parametrize(
    ("value", "said"),
    [(0.05, "0.05"), (2, "2"), (1500, "1,500"), (20_000, "20k"), (3e6, "3M"), (0, "0")],
)
def test_a_mark_s_figure(value: float, said: str) -> None:
    assert short(value) == said


@given(st.lists(st.floats(0, 200), min_size=1, max_size=8))
def test_labels_do_not_collide(places: list[float]) -> None:
    found = sorted(spread(places, 15, 0, 200))
    assert all(b - a >= 15 - 1e-6 for a, b in pairwise(found))
    assert found[-1] <= 200 + 1e-6


def test_a_long_name_is_cut_and_says_so() -> None:
    assert clipped("short", 100) == "short"
    assert clipped("a name that is far too long", 60).endswith("…")


# --- charts -----------------------------------------------------------------------------------

CHARTS = {
    "lines": line_chart("<t>", "a & b", [Line("<n>", [(1, 2), (3, 4)], 1)], "x, s", "y, ms"),
    "empty-lines": line_chart("t", "", [], "x", "y", log_x=True),
    "bars": bar_chart("<t>", "a & b", [Bar("<n>", 3, "3 ms"), Bar("zero", 0, "0 ms")]),
    "raster": raster("<t>", "a & b", [Lane("<n>", [[0.5], []], 0), Lane("none", [[]], 1)],
                     0, 1, "s"),
    "spans": span_chart("<t>", "a & b", [SpanRow("<n>", [Span(0, 2, False, True)])],
                        ["10:00", "10:01", "10:02"], "UTC"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_is_drawn_for_screens_and_for_phones(name: str) -> None:
    read = _Read(CHARTS[name])
    assert read.elements.count("svg") == 2
    assert "nan" not in CHARTS[name].lower()
    assert not {"t", "n"} & set(read.elements)


def test_what_is_not_there_is_told() -> None:
    assert CHARTS["raster"].count("not in this stretch") == 2
