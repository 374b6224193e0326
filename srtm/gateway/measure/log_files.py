"""The files of an admission log: a thread that writes them, and how many are kept."""

import logging
import os
import secrets
import threading
from pathlib import Path
from queue import SimpleQueue
from urllib.parse import quote

from srtm.audit import blocks
from srtm.audit.session import SUFFIX, number_of
from srtm.host.clock import boot_id
from srtm.host.kept_files import make_room
from srtm.text.errors import UsageError

log = logging.getLogger("srtm.gateway")

_FILES = 8
"""that the bytes kept are divided into: an eighth goes at once"""
_MOST_FILES = 1_000
"""kept, however small: a gateway begins one at each start"""
_MAX_QUEUED_BYTES = 16 << 20
"""that wait for the disk: minutes at 10,000 messages/s"""
_RETRY_SECONDS = 1.0
_CLOSE_SECONDS = 5.0

Item = tuple[bytes, bool] | None


class LogFiles:
    """See the module. `put` and `close` are the loop's; what is written survives kill -9, as the
    kernel has it; it is not synced to the disk."""

    def __init__(self, folder: str, broker: str, kept_bytes: int) -> None:
        """Raises UsageError where it cannot write there."""
        self.failing = ""
        self.written_bytes = 0
        self._folder = Path(folder)
        self._prefix = quote(broker, safe="") + "-"
        self._broker = broker
        self._boot = boot_id()
        self._process = secrets.token_hex(8)
        self._kept_bytes = kept_bytes
        self._file_bytes = kept_bytes // _FILES
        self._in_file = 0  # bytes handed over for the newest file
        self._put = self._done = 0  # bytes; each is written by one thread only
        self._queue: SimpleQueue[Item] = SimpleQueue()
        self._closing = threading.Event()
        self._size = 0
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._number = max(map(number_of, self._files()), default=0)
            self._file = self._begin()
        except OSError as error:
            raise UsageError(f"--admission-log {folder}: {error.strerror}") from None
        self._thread = threading.Thread(target=self._write, name="admission-log", daemon=True)
        self._thread.start()

    # --- the loop's -----------------------------------------------------------------------------

    @property
    def is_due(self) -> bool:
        return self._in_file >= self._file_bytes

    def put(self, chunk: bytes, in_new_file: bool) -> bool:
        if self._put - self._done + len(chunk) > _MAX_QUEUED_BYTES:
            return False
        self._put += len(chunk)
        self._in_file = len(chunk) + (0 if in_new_file else self._in_file)
        self._queue.put((chunk, in_new_file))
        return True

    def close(self) -> None:
        """End the thread once what was put is written, or cannot be."""
        self._closing.set()
        self._queue.put(None)
        self._thread.join(_CLOSE_SECONDS)

    # --- the thread's ---------------------------------------------------------------------------

    def _write(self) -> None:
        while True:
            item = self._queue.get()
            if item is None:
                os.close(self._file)
                return
            chunk, is_for_new_file = item
            while True:
                try:
                    if is_for_new_file:
                        self._rotate()
                        is_for_new_file = False
                    self._append(chunk)
                    break
                except OSError as error:
                    self._say(str(error.strerror))
                if self._closing.wait(_RETRY_SECONDS):
                    return
            self._say("")
            self._done += len(chunk)
            self.written_bytes += len(chunk)

    def _say(self, failing: str) -> None:
        """Log once that the log cannot be written, or is written again, not at each attempt."""
        if failing == self.failing:
            return
        self.failing = failing
        if failing:
            log.error("--admission-log %s: %s", self._folder, failing)
        else:
            log.info("--admission-log %s: the log is written again", self._folder)

    def _rotate(self) -> None:
        full = self._file
        self._file = self._begin()
        os.close(full)

    def _append(self, chunk: bytes) -> None:
        """Raises OSError, with the file as it was."""
        left = memoryview(chunk)
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError:
            os.ftruncate(self._file, self._size)
            raise
        self._size += len(chunk)

    def _begin(self) -> int:
        """The next file; the oldest ones make room. Raises OSError."""
        self._make_room()
        while True:
            self._number += 1
            path = self._folder / f"{self._prefix}{self._number:08d}{SUFFIX}"
            try:
                file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
                break
            except FileExistsError:
                continue  # of another process with this name
        head = blocks.header(self._broker, self._boot, self._process, self._number)
        try:
            os.write(file, head)
        except OSError:
            os.close(file)
            path.unlink()
            raise
        self._size = len(head)
        return file

    def _make_room(self) -> None:
        """Make room for one file more."""
        files = sorted(self._files(), key=number_of)
        make_room(files, self._kept_bytes - self._file_bytes, _MOST_FILES - 1)

    def _files(self) -> list[Path]:
        """The log files of this broker."""
        return [
            file
            for file in self._folder.iterdir()
            if file.name.startswith(self._prefix)
            and file.name.endswith(SUFFIX)
            and file.name[len(self._prefix) : -len(SUFFIX)].isdigit()
        ]
