"""Results as Markdown."""

import re
from collections.abc import Sequence

from srtm.report.result import Bar, Result, number


def markdown(results: Sequence[Result], title: str, about: str) -> str:
    """about: Markdown; all else is text."""
    parts = [f"# {_text(title)}\n\n{about}\n"]
    if len(results) > 1:
        rows = [[_link(each), str(len(each.bars)), *_counts(each)] for each in results]
        parts.append(_table("", ["benchmark", "bars", "met", "missed", "undecided"], rows))
    for each in results:
        shows = f": {_text(each.shows)}" if each.shows else ""
        parts.append(f"## {_text(each.benchmark)}{shows}\n\n{_section(each)}")
    return "\n".join(parts)


def _link(result: Result) -> str:
    """A link to the result's heading, of which GitHub makes this anchor."""
    heading = f"{result.benchmark}: {result.shows}" if result.shows else result.benchmark
    kept = "".join(each for each in heading.lower() if each.isalnum() or each in " -_")
    return f"[{_cell(result.benchmark)}](#{kept.replace(' ', '-')})"


def _counts(result: Result) -> list[str]:
    missed = result.count(False)
    return [
        str(result.count(True)),
        f"**{missed}**" if missed else "0",
        str(result.count(None)),
    ]


def _section(result: Result) -> str:
    quick = ", --quick" if result.quick else ""
    load = result.machine.load_average.shown(", load average {:.1f} before and {:.1f} after")
    parts = [f"{_text(result.method)}\n"] if result.method else []
    parts.append(
        f"{_text(result.started_at[:10])}, {result.seconds:,.0f} s{quick}, "
        f"{result.machine.cores or '?'} cores ({_text(result.machine.cpu)}){load}, "
        f"commit {_text(result.commit.shown)}.\n"
    )
    parts += [
        _table(each.title, each.columns, [list(map(_cell, row)) for row in each.full_rows])
        for each in result.tables
    ]
    if result.bars:
        rows = [_bar(each) for each in result.bars]
        parts.append(_table("", ["bar", "figure", "range", "limit", ""], rows))
    parts += [f"- {_text(note)}\n" for note in result.notes]
    return "\n".join(parts)


def _bar(bar: Bar) -> list[str]:
    verdict = "**missed**" if bar.met is False else bar.verdict
    why = f": {bar.why}" if bar.why else ""
    return [_cell(bar.name), number(bar.value), bar.range, _cell(bar.limit), verdict + _cell(why)]


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with rows of cells that are Markdown."""
    lines = [f"{_text(title)}\n"] if title else []
    lines += [_row([_cell(each) for each in columns]), "|" + "---|" * len(columns)]
    lines += [_row(row) for row in rows]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(words: str) -> str:
    return _text(words).replace("|", "\\|")


def _text(words: str) -> str:
    """One line, in which nothing is HTML or a link."""
    line = _ENTITY.sub("&amp;", " ".join(words.split()))
    return _TAG.sub("&lt;", line).replace("[", "\\[")


_ENTITY = re.compile(r"&(?=[#a-zA-Z])")
_TAG = re.compile(r"<(?=[a-zA-Z/!?])")
