"""Consumers as processes of this machine. They live on when the controller ends, and the next one
finds them by their environment: whatever it was that killed the one before, nobody is forgotten."""

import os
import signal
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from srtm.autoscaler.executors.executor import Backoff
from srtm.consumer.file import ExecutorTable
from srtm.consumer.launch import GROUP, LAUNCH
from srtm.consumer.process import Process, of_pid
from srtm.host.python import module


class Local:
    """group: by which its consumers are told from others of this machine"""

    restarts = False
    anonymous = False
    chooses = True

    def __init__(self, table: ExecutorTable, file: Path, group: str = "") -> None:
        self._command = table.command or (
            *module("srtm"),
            "consume",
            str(file.resolve()),
        )
        self._startup = table.startup
        self._grace = table.grace
        self._group = group or f"file:{file.resolve()}"
        self._folder = (file.parent / table.log_folder) if table.log_folder else None
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._begun: dict[str, float] = {}
        self._ending: dict[str, float] = {}
        self._backoff = Backoff()

    def names(self, count: int) -> list[str]:
        return [f"c-{uuid.uuid4().hex[:8]}" for _ in range(count)]

    def staying(self, ids: Sequence[str], count: int) -> list[str]:
        return list(ids[:count])

    def want(self, wanted: int, there: int) -> None:
        return None

    def backing_off(self, at: float) -> str:
        return self._backoff.told(at)

    def fault(self) -> str:
        return ""

    def close(self) -> None:
        """Consumers work on."""

    # --- begin ------------------------------------------------------------------------------------

    def launch(self, at: float, ids: Sequence[str]) -> list[str]:
        failed = []
        for id_ in ids:
            try:
                self._children[id_] = self._start(id_)
                self._begun[id_] = at
            except OSError as error:
                failed.append(id_)
                why = f"command {self._command[0]}: {error.strerror or error}"
                self._backoff.fail(at, why)
        return failed

    def _start(self, id_: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, LAUNCH: id_, GROUP: self._group}
        if self._folder is None:
            return subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / f"{id_}.log").open("ab") as log:
            return subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    def joined(self, ids: Sequence[str]) -> None:
        if ids:
            self._backoff.succeed()
        for id_ in ids:
            self._begun.pop(id_, None)

    def failed(self, at: float) -> Iterator[str]:
        self._kill_slow_leavers(at)
        for id_, child in list(self._children.items()):
            code = child.poll()
            waits = id_ in self._begun
            if code is None and waits and at - self._begun[id_] > self._startup:
                child.kill()
                code = child.wait()
                why = f"{id_} did not join within the time that startup gives it"
                self._backoff.fail(at, why + self._log_of(id_))
                yield self._forget(id_)
            elif code is not None:
                if waits:
                    why = f"{id_} ended with code {code} before it joined"
                    self._backoff.fail(at, why + self._log_of(id_))
                    yield self._forget(id_)
                else:
                    self._forget(id_)

    def _log_of(self, id_: str) -> str:
        """Where it says why; "" where that is among the controller's own lines."""
        return f"; look at {self._folder / f'{id_}.log'}" if self._folder else ""

    def _forget(self, id_: str) -> str:
        self._begun.pop(id_, None)
        del self._children[id_]
        return id_

    # --- end --------------------------------------------------------------------------------------

    def called_off(self, ids: Sequence[str]) -> None:
        for id_ in ids:
            child = self._children.get(id_)
            if child is not None and id_ in self._begun:
                child.terminate()
                self._begun.pop(id_)

    def end(self, at: float, ids: Sequence[str]) -> None:
        found = self._processes() if ids else {}
        for id_ in ids:
            self._begun.pop(id_, None)
            if id_ not in self._ending:
                self._ending[id_] = at
                self._signal(found.get(id_, []), signal.SIGTERM, id_)

    def _kill_slow_leavers(self, at: float) -> None:
        if not self._ending:
            return
        found = self._processes()
        for id_, since in list(self._ending.items()):
            left = found.get(id_, [])
            if not left:
                del self._ending[id_]
            elif at - since > self._grace:
                for each in left:
                    each.kill(signal.SIGKILL, id_)
            elif not any(_leads_session(each.pid) for each in left):
                self._signal(left, signal.SIGTERM, id_)  # its shell has gone

    @staticmethod
    def _signal(processes: Sequence[Process], number: signal.Signals, launch: str) -> None:
        """Who was launched, as supervisors do; those below it where it has gone."""
        leaders = [each for each in processes if _leads_session(each.pid)]
        for each in leaders or processes:
            each.kill(number, launch)

    def leaving(self) -> tuple[str, ...]:
        return tuple(self._ending)

    # --- who is there -----------------------------------------------------------------------------

    def running(self) -> tuple[str, ...]:
        for child in self._children.values():
            child.poll()
        return tuple(sorted(self._processes().keys() - self._ending.keys()))

    def _processes(self) -> dict[str, list[Process]]:
        """Launch -> its processes, whichever controller has begun them."""
        found: dict[str, list[Process]] = {}
        group, launch = f"{GROUP}={self._group}".encode(), f"{LAUNCH}=".encode()
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            try:
                variables = (folder / "environ").read_bytes().split(b"\0")
            except OSError:  # somebody else's, or it has just ended
                continue
            if group not in variables:
                continue
            named = [each.removeprefix(launch) for each in variables if each.startswith(launch)]
            process = of_pid(int(folder.name))
            if named and process is not None:
                found.setdefault(named[0].decode(errors="replace"), []).append(process)
        return found


def _leads_session(pid: int) -> bool:
    try:
        return os.getsid(pid) == pid
    except OSError:
        return False
