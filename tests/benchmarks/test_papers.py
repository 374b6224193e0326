"""What a result makes of the papers' rows, and that the kept page is made from the results."""

import pytest

from benchmarks.catalogue import BENCHMARKS, PAPERS
from benchmarks.harness.report import plain
from benchmarks.kept import kept
from benchmarks.papers.model import Bars, Rising, Row, Verdict
from benchmarks.papers.run import PAPERS as ALL
from benchmarks.papers.run import SOURCES, report
from srtm.report.result import Bar, Commit, Machine, Result, Table


def result(*bars: Bar, table: Table | None = None) -> dict[str, Result]:
    found = Result(
        benchmark="b",
        started_at="2026-01-01T00:00:00+00:00",
        seconds=1.0,
        quick=False,
        machine=Machine(),
        commit=Commit(),
        tables=(table,) if table else (),
        bars=bars,
    )
    return {"b": found}


def bar(name: str, met: bool | None) -> Bar:
    return Bar(name=name, value=1.5, at_most=2.0, met=met)


@pytest.mark.parametrize(
    ("bars", "verdict"),
    [
        pytest.param([], Verdict.NOT_SHOWN, id="no-such-bar"),
        pytest.param([True, True], Verdict.REPRODUCED, id="all-met"),
        pytest.param([True, None], Verdict.UNDECIDED, id="one-undecided"),
        pytest.param([True, None, False], Verdict.REVERSED, id="one-missed"),
    ],
)
def test_what_bars_make_of_a_row(bars: list[bool | None], verdict: Verdict) -> None:
    results = result(bar("other: x", False), *(bar(f"7a: {n}", met) for n, met in enumerate(bars)))
    row = Row("Fig. 7a", "says", (Bars("simulated", "b", ("7a:",)),))
    assert row.look(results).verdict is verdict
    assert row.look({}).verdict is Verdict.NOT_SHOWN


@pytest.mark.parametrize(
    ("cells", "verdict"),
    [
        pytest.param(("1", "2.5", "1,000"), Verdict.REPRODUCED, id="rises"),
        pytest.param(("1", "2.5", "2.5"), Verdict.REVERSED, id="stays"),
    ],
)
def test_what_a_column_makes_of_a_row(cells: tuple[str, ...], verdict: Verdict) -> None:
    table = Table(title="k brokers", columns=("k", "p99"), rows=tuple(("1", c) for c in cells))
    row = Row("Fig. 6a", "says", (Rising("measured", "b", "k br", "p99"),))
    assert row.look(result(table=table)).verdict is verdict
    assert row.look(result()).verdict is Verdict.NOT_SHOWN


def test_a_row_counts_as_what_says_most_against_ours() -> None:
    results = result(bar("a", True), bar("b", False), bar("c", None))
    good, bad, unsure = (Bars("simulated", "b", (name,)) for name in "abc")
    assert Row("", "", (good, bad)).look(results).verdict is Verdict.REVERSED
    assert Row("", "", (good, unsure)).look(results).verdict is Verdict.REPRODUCED
    assert Row("", "").look(results).verdict is Verdict.NOT_SHOWN


def test_every_row_is_shown_by_a_benchmark_or_says_why_not() -> None:
    assert set(SOURCES) <= BENCHMARKS.keys()
    results = kept()
    for paper in ALL:
        for row in paper.rows:
            shown = row.look(results).verdict is not Verdict.NOT_SHOWN
            assert shown or row.why, f"{paper.name} {row.where}"


def test_the_kept_page_is_made_from_the_results_there() -> None:
    results = kept()
    made = report(results)
    tables = tuple(Table.model_validate(plain(table)) for table in made.tables)
    assert results[PAPERS].tables == tables, "make it anew: python -m benchmarks keep"
    assert [each.value for each in results[PAPERS].bars] == [each.value for each in made.bars]
