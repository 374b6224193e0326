"""Consumers as processes of this machine. They live on when the controller ends, and the next one
finds them by their environment: whatever it was that killed the one before, nobody is forgotten."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path

from srtm.autoscaler.executors.executor import Abilities, Fleet, Wanted
from srtm.consumer.file import ExecutorTable
from srtm.consumer.process import GROUP, LAUNCH, Process, of_pid
from srtm.host.python import module

_LOOK_SECONDS = 1.0
"""/proc has an entry for each process of the machine"""


class Local:
    """group: by which its consumers are told from others of this machine"""

    abilities = Abilities()

    def __init__(self, table: ExecutorTable, file: Path, group: str = "") -> None:
        self._is_ours = not table.command
        self._command = table.command or (*module("srtm"), "consume", str(file.resolve()))
        self._grace = table.grace
        self._group = group or f"file:{file.resolve()}"
        self._folder = (file.parent / table.log_folder) if table.log_folder else None
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._launches: tuple[str, ...] = ()
        self._died: dict[str, str] = {}
        self._ending: dict[str, float] = {}
        self._found = self._processes()
        self._found_at = 0.0

    def seen(self) -> Fleet:
        late = "did not join within the time that startup gives it"
        return Fleet(
            running=frozenset((self._found.keys() | self._children.keys()) - self._ending.keys()),
            starting={id_: f"{id_} {late}{self._log_of(id_)}" for id_ in self._launches},
            leaving=frozenset(self._ending),
            died=dict(self._died),
        )

    def want(self, at: float, wanted: Wanted) -> None:
        self._launches = wanted.launches
        self._died = {id_: why for id_, why in self._died.items() if id_ in wanted.launches}
        known = self._children.keys() | self._found.keys() | self._died.keys()
        for id_ in wanted.launches:
            if id_ not in known:
                self._launch(id_)
        ended = self._reap()
        leavers = wanted.leavers | (ended & set(wanted.launches))  # what these began ends with them
        if leavers - self._ending.keys() or ended or at - self._found_at >= _LOOK_SECONDS:
            self._look(at)
            leavers |= self._orphans()
        self._end(at, leavers - self._ending.keys())
        self._kill_slow_leavers(at)

    def close(self) -> None:
        """Consumers work on."""

    # --- begin ------------------------------------------------------------------------------------

    def _launch(self, id_: str) -> None:
        environment = {**os.environ, LAUNCH: id_, GROUP: self._group}
        try:
            with contextlib.ExitStack() as stack:
                log = None
                if self._folder is not None:
                    self._folder.mkdir(parents=True, exist_ok=True)
                    log = stack.enter_context((self._folder / f"{id_}.log").open("ab"))
                self._children[id_] = subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    start_new_session=True,
                )
        except OSError as error:
            self._died[id_] = f"command {self._command[0]}: {error.strerror or error}"

    def _reap(self) -> set[str]:
        """The children that have ended."""
        ended = {id_: child.poll() for id_, child in self._children.items()}
        ended = {id_: code for id_, code in ended.items() if code is not None}
        for id_, code in ended.items():
            del self._children[id_]
            if id_ in self._launches:
                why = f"{id_} ended with code {code} before it joined"
                self._died[id_] = why + self._log_of(id_)
        return set(ended)

    def _log_of(self, id_: str) -> str:
        """Where it says why; "" where that is among the controller's own lines."""
        return f"; look at {self._folder / f'{id_}.log'}" if self._folder else ""

    # --- end --------------------------------------------------------------------------------------

    def _end(self, at: float, ids: Collection[str]) -> None:
        for id_ in ids:
            self._ending[id_] = at
            self._signal(self._found.get(id_, []), signal.SIGTERM, id_)

    def _kill_slow_leavers(self, at: float) -> None:
        for id_, since in list(self._ending.items()):
            left = [each for each in self._found.get(id_, []) if not each.is_dead]
            if not left:  # but it may have begun others since
                left = self._processes().get(id_, [])
            if not left:
                del self._ending[id_]
            elif at - since > self._grace:
                for each in left:
                    each.kill(signal.SIGKILL, id_)
            elif not _any_leads(left):
                self._signal(left, signal.SIGTERM, id_)  # its shell has gone

    @staticmethod
    def _signal(processes: Sequence[Process], number: signal.Signals, launch: str) -> None:
        """Who was launched, as supervisors do; those below it where it has gone."""
        leaders = [each for each in processes if _leads_session(each.pid)]
        for each in leaders or processes:
            each.kill(number, launch)

    # --- who is there -----------------------------------------------------------------------------

    def _look(self, at: float) -> None:
        others = self._found.keys() - self._children.keys()
        self._found, self._found_at = self._processes(), at
        for id_ in (others - self._found.keys()).intersection(self._launches):
            why = f"{id_} ended before it joined{self._log_of(id_)}"
            self._died.setdefault(id_, why)  # of a child its code is known

    def _orphans(self) -> set[str]:
        """Launches of which a child alone is left. A command of the user's may leave its work to
        one, and end."""
        if not self._is_ours:
            return set()
        return {id_ for id_, each in self._found.items() if not _any_leads(each)}

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


def _any_leads(processes: Sequence[Process]) -> bool:
    """Is the process that was launched among them?"""
    return any(_leads_session(each.pid) for each in processes)


def _leads_session(pid: int) -> bool:
    try:
        return os.getsid(pid) == pid
    except OSError:
        return False
