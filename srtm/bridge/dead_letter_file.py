"""A file of dead letters: each a line of JSON, and on the disk before its message is finished.

It is opened anew for each write, so that it may be moved away at any time. Several routes and
bridges may share one.
"""

import base64
import errno
import fcntl
import json
import os
import stat
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from srtm.host.backoff import backoff_seconds

_MAX_BACKOFF_SECONDS = 5.0
_MAX_WAITING_BYTES = 8 << 20  # of lines that are not written yet

Stored = Callable[[None, None], None]
"""Called once the line is on the disk, as Kafka's producer calls with its report."""


class DeadLetterFile:
    """fault: why the last write failed; the lines wait for the next. failures: in a row."""

    def __init__(self, path: str, max_bytes: int) -> None:
        self.path = Path(path)
        self.fault = ""
        self._max_bytes = max_bytes
        self._lines: list[bytes] = []
        self._stored: list[Stored] = []
        self._bytes = 0
        self.failures = 0
        self._again_at = 0.0

    def __len__(self) -> int:
        """Lines that are not written yet."""
        return len(self._lines)

    def put(self, letter: dict[str, Any], stored: Stored, now: float) -> None:
        line = json.dumps({"time": datetime.now(UTC).isoformat(), **letter}).encode() + b"\n"
        self._lines.append(line)
        self._stored.append(stored)
        self._bytes += len(line)
        if self._bytes > _MAX_WAITING_BYTES:
            self.flush(now)

    def flush(self, now: float, at_once: bool = False) -> bool:
        """Write what waits. After a failure it is tried again later, or `at_once`. True where lines
        have been stored."""
        if not self._lines or (now < self._again_at and not at_once):
            return False
        try:
            count = self._write()
        except OSError as error:
            self.fault = f"{self.path}: {error.strerror or error}"
            self._again_at = now + backoff_seconds(self.failures, 1.0, _MAX_BACKOFF_SECONDS)
            self.failures += 1
            return False
        self.fault = ""
        self.failures = 0
        stored = self._stored[:count]
        self._bytes -= sum(map(len, self._lines[:count]))
        del self._lines[:count], self._stored[:count]
        for each in stored:
            each(None, None)
        return True

    def _write(self) -> int:
        """How many lines there was room for, at least one. Raises OSError."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        new = not self.path.exists()
        file = os.open(self.path, flags, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(0, "it is no plain file")
            size = found.st_size
            # What was cut off in the middle of a line stays a line of its own.
            data = b"\n" if size and os.pread(file, 1, size - 1) != b"\n" else b""
            count = 0
            for line in self._lines:
                if size + len(data) + len(line) > self._max_bytes:
                    break
                data += line
                count += 1
            if not count:
                raise OSError(0, f"it has {size:,} of {self._max_bytes:,} bytes; move it away")
            _append(file, size, data)
        finally:
            os.close(file)
        if new:
            _sync_folder(self.path.parent)
        return count


def _append(file: int, size: int, data: bytes) -> None:
    """Append all of `data`, or nothing. Raises OSError."""
    left = memoryview(data)
    try:
        while left:
            left = left[os.write(file, left) :]
        os.fsync(file)
    except OSError:
        os.ftruncate(file, size)
        raise


def _sync_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def fault_of_folder(folder: Path) -> str:
    """Why no file can be made in it; "" where one can. Nothing is left there."""
    if not folder.is_dir():
        return f"there is no folder {folder}; make it"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"no right to make a file in {folder}; choose another, or change its owner"
    try:
        os.close(os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o600))  # it never has a name
    except OSError as error:
        # Not every file system has files without a name; what is none (/proc, /sys) has no blocks.
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT):
            return f"{folder}: {error.strerror}"
        if os.statvfs(folder).f_blocks == 0:
            return f"{folder} is no folder of files, such as /var/tmp"
    return ""


def fault_of_file(path: str) -> str:
    """Why a file that is there cannot take dead letters; "" where it can."""
    odd = os.statvfs(path).f_blocks == 0 and fault_of_folder(Path(path).parent)  # in /proc
    if odd or not os.path.isfile(path):
        return "it is no plain file; choose another name"
    if not os.access(path, os.R_OK | os.W_OK):
        return "no right to read and write it; change its owner, or choose another name"
    return ""


def as_json(name: str, value: bytes | str | None) -> dict[str, str]:
    """`name` as text, `name`-base64 where it is none; nothing for None."""
    if value is None:
        return {}
    if isinstance(value, str):
        return {name: value}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}-base64": base64.b64encode(value).decode()}
