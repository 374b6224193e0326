"""A trace: a folder of Parquet files that gateways write while it is read.

A file appears whole under its name; what a writer has under way has a name that begins with a dot
or an underscore, or ends in `.tmp`. All other `.parquet` files, in folders below too, belong to the
trace, and each is looked at before any is read: a file that is left out must never go unnoticed.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from srtm.correlation.faults import BEFORE_ITS_FOOTER
from srtm.correlation.schema import RANGES, TRACE
from srtm.host.files import json_of
from srtm.text.errors import UsageError
from srtm.traces.names import TraceFile, parse, superseded
from srtm.traces.version import VERSION, VERSION_KEY

_PATTERN = re.compile(r"[\\{}\[\]*?]")
"""what Hadoop's globs give a meaning"""
_SHOWN = 3
"""faults that one line names"""
_TEXTS = (pa.string(), pa.large_string())
_COLUMNS = {"bigint": (pa.int64(),), "int": (pa.int32(),), "string": _TEXTS}
"""Arrow types that a column of Spark's type may have in a file; texts may be a dictionary"""
_CODECS = ("SNAPPY", "ZSTD", "GZIP", "LZ4", "UNCOMPRESSED")
_FIELDS = {field.name: field for field in TRACE.fields}
_SPARK_KEY = b"org.apache.spark.sql.parquet.row.metadata"
_MOST_DIGITS = 9


@dataclass(frozen=True, slots=True)
class Trace:
    """files: that can be read; rows: in all of them, by their footers; faults: a line for each
    file that cannot be read; unfinished: files that a writer has under way, left out."""

    folder: Path
    files: tuple[Path, ...]
    rows: int
    faults: tuple[str, ...]
    unfinished: int

    def nothing(self, topic: str | None = None) -> str:
        """What to say where it has no arrivals."""
        if topic is not None and self.rows:
            return f"--trace {self.folder}: no arrivals of topic {topic}"
        more = f"; {self.unfinished:,} under way" if self.unfinished else ""
        return (
            f"--trace {self.folder}: no arrivals in it yet ({len(self.files):,} files{more}): "
            "srtm gateway --trace-dir writes them, a file after a minute"
        )

    def frame(self, spark: SparkSession) -> DataFrame:
        """Its rows, with the columns of TRACE. An empty trace is an empty frame."""
        if not self.files:
            return spark.createDataFrame([], TRACE)
        return spark.read.schema(TRACE).parquet(*map(literal, self.files))


def literal(path: Path) -> str:
    """`path` so that Spark takes it literally: what Spark is given is a pattern, in which a
    backslash makes a sign plain."""
    return _PATTERN.sub(r"\\\g<0>", str(path.absolute()))


def open_trace(folder: Path, skip: bool = False, damaged: Collection[Path] = ()) -> Trace:
    """Look at every file's footer. skip: leave out what cannot be read, and say so in `faults`;
    damaged: absolute paths of files that are known to be so though their footers are whole.

    Raises UsageError where there is no such folder, or, without `skip`, for a file that is
    truncated, foreign, or of another version.
    """
    if not folder.is_dir():
        raise UsageError(f"--trace {folder}: no such folder")
    files, faults, rows, unfinished = [], [], 0, 0
    for path in _once(sorted(_named(folder))):
        if _is_unfinished(path.relative_to(folder)):
            unfinished += 1
            continue
        count = BEFORE_ITS_FOOTER if path.absolute() in damaged else _rows(path)
        if isinstance(count, str):
            faults.append(f"{path}: {count}")
        else:
            files.append(path)
            rows += count
    if faults and not skip:
        more = f"; {len(faults) - _SHOWN} more such files" if len(faults) > _SHOWN else ""
        raise UsageError(
            f"{'; '.join(faults[:_SHOWN])}{more}. Remove what is damaged, or leave it out by "
            "--skip-damaged"
        )
    return Trace(folder, tuple(files), rows, tuple(faults), unfinished)


def _once(paths: Sequence[Path]) -> Iterator[Path]:
    """The paths without those of files whose rows a compacted file beside them holds."""
    found: dict[Path, list[TraceFile]] = {}
    for each in filter(None, map(parse, paths)):
        found.setdefault(each.path.parent, []).append(each)
    left_out = {each.path for files in found.values() for each in superseded(files)}
    return (path for path in paths if path not in left_out)


def _named(folder: Path) -> Iterator[Path]:
    yield from (path for path in folder.rglob("*.parquet*") if path.is_file())


def _is_unfinished(path: Path) -> bool:
    hidden = any(part.startswith((".", "_")) for part in path.parts)
    return hidden or path.suffix != ".parquet"


def _rows(path: Path) -> int | str:
    """How many it has, or why it cannot be read."""
    try:
        with pq.ParquetFile(path) as file:
            metadata, schema = file.metadata, file.schema_arrow
    except FileNotFoundError:
        return "gone while the folder was read: a gateway removes old files; run it again"
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    except pa.ArrowInvalid:
        return "truncated, or not Parquet"
    version = version_of(metadata.metadata)
    if version is None:
        return "Parquet, but no trace of srtm: its metadata name no version"
    if version != VERSION:
        age = "newer: update srtm" if version > VERSION else "older, and no longer read"
        return f"a trace of version {version}; this srtm reads {VERSION}: it is {age}"
    for field in TRACE.fields:
        at = schema.get_field_index(field.name)
        if at < 0:
            return f"a damaged trace: it has no column {field.name!r}"
        found, wanted = schema.field(at).type, field.dataType.simpleString()
        is_dictionary = pa.types.is_dictionary(found) and found.value_type in _TEXTS
        if (found.value_type if is_dictionary else found) not in _COLUMNS[wanted]:
            return f"a damaged trace: column {field.name!r} is {found}, not {wanted}"
    for at in range(metadata.num_row_groups):
        if why := _unreadable(metadata.row_group(at)):
            return why
    return int(metadata.num_rows)


def _unreadable(group: pq.RowGroupMetaData) -> str:
    """Why it cannot be read, as its footer tells; empty: nothing."""
    for at in range(group.num_columns):
        column = group.column(at)
        name, found = column.path_in_schema, column.statistics
        if column.compression not in _CODECS:
            return (
                f"column {name!r} is compressed by {column.compression}, which Spark cannot read; "
                f"write it with one of {', '.join(_CODECS)}"
            )
        if found is None or name not in _FIELDS:
            continue
        if not _FIELDS[name].nullable and found.null_count:
            return f"a damaged trace: column {name!r} has rows without a value"
        lowest, highest = RANGES.get(name, (None, None))
        if lowest is None or not found.has_min_max:
            continue
        for value in (found.min, found.max):
            if not lowest <= value <= highest:
                return f"a damaged trace: column {name!r} has {value:,}, which cannot be"
    return ""


def version_of(metadata: Mapping[bytes, bytes] | None) -> int | None:
    """The version that a Parquet file's metadata name, by whoever wrote it; None: it is no trace.

    Spark writes no metadata of a file's own; it keeps those of columns, in a JSON document.
    """
    found = metadata or {}
    text = found.get(VERSION_KEY.encode(), b"").decode(errors="replace")
    if not text and _SPARK_KEY in found:
        text = _of_spark(found[_SPARK_KEY])
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else None


def _of_spark(document: bytes) -> str:
    try:
        fields = json_of(document)["fields"]
        return next((str(each["metadata"][VERSION_KEY]) for each in fields if each["metadata"]), "")
    except (ValueError, KeyError, TypeError):
        return ""
