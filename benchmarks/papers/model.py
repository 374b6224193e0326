"""What a paper shows in one place, and what became of it here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from srtm.report.result import Bar, Result, number

_NAMED = 3
"""Bars that a cell shows one by one; of more it counts those that are met."""


class Verdict(StrEnum):
    """What became of a row. `differs`: neither the other way round nor near the paper's figure."""

    REPRODUCED = "reproduced"
    BETTER = "better"
    DIFFERS = "differs"
    REVERSED = "reversed"
    UNDECIDED = "undecided"
    NOT_SHOWN = "not shown"

    @property
    def decided(self) -> bool:
        return self not in (Verdict.UNDECIDED, Verdict.NOT_SHOWN)


@dataclass(frozen=True, slots=True)
class Found:
    """One line of the page. ours: what was found, for people to read."""

    how: str
    ours: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars of a benchmark's result that show a row.

    how:    simulated, or measured, and what else sets it apart
    begins: beginnings of the bars' names
    met, missed: the verdict where all of them are met, and where one is missed
    """

    how: str
    benchmark: str
    begins: tuple[str, ...]
    met: Verdict = Verdict.REPRODUCED
    missed: Verdict = Verdict.REVERSED

    def look(self, results: Mapping[str, Result]) -> Found:
        result = results.get(self.benchmark)
        if result is None:
            return Found(self.how, f"{self.benchmark}: not run", Verdict.NOT_SHOWN)
        bars = [bar for bar in result.bars if bar.name.startswith(self.begins)]
        if not bars:
            return Found(self.how, f"{self.benchmark}: no such bar", Verdict.NOT_SHOWN)
        return Found(self.how, f"{self.benchmark}: {_told(bars)}", self._verdict(bars))

    def _verdict(self, bars: Sequence[Bar]) -> Verdict:
        found = {bar.met for bar in bars}
        if False in found:
            return self.missed
        return Verdict.UNDECIDED if None in found else self.met


@dataclass(frozen=True, slots=True)
class Rising:
    """A column of figures that is to rise from row to row of a benchmark's table.

    table: beginning of its title
    """

    how: str
    benchmark: str
    table: str
    column: str

    def look(self, results: Mapping[str, Result]) -> Found:
        result = results.get(self.benchmark)
        tables = result.tables if result is not None else ()
        for table in tables:
            if table.title.startswith(self.table) and self.column in table.columns:
                place = table.columns.index(self.column)
                cells = [row[place] for row in table.full_rows]
                values = [float(cell.replace(",", "")) for cell in cells]
                rises = all(low < high for low, high in pairwise(values))
                verdict = Verdict.REPRODUCED if rises else Verdict.REVERSED
                return Found(self.how, f"{self.benchmark}: {' < '.join(cells)}", verdict)
        return Found(self.how, f"{self.benchmark}: not run", Verdict.NOT_SHOWN)


@dataclass(frozen=True, slots=True)
class Row:
    """where: table, figure or section; says: what the paper has there, in our words; shown: by
    what; why: why nothing shows it, or why it comes out otherwise"""

    where: str
    says: str
    shown: tuple[Bars | Rising, ...] = ()
    why: str = ""

    def look(self, results: Mapping[str, Result]) -> "Looked":
        found = tuple(each.look(results) for each in self.shown)
        return Looked(self, found or (Found("-", "-", Verdict.NOT_SHOWN),))


@dataclass(frozen=True, slots=True)
class Looked:
    """A row with what was found."""

    row: Row
    found: tuple[Found, ...]

    @property
    def verdict(self) -> Verdict:
        """The one that says most against us, of those that are decided."""
        order = (
            *(Verdict.REVERSED, Verdict.DIFFERS, Verdict.BETTER, Verdict.REPRODUCED),
            *(Verdict.UNDECIDED, Verdict.NOT_SHOWN),
        )
        return min((each.verdict for each in self.found), key=order.index)


@dataclass(frozen=True, slots=True)
class Paper:
    name: str
    title: str
    rows: tuple[Row, ...] = field(repr=False)


def _told(bars: Sequence[Bar]) -> str:
    if len(bars) <= _NAMED:
        return "; ".join(_figure(bar) for bar in bars)
    met = sum(bar.met is True for bar in bars)
    missed = [_figure(bar) for bar in bars if bar.met is False]
    open_ = sum(bar.met is None for bar in bars)
    told = f"{met} of {len(bars)} bars met"
    if open_:
        told += f", {open_} undecided"
    if missed:
        more = f" and {len(missed) - _NAMED} more" if len(missed) > _NAMED else ""
        told += f"; missed: {'; '.join(missed[:_NAMED])}{more}"
    return told


def _figure(bar: Bar) -> str:
    return f"{bar.name}: {number(bar.value)} ({bar.limit})"
