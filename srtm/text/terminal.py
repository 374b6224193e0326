"""Tables for people, on a terminal or piped.

A table never cuts a value. Where its columns are too wide for the terminal, headers go over several
lines, then columns are left out, those of the highest rank first, and named below; where the rest
is still too wide, each row becomes a block of lines.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from textwrap import wrap

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

_UNBOUNDED = 10_000
"""columns of a pipe: nobody's terminal, so all is shown"""
_PADDING = 2
_LEAST_TEXT = 24
"""columns that a column of sentences needs"""

Cell = str | Text


@dataclass(frozen=True, slots=True)
class Column:
    """header: with the unit of its figures
    rank:    0 is always shown; of the others the highest is left out first
    text:    aligned to the left; sentence: may go over several lines
    """

    header: str
    rank: int = 0
    text: bool = False
    sentence: bool = False


class Table:
    """Rows are added in order; each cell is one line of text, but for sentences. A string in it
    gives the terminal no commands, whoever chose it."""

    def __init__(self, *columns: Column, title: str = "") -> None:
        self._columns = columns
        self._title = title
        self._rows: list[list[Text]] = []

    def add(self, *cells: Cell) -> None:
        if len(cells) != len(self._columns):
            raise ValueError(f"{len(cells)} cells for {len(self._columns)} columns")
        self._rows.append(
            [each if isinstance(each, Text) else Text(printable(each)) for each in cells]
        )

    def __len__(self) -> int:
        return len(self._rows)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self._title:
            yield Text(self._title)
        chosen = self._fitting(options.max_width)
        if chosen is None:
            yield from self._blocks()
            return
        yield self._rendered(chosen, options.max_width)
        left_out = [each.header for at, each in enumerate(self._columns) if at not in chosen]
        if left_out:
            yield Text(f"not shown for want of room: {', '.join(left_out)}", style="dim")

    # --- what fits ----------------------------------------------------------------------------

    def _fitting(self, width: int) -> list[int] | None:
        """Numbers of the columns that are shown; None: not even those of rank 0 fit."""
        chosen = list(range(len(self._columns)))
        while self._width(chosen) > width:
            worst = max(chosen, key=lambda at: (self._columns[at].rank, at))
            if not self._columns[worst].rank:
                return None
            chosen.remove(worst)
        return chosen

    def _width(self, chosen: Sequence[int]) -> int:
        return sum(map(self._least, chosen)) + _PADDING * (len(chosen) - 1)

    def _widest(self, at: int) -> int:
        return max((row[at].cell_len for row in self._rows), default=0)

    def _least(self, at: int) -> int:
        """Columns that its values need, and the longest word of its header."""
        word = max(map(len, self._columns[at].header.split()), default=0)
        widest = self._widest(at)
        if self._columns[at].sentence:
            widest = min(widest, _LEAST_TEXT)
        return max(widest, word)

    def _widths(self, chosen: Sequence[int], width: int) -> dict[int, int]:
        """Headers go over several lines only where they have to."""
        least = {at: self._least(at) for at in chosen}
        whole = {at: max(least[at], len(self._columns[at].header)) for at in chosen}
        fits = sum(whole.values()) + _PADDING * (len(chosen) - 1) <= width
        return whole if fits else least

    # --- how it is shown ----------------------------------------------------------------------

    def _rendered(self, chosen: Sequence[int], width: int) -> RichTable:
        widths = self._widths(chosen, width)
        made = RichTable(
            box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, _PADDING - 1, 0, 0)
        )
        has_sentences = any(self._columns[at].sentence for at in chosen)
        for at in chosen:
            column = self._columns[at]
            made.add_column(
                "\n".join(wrap(column.header, max(widths[at], 1), break_long_words=False)),
                justify="left" if column.text or column.sentence else "right",
                vertical="top" if has_sentences else "bottom",
                no_wrap=not column.sentence,
                min_width=widths[at],
                overflow="fold",
            )
        for row in self._rows:
            made.add_row(*(row[at] for at in chosen))
        return made

    def _blocks(self) -> Iterable[Text]:
        """A line for each value, and an empty one between rows."""
        for number, row in enumerate(self._rows):
            if number:
                yield Text("")
            for column, cell in zip(self._columns, row, strict=True):
                yield Text.assemble((f"{column.header}: ", "bold"), cell)


def output() -> Console:
    """Standard output, as wide as its terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=_UNBOUNDED)


def printable(text: str) -> str:
    """Text that strangers chose, such as the id of a publisher, made harmless: a terminal is given
    no commands."""
    return "".join(each if each.isprintable() else "?" for each in text)


def show(*parts: RenderableType) -> None:
    """One below the other. A line of text is left to the terminal to break, and is no markup."""
    console = output()
    for part in parts:
        shown = Text(part) if isinstance(part, str) else part
        console.print(shown, soft_wrap=isinstance(shown, Text))
