"""One `srtm up` for each data path."""

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

from srtm.host.clock import NS, monotonic_ns
from srtm.host.processes import is_alive
from srtm.text.errors import UnavailableError

WAIT_SECONDS = 90.0
"""more than the longest grace period: nsqd may write to disk for as long"""
_POLL_SECONDS = 0.1


class DataPathLock:
    """An flock on a file that holds the pid of who has it.

    The children inherit it: after kill -9 of `srtm up` it is free only when the last of them has
    ended, so that nobody removes the sockets, or opens the data, of an nsqd that still runs.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def fileno(self) -> int:
        if self._file is None:
            raise ValueError(f"{self._path} is not held")
        return self._file

    def acquire(
        self,
        say: Callable[[str], None],
        stop_asked: Callable[[], bool] = lambda: False,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        """Take it; wait only for what a killed `srtm up` left. Raises UnavailableError."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline_ns, told = monotonic_ns() + int(wait_seconds * NS), False
        while not _try_lock(descriptor):
            pid = _pid_in(descriptor)
            in_use = is_alive(pid)
            if in_use or stop_asked() or monotonic_ns() > deadline_ns:
                os.close(descriptor)
                raise UnavailableError(
                    f"data-path {self._path.parent} is in use by srtm up (pid {pid or 'unknown'})"
                    if in_use
                    else f"data-path {self._path.parent}: programs that srtm up (pid {pid}, ended) "
                    f"started still run; wait for them, or end them: fuser -k {self._path}"
                )
            if not told:
                say(f"waiting for the programs of srtm up (pid {pid}, ended) to end")
                told = True
            time.sleep(_POLL_SECONDS)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._file = descriptor

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _pid_in(descriptor: int) -> int:
    """0 while the holder has not written it yet."""
    text = os.pread(descriptor, 20, 0).strip()
    return int(text) if text.isdigit() else 0
