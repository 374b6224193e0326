"""Rows of other people's files become the one file of a new trace, which appears whole."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from srtm.text.errors import SrtmError, UsageError
from srtm.traces.chunk import ADMITTED, OUTCOMES
from srtm.traces.files import parquet_into, publish, remove_unfinished
from srtm.traces.foreign.odd import Odd
from srtm.traces.foreign.sources import Batch, How, batches
from srtm.traces.foreign.times import NOT_A_TIME, NS, OUT_OF_RANGE, nanoseconds, unit_of
from srtm.traces.names import prefix_of
from srtm.traces.schema import SCHEMA

BROKER = "imported"
MOST_NAME = 256
"""characters; what is longer is cut, as a gateway cuts the names of publishers"""
_MOST_BYTES = 2**40


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns that have the values of a trace; of what has none, all rows have one value."""

    time: str
    publisher: str
    topic: str | None = None
    size: str | None = None
    broker: str | None = None

    @property
    def names(self) -> list[str]:
        found = (self.time, self.publisher, self.topic, self.size, self.broker)
        return list(dict.fromkeys(each for each in found if each is not None))


@dataclass(frozen=True, slots=True)
class Request:
    """unit: of times that are numbers, None: the one that today's numbers have; as_topic: where no
    column has the topic."""

    files: Sequence[Path]
    folder: Path
    columns: Columns
    unit: str | None = None
    as_topic: str = BROKER
    how: How = How()  # noqa: RUF009


@dataclass(slots=True)
class Imported:
    """first_ns, last_ns: of the rows' times; step_ns: the greatest that divides all of them"""

    file: Path | None = None
    unit: str = ""
    rows: int = 0
    first_ns: int = 0
    last_ns: int = 0
    step_ns: int = 0
    odd: Odd = field(default_factory=Odd)

    def add(self, times: NDArray[np.int64]) -> None:
        first, last = int(times.min()), int(times.max())
        self.first_ns = min(self.first_ns, first) if self.rows else first
        self.last_ns = max(self.last_ns, last)
        self.step_ns = math.gcd(self.step_ns, int(np.gcd.reduce(times)))
        self.rows += times.size


def import_rows(request: Request, tell: Callable[[Path, int], None] | None = None) -> Imported:
    """Write the trace. tell: is called with a file and its rows so far.

    Raises UsageError where a file cannot be read, the folder holds a trace already, no unit is
    obvious, or no row can be taken: then nothing is written. Raises SrtmError where it cannot be
    written.
    """
    folder = request.folder
    made = Imported(unit=request.unit or "")

    def write(file: IO[bytes]) -> None:
        with parquet_into(file) as parquet:
            for table in _tables(request, made, tell or (lambda path, rows: None)):
                parquet.write_table(table)
        if not made.rows:
            why = "; ".join(made.odd.lines()) or "there is none"
            raise UsageError(f"no row can be taken: {why}")

    try:
        folder.mkdir(parents=True, exist_ok=True)
        remove_unfinished(folder)
        _require_new(folder)
        appeared = publish(folder, prefix_of(BROKER), (1, 1), write)
    except OSError as error:
        raise SrtmError(f"--trace {folder}: {error.strerror or error}") from None
    if appeared is None:
        raise UsageError(f"--trace {folder}: another import has written there meanwhile")
    made.file = appeared.path
    return made


def _require_new(folder: Path) -> None:
    there = next(folder.rglob("*.parquet"), None)
    if there is not None:
        raise UsageError(
            f"--trace {folder}: holds {there.name} already; name a new folder, as rows that are "
            "imported twice would count twice"
        )


def _tables(
    request: Request, made: Imported, tell: Callable[[Path, int], None]
) -> Iterator[pa.Table]:
    for path in request.files:
        read = 0
        for batch in batches(path, request.how, request.columns.names, made.odd):
            read += len(batch[request.columns.time])
            tell(path, read)
            table = _table(path, batch, request, made)
            if len(table):
                yield table.sort_by([("topic", "ascending"), ("time", "ascending")])


