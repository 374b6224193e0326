"""The names of a trace's files, and which of them a reader takes. Without pyarrow.

A file is BROKER-NUMBER.parquet, or BROKER-FIRST..LAST.parquet where it holds the rows of several.
Both the small files and the one that took their place may lie there for a while: then the small
ones are left out.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

SUFFIX = ".parquet"
UNFINISHED = ".parquet.unfinished"
"""of a file that is being written; its name begins with a dot, so that no reader takes it"""
_DIGITS = 10
_NAME = re.compile(rf"(.+)-(\d{{{_DIGITS}}})(?:\.\.(\d{{{_DIGITS}}}))?{re.escape(SUFFIX)}", re.S)


@dataclass(frozen=True, slots=True)
class TraceFile:
    """prefix: of its broker; first, last: numbers of the files whose rows it holds"""

    path: Path
    prefix: str
    first: int
    last: int

    def covers(self, other: "TraceFile") -> bool:
        """Does it hold the rows of that one, and of more?"""
        return (
            self.prefix == other.prefix
            and self.first <= other.first
            and other.last <= self.last
            and self.last - self.first > other.last - other.first
        )


def prefix_of(broker: str) -> str:
    """What names of its files begin with: no character that paths, globs or URLs read otherwise."""
    return quote(broker, safe="").replace("~", "%7E").replace("%", "~")


def file_name(prefix: str, first: int, last: int) -> str:
    numbers = f"{first:0{_DIGITS}d}"
    if last != first:
        numbers += f"..{last:0{_DIGITS}d}"
    return f"{prefix}-{numbers}{SUFFIX}"


def parse(path: Path) -> TraceFile | None:
    """The file of a trace that `path` names; None: it is no file of a trace, or not a whole one."""
    found = _NAME.fullmatch(path.name)
    if found is None or path.name.startswith("."):
        return None
    first = int(found[2])
    return TraceFile(path, found[1], first, int(found[3] or first))


def list_files(folder: Path, prefix: str | None = None) -> list[TraceFile]:
    """All files of the traces in a folder, or those of one broker, in order of their rows;
    superseded ones too. Raises OSError."""
    found = [each for each in map(parse, folder.iterdir()) if each is not None]
    mine = [each for each in found if prefix is None or each.prefix == prefix]
    return sorted(mine, key=lambda each: (each.prefix, each.first, each.last))


def superseded(files: Iterable[TraceFile]) -> set[TraceFile]:
    """The files whose rows another one holds."""
    merged: dict[str, list[TraceFile]] = {}
    everything = list(files)
    for each in everything:
        if each.last != each.first:
            merged.setdefault(each.prefix, []).append(each)
    return {
        each
        for each in everything
        if any(other.covers(each) for other in merged.get(each.prefix, ()))
    }


def whole_trace(folder: Path) -> list[Path]:
    """The files that hold each row once, in order. Raises OSError."""
    files = list_files(folder)
    left_out = superseded(files)
    return [each.path for each in files if each not in left_out]
