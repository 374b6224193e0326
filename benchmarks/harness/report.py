"""What a benchmark hands back, and how people and programs get to see it."""

import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rich.box import SIMPLE
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from benchmarks.harness.bars import Bar
from srtm.report.result import number

__all__ = ["Picture", "Report", "number", "plain", "render", "span", "table", "tabulate", "write"]

T = TypeVar("T")

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture
else:
    Picture = Any  # matplotlib may not be installed

_COLOURS = {True: "green", False: "bold red", None: "yellow"}


@dataclass(frozen=True)
class Report:
    """settings: what was run; figures: all that was measured, for JSON; notes: what to know when
    reading them. draw: the benchmark's picture, where matplotlib is installed."""

    settings: dict[str, Any]
    figures: dict[str, Any]
    bars: list[Bar]
    tables: list[Table]
    notes: list[str] = field(default_factory=list)
    draw: Callable[[Picture], None] | None = None


def table(title: str, *columns: str) -> Table:
    """A table of ours: the first column to the left, figures to the right."""
    made = Table(title=title, box=SIMPLE, padding=(0, 1), title_justify="left")
    for place, name in enumerate(columns):
        made.add_column(name, justify="right" if place else "left")
    return made


def tabulate(
    title: str, rows: Iterable[T], *columns: tuple[str, Callable[[T], str | float | None]]
) -> Table:
    """A table with a row for each of `rows`. Of each column: its name, and what it shows of a row:
    text as it is, a figure as `number` writes it."""
    made = table(title, *(name for name, _ in columns))
    for row in rows:
        cells = (shown(row) for _, shown in columns)
        made.add_row(*(each if isinstance(each, str) else number(each) for each in cells))
    return made


def span(values: Collection[float]) -> str:
    """The least and the most, as a cell."""
    return f"{number(min(values))} .. {number(max(values))}"


def plain(made: Table) -> dict[str, Any]:
    """A table as text: {"title", "columns", "rows"}, for programs and for pages."""
    return {
        "title": str(made.title or ""),
        "columns": [str(column.header) for column in made.columns],
        "rows": [
            [str(cell) for cell in row]
            for row in zip(*(column.cells for column in made.columns), strict=True)
        ],
    }


def render(report: Report) -> RenderableType:
    """The report as the terminal shows it."""
    parts: list[RenderableType] = [*report.tables]
    if report.bars:
        parts.append(_bars(report.bars))
    return Group(*parts, *(Text(f"note: {note}") for note in report.notes))


def _bars(bars: list[Bar]) -> Table:
    made = table("bars", "figure", "value", "range", "bar", "verdict", "why")
    for bar in bars:
        verdict = Text(bar.verdict, style=_COLOURS[bar.met])
        low_high = f"{number(bar.low)} .. {number(bar.high)}"
        made.add_row(bar.name, number(bar.value), low_high, bar.limit, verdict, bar.why)
    return made


def write(name: str, report: Report, document: dict[str, Any], folder: Path) -> list[Path]:
    """NAME.json, and NAME.png where it can be drawn; what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / f"{name}.json"]
    written[0].write_text(json.dumps(document, indent=2) + "\n")
    picture = _draw(report.draw, folder / f"{name}.png") if report.draw else None
    return written + ([picture] if picture else [])


def _draw(draw: Callable[[Picture], None], path: Path) -> Path | None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    draw(figure)
    figure.savefig(path, dpi=120)
    return path
