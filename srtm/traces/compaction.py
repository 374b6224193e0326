"""Small files of a broker become bigger ones: 5,000 files of 200 rows are read ten times slower
than 8 of the same rows.

Eight neighbours of like size become one, so each row is written again as often as sizes grow
eightfold. The small ones stay for a while (see `remove_old`); readers leave them out by name.
"""

import fcntl
import os
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from srtm.traces.files import parquet_into, publish
from srtm.traces.names import TraceFile, list_files, superseded
from srtm.traces.schema import SCHEMA

NEIGHBOURS = 8
_BATCH_ROWS = 1 << 18
"""of one row group: a few MB, so that a reader of one topic skips the others' groups"""


class Damaged(Exception):
    """A file that is no trace."""

    def __init__(self, path: Path, why: object) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path


def compact(
    folder: Path, prefix: str, file_bytes: int, damaged: Container[Path] = ()
) -> TraceFile | None:
    """Make one big file of small ones, if there are enough. file_bytes: more are not put together;
    damaged: are left as they are. None: nothing to do, or another process does it. Raises OSError
    and Damaged."""
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        files = list_files(folder, prefix)
        replaced = superseded(files)
        sized = [
            (each, file_bytes if each.path in damaged else each.path.stat().st_size)
            for each in files
            if each not in replaced
        ]
        chosen = choose(sized, file_bytes)
        return _merge(folder, chosen) if chosen else None
    except BlockingIOError:
        return None
    finally:
        os.close(lock)


def choose(files: Sequence[tuple[TraceFile, int]], file_bytes: int) -> list[TraceFile]:
    """Neighbours, by name and bytes, that become one; [] for none. The smallest first: so a few
    bytes are written again, and big files seldom."""
    for most in (file_bytes // 64, file_bytes // 8, file_bytes // 2):
        run: list[TraceFile] = []
        total = 0
        for each, size in files:
            if size > most or total + size > file_bytes:
                run, total = [], 0
            if size <= most:
                run.append(each)
                total += size
            if len(run) == NEIGHBOURS:
                return run
    return []


def _merge(folder: Path, chosen: Sequence[TraceFile]) -> TraceFile | None:
    first, last = chosen[0], chosen[-1]
    newest = max(each.path.stat().st_mtime_ns for each in chosen)

    def write(file: IO[bytes]) -> None:
        with parquet_into(file) as writer:
            waiting: list[pa.RecordBatch] = []
            for each in chosen:
                for batch in _batches(each.path):
                    waiting.append(batch)
                    if sum(map(len, waiting)) >= _BATCH_ROWS:
                        _write_sorted(writer, waiting)
            if waiting:
                _write_sorted(writer, waiting)
        file.flush()
        os.utime(file.fileno(), ns=(newest, newest))  # its rows are as old as they were

    return publish(folder, first.prefix, (first.first, last.last), write)


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    try:
        with pq.ParquetFile(path) as source:
            if not source.schema_arrow.equals(SCHEMA):
                raise Damaged(path, "its columns are others")
            yield from source.iter_batches(_BATCH_ROWS)
    except pa.ArrowException as error:
        raise Damaged(path, error) from None


def _write_sorted(writer: pq.ParquetWriter, waiting: list[pa.RecordBatch]) -> None:
    """Write the rows by topic and time: one topic's rows are together."""
    table = pa.Table.from_batches(waiting, SCHEMA)
    waiting.clear()
    writer.write_table(table.sort_by([("topic", "ascending"), ("time", "ascending")]))
