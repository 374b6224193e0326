"""Files of arrivals: CSV, JSON lines and Parquet, plain or compressed, read in batches."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from srtm.text.errors import UsageError
from srtm.traces.foreign.odd import Odd

BATCH_ROWS = 1 << 18
BLOCK_BYTES = 1 << 22
"""of CSV that is parsed at once, which no row may exceed"""
MOST_LINE_BYTES = 1 << 20
_COMPRESSED = (".gz", ".zst", ".bz2", ".lz4")
_SUFFIXES = {
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
}
FORMATS = ("csv", "jsonl", "parquet")
_SHOWN = 12
"""columns that an error names"""

Batch = Mapping[str, pa.Array]
"""by the names that were asked for: values as the file has them; those of CSV and JSON are texts"""


@dataclass(frozen=True, slots=True)
class How:
    """kind: one of FORMATS, None: by the file's name; delimiter: None: a tab in a .tsv, else a
    comma; header: without one, columns are named 1, 2 and so on."""

    kind: str | None = None
    delimiter: str | None = None
    header: bool = True


def batches(path: Path, how: How, columns: Sequence[str], odd: Odd) -> Iterator[Batch]:
    """The columns of a file's rows. Lines that are no rows go to `odd`.

    Raises UsageError for a file that cannot be read, or that lacks a column.
    """
    kind = how.kind or _kind(path)
    read = {"csv": _csv, "jsonl": _json_lines, "parquet": _parquet}[kind]
    try:
        yield from read(path, how, columns, odd)
    except OSError as error:
        said = os.strerror(error.errno) if error.errno else str(error).splitlines()[0]
        raise UsageError(f"{path}: {said}") from None
    except pa.ArrowException as error:
        said = str(error).splitlines()[0]
        raise UsageError(f"{path}: it cannot be read as {kind}: {said}") from None


def _kind(path: Path) -> str:
    suffixes = [each.lower() for each in path.suffixes if each.lower() not in _COMPRESSED]
    found = _SUFFIXES.get(suffixes[-1]) if suffixes else None
    if found is None:
        raise UsageError(f"{path}: its name tells no format; say --format {'|'.join(FORMATS)}")
    return found


def _missing(path: Path, column: str, there: Sequence[str]) -> UsageError:
    more = f" and {len(there) - _SHOWN:,} more" if len(there) > _SHOWN else ""
    return UsageError(f"{path}: no column {column!r}; it has {', '.join(there[:_SHOWN])}{more}")


def _csv(path: Path, how: How, columns: Sequence[str], odd: Odd) -> Iterator[Batch]:
    tab = ".tsv" in (each.lower() for each in path.suffixes)
    read = pacsv.ReadOptions(
        block_size=BLOCK_BYTES, use_threads=False, autogenerate_column_names=not how.header
    )

    def opened(odd: Odd, convert: pacsv.ConvertOptions | None = None) -> pacsv.CSVStreamingReader:
        parse = pacsv.ParseOptions(
            delimiter=how.delimiter or ("\t" if tab else ","),
            invalid_row_handler=partial(_skipped, odd),
            newlines_in_values=True,
        )
        stream = pa.input_stream(str(path), compression="detect")
        return pacsv.open_csv(
            stream, read_options=read, parse_options=parse, convert_options=convert
        )

    with opened(Odd()) as first:
        there = first.schema.names
    named = there if how.header else [str(number + 1) for number in range(len(there))]
    missing = next((column for column in columns if column not in named), None)
    if missing is not None:
        raise _missing(path, missing, named)
    names = {column: there[named.index(column)] for column in columns}
    convert = pacsv.ConvertOptions(
        include_columns=list(names.values()),
        # As bytes: a text that is not UTF-8 would be an error of the whole file.
        column_types=dict.fromkeys(names.values(), pa.binary()),
        strings_can_be_null=False,
    )
    with opened(odd, convert) as reader:
        for batch in reader:
            yield {column: _text(batch.column(name)) for column, name in names.items()}


def _skipped(odd: Odd, row: pacsv.InvalidRow) -> str:
    odd.count(f"not {row.expected_columns} columns", example=row.text)
    return "skip"


def _text(values: pa.Array) -> pa.Array:
    """Bytes as texts; null where they are not UTF-8."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_decoded(each) for each in values.to_pylist()], pa.string())


def _decoded(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _json_lines(path: Path, how: How, columns: Sequence[str], odd: Odd) -> Iterator[Batch]:
    """A column is a key of each line's object, or a path of keys with dots in between."""
    rows: dict[str, list[str | None]] = {column: [] for column in columns}
    count = 0
    for line in _lines(path, odd):
        document = _object(line)
        if document is None:
            odd.count("a line that is no JSON object", example=line.decode(errors="replace"))
            continue
        for column in columns:
            rows[column].append(_value(document, column))
        count += 1
        if count == BATCH_ROWS:
            yield {column: pa.array(values, pa.string()) for column, values in rows.items()}
            rows, count = {column: [] for column in columns}, 0
    if count:
        yield {column: pa.array(values, pa.string()) for column, values in rows.items()}


def _lines(path: Path, odd: Odd) -> Iterator[bytes]:
    rest = b""
    skipping = False
    with pa.input_stream(str(path), compression="detect") as stream:
        while block := stream.read(BLOCK_BYTES):
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                if skipping:
                    skipping = False
                elif line.strip():
                    yield line
            if len(rest) > MOST_LINE_BYTES:
                if not skipping:
                    odd.count(f"a line of more than {MOST_LINE_BYTES >> 20} MiB")
                rest, skipping = b"", True
    if rest.strip() and not skipping:
        yield rest


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        # Numbers stay the texts that they are: a float would cut the digits of ns.
        found = json.loads(line, parse_float=str, parse_int=str)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _value(document: Mapping[str, Any], column: str) -> str | None:
    """None: it is not there, or is neither a text nor a number."""
    found: Any = document.get(column)
    if found is None and "." in column:
        found = document
        for key in column.split("."):
            found = found.get(key) if isinstance(found, dict) else None
    if not isinstance(found, str):
        return None
    try:
        found.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return None
    return found


def _parquet(path: Path, how: How, columns: Sequence[str], odd: Odd) -> Iterator[Batch]:
    with pq.ParquetFile(path) as file:
        there = [leaf.path for leaf in (file.schema.column(n) for n in range(len(file.schema)))]
        for column in columns:
            if column not in there:
                raise _missing(path, column, there)
        for batch in file.iter_batches(BATCH_ROWS, columns=list(columns)):
            yield {column: _leaf(batch, column) for column in columns}


def _leaf(batch: pa.RecordBatch, column: str) -> pa.Array:
    """The values of a column, which may be within others."""
    if column in batch.schema.names:
        found = batch.column(column)
    else:
        first, *keys = column.split(".")
        found = pa.compute.struct_field(batch.column(first), keys)
    if pa.types.is_dictionary(found.type):
        found = found.dictionary_decode()
    if pa.types.is_binary(found.type) or pa.types.is_large_binary(found.type):
        return _text(found.cast(pa.binary()))
    if pa.types.is_decimal(found.type) or pa.types.is_large_string(found.type):
        return found.cast(pa.string())
    return found
