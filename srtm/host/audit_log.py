"""A log of who changed what: a line of JSON for each change, in files of bounded size."""

import datetime
import json
import logging
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from srtm.host.clock import NS, monotonic_ns
from srtm.host.files import MIB
from srtm.host.seldom import Seldom
from srtm.text.errors import UsageError

FILE_BYTES = 16 * MIB
"""A longer file becomes PATH.1, PATH.1 becomes PATH.2, and so on: about 60,000 changes each."""
MOST_FILES = 8
_MOST_TEXT = 100
_REFUSED = 400
"""the least status of an answer that refuses"""
_QUIET_SECONDS = 60.0
"""from one line about a failure, or about refusals of one kind, to the next"""
_MOST_KINDS = 1024
"""of refusals of all callers, which are told of each by itself"""
_MOST_OF_CALLER = 32
"""kinds of refusals of one caller at one address; all others count as one more kind"""


def audited(
    at: float,
    name: str,
    role: str,
    address: str,
    request: str,
    asked: Mapping[str, object],
    status: int,
) -> dict[str, object]:
    """One line: who, with which role, from which address, asked for what, and what came of it.
    at: Unix seconds; request: method and path; asked: values; of a text the beginning is told, of a
    list its length; status: of the answer"""
    when = datetime.datetime.fromtimestamp(at, datetime.UTC)
    method, _, path = request.partition(" ")
    return {
        "time": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "name": name,
        "role": role,
        "address": address,
        "method": method,
        "path": path,
        "asked": {key: _short(value) for key, value in asked.items() if value is not None},
        "status": status,
    }


def _short(value: object) -> object:
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple):
        return len(value)
    return str(value)[:_MOST_TEXT]


class AuditLog:
    """Written by one process. A line that cannot be written does not hold up the change.

    A caller chooses how often it is refused, and what it asks for. In each minute the first refusal
    of a kind has a line, and one more stands for the others, with their number as `count`; each
    caller and address has so many kinds. So refusals do not replace the lines about changes.

    lost: lines that could not be written
    """

    def __init__(
        self,
        path: str,
        where: str,
        log: logging.Logger,
        seconds: Callable[[], float] = lambda: monotonic_ns() / NS,
    ) -> None:
        """where: what names the file. Raises UsageError."""
        self._path = Path(path)
        self._log = log
        self._seconds = seconds
        self._lines = Seldom(_QUIET_SECONDS, seconds)
        self._refusals: dict[tuple[object, ...], _Refusals] = {}
        self._begun = seconds()
        self._kinds: dict[tuple[object, ...], int] = {}
        """(caller, address) -> kinds of its refusals"""
        self._is_torn = False  # the last line is half a line
        self.lost = 0
        try:
            self._file, self._bytes = _opened(self._path)
        except OSError as error:
            raise UsageError(f"{where} {path}: {error.strerror}") from None

    def write(self, entry: Mapping[str, object]) -> None:
        """entry: as `audited` makes it"""
        if int(str(entry["status"])) >= _REFUSED:
            self._refused(entry)
        else:
            self._put(entry)

    def _put(self, entry: Mapping[str, object]) -> None:
        line = b"\n" * self._is_torn + json.dumps(entry).encode() + b"\n"
        try:
            if self._bytes and self._bytes + len(line) > FILE_BYTES:
                self._begin_anew()
            written = os.write(self._file, line)
            self._bytes += written
            self._is_torn = written < len(line)
            if self._is_torn:
                raise OSError(0, "no space for the whole line")
        except OSError as error:
            self.lost += 1
            if self._lines.count():
                self._log.error(
                    "%s: %s; changes are not in the audit log: %d so far",
                    self._path,
                    error.strerror,
                    self.lost,
                )

    def _refused(self, entry: Mapping[str, object]) -> None:
        """Write the first refusal of its kind in a minute; the others are counted."""
        now = self._seconds()
        if now - self._begun >= _QUIET_SECONDS or len(self._refusals) >= _MOST_KINDS:
            self._tell_rest()
            self._begun = now
        caller = entry["name"], entry["address"]
        asked = json.dumps(entry["asked"])
        kind: tuple[object, ...] = (*caller, entry["method"], entry["path"], asked, entry["status"])
        if kind not in self._refusals and self._kinds.get(caller, 0) >= _MOST_OF_CALLER:
            kind = caller  # of all its other kinds
        found = self._refusals.get(kind)
        if found is None:
            self._kinds[caller] = self._kinds.get(caller, 0) + 1
            self._refusals[kind] = _Refusals()
            self._put(entry)
        else:
            found.count += 1
            found.last = entry

    def _tell_rest(self) -> None:
        """Write what is counted and not written, and forget the kinds."""
        for each in self._refusals.values():
            if each.count:
                self._put({**each.last, "count": each.count})
        self._refusals.clear()
        self._kinds.clear()

    def _begin_anew(self) -> None:
        """Move each file on by one; the last is replaced. Raises OSError."""
        files = [self._path, *(_numbered(self._path, each) for each in range(1, MOST_FILES))]
        for number in range(MOST_FILES - 1, 0, -1):
            if files[number - 1].exists():
                files[number - 1].rename(files[number])
        file, size = _opened(self._path)
        os.close(self._file)
        self._file, self._bytes = file, size

    def close(self) -> None:
        self._tell_rest()
        os.close(self._file)


@dataclass(slots=True)
class _Refusals:
    """Refusals of one kind that no line tells of yet. last: the last of them"""

    count: int = 0
    last: Mapping[str, object] = field(default_factory=dict)


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def _opened(path: Path) -> tuple[int, int]:
    """A file to append to, and its size. Raises OSError."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
    file = os.open(path, flags, 0o600)
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode):
        os.close(file)
        raise OSError(0, "it is a pipe or a device, and no file")
    return file, found.st_size
