"""Which process of which machine, so that its death can be told from its silence."""

import contextlib
import os
import signal
import socket
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Process:
    """place: a host since its last start, and a name space of pids on it
    begun: clock ticks since the host's start, which tells it from a later process of the same pid
    """

    place: str
    pid: int
    begun: int

    @property
    def is_dead(self) -> bool:
        """Surely. Of a process elsewhere nothing is known."""
        return self.begun > 0 and self.place == _place() and _begun(self.pid) != self.begun

    def kill(self, number: signal.Signals) -> bool:
        """False where it is elsewhere, or dead."""
        if self.place != _place():
            return False
        with contextlib.suppress(OSError):
            handle = os.pidfd_open(self.pid)
            try:
                if _begun(self.pid) == self.begun:
                    signal.pidfd_send_signal(handle, number)
                    return True
            finally:
                os.close(handle)
        return False


def here() -> Process:
    """This process."""
    return Process(_place(), os.getpid(), _begun(os.getpid()))


def of_pid(pid: int) -> Process | None:
    """Of this machine; None: there is none."""
    begun = _begun(pid)
    return Process(_place(), pid, begun) if begun else None


def _place() -> str:
    """Two containers of one host name have other pids: the name space is part of it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        space = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return f"{socket.gethostname()} pid {os.getpid()}"
    return f"{socket.gethostname()} {boot} {space}"


def _begun(pid: int) -> int:
    """Field 22 of /proc/PID/stat; 0: there is no such process, or all its threads have ended."""
    fields = _stat(Path(f"/proc/{pid}/stat"))
    if not fields:
        return 0
    if fields[0] in _ENDED:  # the first thread has; another may still be in a system call
        try:
            threads = list(Path(f"/proc/{pid}/task").iterdir())
        except OSError:
            return 0
        if all((_stat(each / "stat") or ["X"])[0] in _ENDED for each in threads):
            return 0
    return int(fields[19])


def _stat(file: Path) -> list[str]:
    try:
        return file.read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


_ENDED = ("Z", "X")