def _table(path: Path, batch: Batch, request: Request, made: Imported) -> pa.Table:
    columns, odd = request.columns, made.odd
    times = batch[columns.time]
    if not (_is_text(times) or pa.types.is_integer(times.type) or _is_time(times)):
        raise UsageError(f"{path}: column {columns.time!r} is {times.type}, which is no time")
    if not made.unit:
        made.unit = _unit(path, columns.time, times)
    at = nanoseconds(times, made.unit)
    good = np.ones(len(times), bool)

    def leave_out(bad: NDArray[np.bool_], why: str, values: pa.Array) -> None:
        bad = bad & good
        if bad.any():
            example = values[int(np.flatnonzero(bad)[0])].as_py()
            odd.count(why, int(bad.sum()), example)
            good[bad] = False

    leave_out(at == NOT_A_TIME, f"{columns.time} is no time{_in(made.unit)}", times)
    leave_out(at == OUT_OF_RANGE, f"{columns.time} is before 1970 or after 2100", times)
    named = {}
    for role, column, otherwise in (
        ("publisher", columns.publisher, ""),
        ("topic", columns.topic, request.as_topic),
        ("broker", columns.broker, BROKER),
    ):
        if column is None:
            named[role] = pa.array([otherwise], pa.string()).take(pa.array([0] * len(times)))
            continue
        named[role] = _names(path, column, batch[column])
        is_none = pc.equal(named[role].fill_null(""), "").to_numpy(zero_copy_only=False)
        leave_out(is_none, f"{column} is empty, or no text", batch[column])
    size = np.zeros(len(times), np.int64)
    if columns.size is not None:
        size = _sizes(batch[columns.size])
        leave_out(size < 0, f"{columns.size} is no number of bytes", batch[columns.size])
    if good.any():
        made.add(at[good])
    return (
        pa.table(
            {
                "time": at,
                **{role: named[role] for role in ("topic", "publisher", "broker")},
                "messages": np.ones(len(times), np.int32),
                "bytes": size,
                "wait": np.zeros(len(times), np.int64),
                "outcome": pa.array([OUTCOMES[ADMITTED]]).take(pa.array([0] * len(times))),
            },
        )
        .filter(pa.array(good))
        .select(SCHEMA.names)
        .cast(SCHEMA)
    )


def _is_text(values: pa.Array) -> bool:
    return bool(pa.types.is_string(values.type))


def _is_time(values: pa.Array) -> bool:
    return bool(pa.types.is_timestamp(values.type) or pa.types.is_floating(values.type))


def _unit(path: Path, column: str, times: pa.Array) -> str:
    """As the first rows have it."""
    found = unit_of(times)
    if found is None:
        shown = times.drop_null()[0].as_py()
        raise UsageError(
            f"{path}: column {column!r} has times like {shown}, of no obvious unit; say --unit "
            f"{'|'.join(NS)}, counted from 1970 or any other moment"
        )
    return found


def _in(unit: str) -> str:
    return f" in {unit}" if unit else ""


def _names(path: Path, column: str, values: pa.Array) -> pa.Array:
    if pa.types.is_integer(values.type) or pa.types.is_boolean(values.type):
        values = values.cast(pa.string())
    if not _is_text(values):
        raise UsageError(f"{path}: column {column!r} is {values.type}, which is no name")
    return pc.utf8_slice_codeunits(values, 0, MOST_NAME)


def _sizes(values: pa.Array) -> NDArray[np.int64]:
    """Bytes, 0 where it says nothing, -1 where it is no such number."""
    if _is_text(values):
        trimmed = pc.utf8_trim_whitespace(values)
        is_number = pc.match_substring_regex(trimmed, r"^[0-9]{1,13}$").fill_null(False)
        is_empty = pc.equal(trimmed, "").fill_null(True)
        values = pc.if_else(
            is_number, trimmed, pc.if_else(is_empty, pa.scalar("0"), pa.scalar("-1"))
        ).cast(pa.int64())
    elif not pa.types.is_integer(values.type):
        return np.full(len(values), -1, np.int64)
    is_null = values.is_null().to_numpy(zero_copy_only=False)
    found = values.fill_null(0).cast(pa.int64(), safe=False).to_numpy(zero_copy_only=False)
    good = (found >= 0) & (found <= _MOST_BYTES)
    return np.where(is_null, 0, np.where(good, found, -1))
