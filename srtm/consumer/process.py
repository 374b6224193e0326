"""Which process of which machine, so that its death can be told from its silence."""

import contextlib
import os
import signal
import socket
from dataclasses import dataclass
from pathlib import Path

from srtm.host.clock import boot_id

LAUNCH = "SRTM_LAUNCH"
"""The variable by which an executor tells a consumer which launch it is: the client id at nsqd, and
the launch in what a member of a Kafka group reports."""
GROUP = "SRTM_GROUP"
"""The group or pool that a consumer is launched for: by it an executor finds what it launched
before."""


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
        """Surely. Of one elsewhere, or of another user's that /proc hides, nothing is known."""
        if self.begun <= 0 or self.place != _place():
            return False
        return _is_missing(self.pid) or _begun(self.pid) not in (self.begun, _HIDDEN)

    def kill(self, number: signal.Signals, launch: str) -> bool:
        """False where it is elsewhere, dead, or not what an executor began as `launch`: what a
        record says is not enough to end a process."""
        if self.place != _place() or not launch:
            return False
        with contextlib.suppress(OSError):
            handle = os.pidfd_open(self.pid)
            try:
                if _begun(self.pid) == self.begun and _launch(self.pid) == launch:
                    signal.pidfd_send_signal(handle, number)
                    return True
            finally:
                os.close(handle)
        return False


def here() -> Process:
    """This process."""
    return Process(_place(), os.getpid(), max(_begun(os.getpid()), 0))


def of_pid(pid: int) -> Process | None:
    """The process of this machine with that pid; None where there is none, or where all its threads
    have ended."""
    begun = _begun(pid)
    return Process(_place(), pid, begun) if begun > 0 else None


def _place() -> str:
    """Two containers of one host name have other pids: the name space is part of it."""
    try:
        space = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return f"{socket.gethostname()} pid {os.getpid()}"
    return f"{socket.gethostname()} {boot_id()} {space}"


def _is_missing(pid: int) -> bool:
    """The kernel knows of no such process; it says so also where /proc is hidden (hidepid)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _launch(pid: int) -> str:
    """The launch as which an executor began the process; "" where that is not known."""
    try:
        pairs = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    found = [each.partition(b"=")[2] for each in pairs if each.startswith(f"{LAUNCH}=".encode())]
    return found[0].decode(errors="replace") if found else ""


def _begun(pid: int) -> int:
    """Field 22 of /proc/PID/stat; 0: all its threads have ended; _HIDDEN: it cannot be read."""
    fields = _stat(Path(f"/proc/{pid}/stat"))
    if not fields:
        return _HIDDEN
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
_HIDDEN = -1
