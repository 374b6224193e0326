"""Files of a trace in their folder: each appears whole or not at all, and old ones go."""

import contextlib
import fcntl
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from srtm.host.atomic import to_disk
from srtm.host.kept_files import make_room
from srtm.traces.names import UNFINISHED, TraceFile, file_name, list_files, superseded
from srtm.traces.schema import SCHEMA
from srtm.traces.version import VERSION, VERSION_KEY

GRACE_SECONDS = 600.0
"""for which a file stays that a bigger one has taken the place of: jobs that have listed it end"""
_MOST_FILES = 20_000
"""of one broker, however small: a fortnight of a file a minute, were none ever compacted"""


def publish(
    folder: Path, prefix: str, numbers: tuple[int, int] | None, write: Callable[[IO[bytes]], None]
) -> TraceFile | None:
    """Write a file and let it appear. numbers: first and last that it stands for; None: the next
    one of its broker's. None: there is one of these numbers. Raises OSError, and leaves nothing."""
    unfinished = folder / f".{prefix}-{os.getpid()}-{secrets.token_hex(4)}{UNFINISHED}"
    try:
        with unfinished.open("xb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # it is somebody's: see `remove_unfinished`
            write(file)
            to_disk(file)
            if numbers is not None:
                return _appear(folder, unfinished, prefix, *numbers)
            number = max((each.last for each in list_files(folder, prefix)), default=0)
            while True:  # another process with this broker's name may be at it
                number += 1
                appeared = _appear(folder, unfinished, prefix, number, number)
                if appeared is not None:
                    return appeared
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)


def _appear(folder: Path, unfinished: Path, prefix: str, first: int, last: int) -> TraceFile | None:
    path = folder / file_name(prefix, first, last)
    try:
        os.link(unfinished, path)  # unlike a rename it never takes another file's place
    except FileExistsError:
        return None
    folder_fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(folder_fd)
    finally:
        os.close(folder_fd)
    return TraceFile(path, prefix, first, last)


@contextmanager
def parquet_into(file: IO[bytes], schema: pa.Schema = SCHEMA) -> Iterator[pq.ParquetWriter]:
    """schema: with dictionaries in place of texts, perhaps; whoever reads the file finds SCHEMA."""
    with pq.ParquetWriter(file, schema, compression="zstd", store_schema=False) as writer:
        yield writer
        writer.add_key_value_metadata({VERSION_KEY: str(VERSION)})


def remove_unfinished(folder: Path) -> None:
    """Remove the unfinished files of processes that are no more. Raises OSError."""
    for path in folder.iterdir():
        if path.name.startswith(".") and path.name.endswith(UNFINISHED):
            with contextlib.suppress(FileNotFoundError, BlockingIOError), path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink(missing_ok=True)


def remove_old(folder: Path, prefix: str, now: float, kept_seconds: float, kept_bytes: int) -> None:
    """Remove files of one broker: what others have taken the place of, what is too old, then the
    oldest of what is too much. now: seconds since 1970. Raises OSError."""
    files = list_files(folder, prefix)
    replaced = superseded(files)
    kept = []
    for each in files:
        try:
            changed = each.path.stat().st_mtime
        except FileNotFoundError:
            continue
        if each in replaced:
            takers = [other for other in files if other.covers(each)]
            since = min((_appeared(other.path) for other in takers), default=0.0)
            if now - since >= GRACE_SECONDS:
                each.path.unlink(missing_ok=True)
        elif now - changed > kept_seconds:
            each.path.unlink(missing_ok=True)
        else:
            kept.append(each.path)
    make_room(kept, kept_bytes, _MOST_FILES)


def _appeared(path: Path) -> float:
    """The time of its link: mtime is that of its newest rows."""
    try:
        return path.stat().st_ctime
    except FileNotFoundError:
        return float("inf")
