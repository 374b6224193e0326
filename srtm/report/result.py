"""A result of a benchmark, as `python -m benchmarks run` writes it to NAME.json."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from srtm.host.files import read_file
from srtm.text.errors import SrtmError, UsageError, one_line

MOST_BYTES = 64 << 20
"""of a file: one with every figure of a long run has a few MB"""
_MOST_PICTURE_BYTES = 4 << 20
_PNG = b"\x89PNG\r\n\x1a\n"

Number = Annotated[float, Field(allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Bar(_Part):
    """value: median of its repetitions, low and high their range; None: not measured.
    met: None where the run could not tell, and `why` says why."""

    name: str
    value: Number | None = None
    low: Number | None = None
    high: Number | None = None
    at_least: Number | None = None
    at_most: Number | None = None
    met: bool | None = None
    why: str = ""

    @property
    def limit(self) -> str:
        if self.at_least is not None:
            return f">= {self.at_least:g}"
        return f"<= {self.at_most:g}" if self.at_most is not None else "-"

    @property
    def verdict(self) -> str:
        return {True: "met", False: "missed", None: "undecided"}[self.met]

    @property
    def range(self) -> str:
        if self.low is None or self.high is None or self.low == self.high:
            return "-"
        return f"{number(self.low)} .. {number(self.high)}"


class Table(_Part):
    title: str = ""
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def full_rows(self) -> list[tuple[str, ...]]:
        """The rows without the empty ones that part groups on a terminal, all as long as the
        columns."""
        width = len(self.columns)
        return [
            (row + ("",) * width)[:width] for row in self.rows if any(each.strip() for each in row)
        ]


class Load(_Part):
    """Average number of running processes over 1, 5 and 15 minutes, before and after."""

    start: tuple[Number, ...] = ()
    end: tuple[Number, ...] = ()

    def shown(self, words: str) -> str:
        """words: with two places for figures; "" where the load is not known."""
        return words.format(self.start[0], self.end[0]) if self.start and self.end else ""


class Machine(_Part):
    cpu: str = ""
    cores: int | None = None
    memory_bytes: int | None = None
    kernel: str = ""
    python: str = ""
    nsqd: str | None = None
    load_average: Load = Load()


class Commit(_Part):
    """id: None outside a checkout; dirty: did the tree differ from it?"""

    id: str | None = None
    dirty: bool | None = None

    @property
    def shown(self) -> str:
        return (self.id or "unknown")[:7] + (", changed" if self.dirty else "")


class Result(_Part):
    """shows: what the benchmark is about, in a line; method: how it is measured."""

    benchmark: str
    started_at: str
    seconds: Number
    quick: bool
    shows: str = ""
    method: str = ""
    settings: dict[str, Any] = {}
    machine: Machine
    commit: Commit
    tables: tuple[Table, ...]
    bars: tuple[Bar, ...]
    notes: tuple[str, ...] = ()
    picture: bytes | None = Field(default=None, exclude=True)

    @field_validator("picture", mode="before")
    @classmethod
    def _is_not_in_the_file(cls, _: object) -> None:
        return None

    def count(self, met: bool | None) -> int:
        return sum(each.met is met for each in self.bars)


def read(path: Path) -> Result:
    """The result in a file, with the picture that lies beside it. Raises UsageError where it is no
    result."""
    try:
        found = Result.model_validate_json(read_file(path, MOST_BYTES))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except ValidationError as error:
        said = one_line(error, "not a result of `python -m benchmarks run`")
        raise UsageError(f"{path}: {_bounded(str(said))}") from None
    return found.model_copy(update={"picture": _picture(path.with_suffix(".png"))})


def read_all(folder: Path) -> tuple[list[Result], list[str]]:
    """The results of all NAME.json there, by name, and a line for each file that is none. Raises
    UsageError where there is no result at all."""
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder; `python -m benchmarks run` writes one")
    results, faults = [], []
    for path in sorted(folder.glob("*.json")):
        try:
            results.append(read(path))
        except SrtmError as error:
            faults.append(str(error))
    if not results:
        more = f"; {'; '.join(faults[:3])}" if faults else ""
        raise UsageError(f"{folder}: no results there (NAME.json){more}")
    return results, faults


def _picture(path: Path) -> bytes | None:
    try:
        data = read_file(path, _MOST_PICTURE_BYTES)
    except OSError:
        return None
    return data if data.startswith(_PNG) else None


def _bounded(line: str) -> str:
    return line if len(line) <= 300 else line[:299] + "…"


def number(value: float | None, digits: int = 3) -> str:
    """A figure in a cell."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}g}"
