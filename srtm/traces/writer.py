"""What a trace's process does with rows: keep them until their file is due, write it, tidy up."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pyarrow as pa

from srtm.traces.chunk import Chunk
from srtm.traces.compaction import Damaged, compact
from srtm.traces.files import parquet_into, publish, remove_old, remove_unfinished
from srtm.traces.names import prefix_of
from srtm.traces.rows import Rows
from srtm.traces.schema import WITH_DICTIONARIES

_RETRY_SECONDS = 1.0
_MOST_WAITING_FILES = 2
"""that the rows in memory would fill, while the disk takes nothing; what comes more is dropped"""


@dataclass(frozen=True, slots=True)
class Settings:
    """file_seconds, file_bytes: a file is due after this long, or with so many bytes of rows before
    compression. kept_seconds, kept_bytes: of this broker's files."""

    folder: str
    broker: str
    file_seconds: float
    file_bytes: int
    kept_seconds: float
    kept_bytes: int


@dataclass(slots=True)
class Status:
    """Figures since start. messages: in files; dropped: that will be in none; bytes: of files.
    failing: why none can be written; untidy: why old ones stay as they are."""

    messages: int = 0
    dropped: int = 0
    bytes: int = 0
    failing: str = ""
    untidy: str = ""


class Writer:
    """Times are seconds of one monotonic clock."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._folder = Path(settings.folder)
        self._prefix = prefix_of(settings.broker)
        self._rows = Rows(settings.broker)
        self._due_at = float("inf")
        self._retry_at = 0.0
        self._tidy = False  # something may be left to be compacted
        self._damaged: set[Path] = set()
        self.status = Status()

    def begin(self) -> None:
        """Tidy up after others."""
        try:
            remove_unfinished(self._folder)
        except OSError as error:
            self.status.untidy = str(error)
        self._tidy = True

    def add(self, chunk: Chunk, now: float) -> None:
        self._rows.name(chunk)
        if self._rows.nbytes >= _MOST_WAITING_FILES * self._settings.file_bytes:
            self.status.dropped += int(chunk.messages.sum())
            return
        if not self._rows.count:
            self._due_at = now + self._settings.file_seconds
        self._rows.add(chunk)

    def seconds_left(self, now: float) -> float | None:
        """Seconds until `work` has something to do; None: it has not, before more rows come."""
        if self._tidy:
            return 0.0
        if not self._rows.count:
            return None
        return max(0.0, self._retry_at - now, self._due_at - now)

    def work(self, now: float) -> None:
        """Write the file that is due, or else make one big file of small ones."""
        is_due = now >= self._due_at or self._rows.nbytes >= self._settings.file_bytes
        if self._rows.count and is_due and now >= self._retry_at:
            self.write(now)
        elif self._tidy:
            self._tidy_up()

    def write(self, now: float) -> bool:
        """Whatever there is; False where the disk does not take it."""
        rows, status = self._rows, self.status
        if not rows.count:
            return True
        table = rows.table().cast(WITH_DICTIONARIES)

        def write(file: IO[bytes]) -> None:
            with parquet_into(file, WITH_DICTIONARIES) as parquet:
                parquet.write_table(table)

        try:
            made = publish(self._folder, self._prefix, None, write)
            size = 0 if made is None else made.path.stat().st_size
        except (OSError, pa.ArrowException) as error:
            status.failing = getattr(error, "strerror", None) or str(error)
            self._retry_at = now + _RETRY_SECONDS
            self._due_at = now
            return False
        status.failing = ""
        status.messages += rows.messages
        status.bytes += size
        rows.clear()
        self._due_at = float("inf")
        self._tidy = True
        return True

    def _tidy_up(self) -> None:
        settings, folder, prefix = self._settings, self._folder, self._prefix
        self._tidy = False
        try:
            remove_old(folder, prefix, time.time(), settings.kept_seconds, settings.kept_bytes)
            made = compact(folder, prefix, settings.file_bytes, self._damaged)
            self._tidy = made is not None
        except Damaged as error:
            self._damaged.add(error.path)
            self._tidy = True
            self.status.untidy = str(error)
        except OSError as error:
            self.status.untidy = str(error)
        else:
            if not self._damaged:
                self.status.untidy = ""
