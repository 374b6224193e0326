"""Detached processes with a name: they outlive who started them, and are found again by a file."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from srtm.host.clock import NS, monotonic_ns
from srtm.text.errors import SrtmError, UnavailableError

MAX_LOG_BYTES = 64 << 20
"""a log that is longer when its unit starts is put aside (as .1, over the last one put aside)"""
_POLL_SECONDS = 0.02
_END_POLL_SECONDS = 0.1
_WRITTEN_SECONDS = 10.0
"""a shell writes one line and becomes the program"""
_LAUNCH = 'read -r line <"/proc/$$/stat" && echo "$line" >"$0.new" && mv "$0.new" "$0" && exec "$@"'
"""The process writes its own pid and start time before it becomes the program: whoever is killed
while starting one leaves none that cannot be found."""


@dataclass(frozen=True, slots=True)
class Unit:
    """name: 1 to 32 of [a-zA-Z0-9_-]; environment: besides our own."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Running:
    """A unit that was started. alive: it still runs."""

    pid: int
    alive: bool


class Units:
    """The units of a folder. prefix: goes before every command, such as nsenter's."""

    def __init__(self, folder: Path, prefix: Sequence[str] = (), cores: Sequence[int] = ()) -> None:
        self._folder = folder
        self._prefix = prefix
        self._cores = cores

    def with_prefix(self, prefix: Sequence[str]) -> "Units":
        """The units of the same folder, for commands that run elsewhere."""
        return Units(self._folder, prefix, self._cores)

    def log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def start(self, unit: Unit) -> None:
        """Does nothing while it runs. Raises SrtmError."""
        found = self.status(unit.name)
        if found and found.alive:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        log, file = self.log(unit.name), self._file(unit.name)
        if log.exists() and log.stat().st_size > MAX_LOG_BYTES:
            log.replace(log.with_suffix(".log.1"))
        file.unlink(missing_ok=True)
        try:
            with log.open("ab") as output:
                process = subprocess.Popen(
                    ["/bin/sh", "-c", _LAUNCH, str(file), *self._prefix, *unit.command],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    env={**os.environ, **(unit.environment or {})},
                )
        except OSError as error:
            raise SrtmError(f"{unit.name} cannot be started: {error}") from None
        if self._cores:
            os.sched_setaffinity(process.pid, self._cores)  # its children have the same
        deadline_ns = monotonic_ns() + int(_WRITTEN_SECONDS * NS)
        while not file.exists():
            if process.poll() is not None or monotonic_ns() > deadline_ns:
                raise SrtmError(f"{unit.name} cannot be started: see {log}")
            time.sleep(_POLL_SECONDS)
        _STARTED.append(process)

    def status(self, name: str) -> Running | None:
        """The unit's process, and whether it runs; None: it was never started, or is stopped."""
        _STARTED[:] = [each for each in _STARTED if each.poll() is None]
        try:
            written = self._file(name).read_text(errors="replace")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UnavailableError(f"{self._file(name)}: {error.strerror}") from None
        pid, _ = _identity(written)
        try:
            now = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        except OSError:
            now = ""
        return seen(written, now)

    def signal(self, name: str, number: signal.Signals) -> bool:
        """False where it does not run."""
        found = self.status(name)
        if not found or not found.alive:
            return False
        try:
            os.kill(found.pid, number)
        except ProcessLookupError:
            return False
        return True

    def stop(self, name: str, grace_seconds: float) -> bool:
        """SIGTERM, then SIGKILL. False where nothing ran. Raises SrtmError."""
        ran = self.signal(name, signal.SIGTERM)
        deadline_ns = monotonic_ns() + int(grace_seconds * NS)
        while (found := self.status(name)) and found.alive:
            if monotonic_ns() > deadline_ns:
                self.signal(name, signal.SIGKILL)
            time.sleep(_POLL_SECONDS)
        self._file(name).unlink(missing_ok=True)
        return ran

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.pid"


def holders(path: Path) -> set[int]:
    """pids of the processes that have this file open, also where it was removed since."""
    name = str(path.resolve())
    wanted = {name, f"{name} (deleted)"}
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if any(os.readlink(each.path) in wanted for each in os.scandir(process / "fd")):
                found.add(int(process.name))
    return found


def end_all(find: Callable[[], set[int]], grace_seconds: float) -> bool:
    """SIGTERM, also to who is stopped, then SIGKILL, until `find` finds nobody. False where there
    was nobody."""
    asked: set[int] = set()
    deadline_ns = monotonic_ns() + int(grace_seconds * NS)
    while found := find():
        late = monotonic_ns() > deadline_ns
        for pid in found if late else found - asked:
            with contextlib.suppress(ProcessLookupError):
                for number in (signal.SIGKILL,) if late else (signal.SIGTERM, signal.SIGCONT):
                    os.kill(pid, number)
        asked |= found
        time.sleep(_END_POLL_SECONDS)
    return bool(asked)


_STARTED: list["subprocess.Popen[bytes]"] = []
"""our own children: asked now and then, so that one that has ended is no zombie"""


def _identity(stat: str) -> tuple[int, str]:
    """pid and start time, which no two processes of one boot share. proc(5): field 22."""
    pid = stat.partition(" ")[0]
    fields = stat.rpartition(")")[2].split()
    return (int(pid), fields[19]) if pid.isdigit() and len(fields) > 19 else (0, "")


def seen(written: str, now: str) -> Running:
    """written: its line when it was started; now: that of the process with its pid, "" where there
    is none. Is it the same one, and does it run?"""
    pid, born = _identity(written)
    is_same = bool(pid) and _identity(now) == (pid, born)
    return Running(pid, is_same and now.rpartition(")")[2].split()[0] != "Z")
