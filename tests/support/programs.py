"""`srtm` as a child process: forked by tests/support/fork_server.py, and as real as one started.

Only a process's own command line differs (`ps` shows the fork server's). A test of what Python
does before srtm's first line starts it itself.
"""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from tests.support.fork_server import REQUEST_BYTES

SRTM = (sys.executable, "-m", "srtm")
ROOT = Path(__file__).parents[2]


class _ForkServer:
    """One for this process of tests, from the first command on; it ends with this process."""

    def __init__(self) -> None:
        self._control: socket.socket | None = None
        self._owner = 0

    def start(self, request: dict[str, object], standard: Sequence[int]) -> tuple[int, int]:
        """(pid, the pipe that tells its exit code)."""
        control = self._started()
        told, tell = os.pipe()
        data = json.dumps(request).encode()
        assert len(data) <= REQUEST_BYTES, "the environment is too large to be passed on"
        socket.send_fds(control, [data], [*standard, tell])
        os.close(tell)
        line = b""
        while not line.endswith(b"\n"):
            got = os.read(told, 1)
            assert got, "the fork server has ended"
            line += got
        return int(line), told

    def _started(self) -> socket.socket:
        if self._control is None or self._owner != os.getpid():
            ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * REQUEST_BYTES)
            with its:
                subprocess.Popen(
                    [sys.executable, "-m", "tests.support.fork_server", str(its.fileno())],
                    pass_fds=[its.fileno()],
                    cwd=ROOT,
                    stdin=subprocess.DEVNULL,
                )
            self._control, self._owner = ours, os.getpid()
        return self._control


_SERVER = _ForkServer()


class Forked:
    """What the tests use of `subprocess.Popen`, of a process that is another one's child."""

    def __init__(self, pid: int, told: int, arguments: Sequence[str]) -> None:
        self.pid = pid
        self.args = arguments
        self.returncode: int | None = None
        self._told = told

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, -N where signal N ended it. Raises TimeoutExpired."""
        if self.returncode is None:
            readable, _, _ = select.select([self._told], [], [], timeout)
            if not readable:
                raise subprocess.TimeoutExpired(list(self.args), timeout or 0)
            line = os.read(self._told, 100)
            os.close(self._told)
            assert line, "the fork server has ended"
            self.returncode = int(line)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start_srtm(
    *arguments: str | Path,
    stdout: int | IO[bytes],
    stderr: int | IO[bytes],
    stdin: int | IO[bytes] | None = None,
    environment: dict[str, str] | None = None,
    folder: Path | None = None,
    session: bool = False,
) -> Forked:
    """`srtm` with these arguments, as it runs. session: as the leader of one of its own."""
    words = [str(each) for each in arguments]
    request = {
        "arguments": words,
        "environment": {**os.environ, **(environment or {})},
        "folder": str(folder or Path.cwd()),
        "session": session,
    }
    with contextlib.ExitStack() as stack:
        if stdin is None:
            stdin = stack.enter_context(open(os.devnull, "rb"))
        files = [
            each if isinstance(each, int) else each.fileno() for each in (stdin, stdout, stderr)
        ]
        pid, told = _SERVER.start(request, files)
    return Forked(pid, told, words)


def run_srtm(
    *arguments: str | Path,
    seconds: float = 120,
    input: str | None = None,
    environment: dict[str, str] | None = None,
    folder: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """What `srtm` with these arguments says, and its exit code."""
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        given.write((input or "").encode())
        given.seek(0)
        forked = start_srtm(
            *arguments, stdout=out, stderr=err, stdin=given, environment=environment, folder=folder
        )
        try:
            code = forked.wait(seconds)
        except subprocess.TimeoutExpired:
            forked.kill()
            forked.wait()
            raise
        said = []
        for file in (out, err):
            file.seek(0)
            said.append(file.read().decode())
    return subprocess.CompletedProcess(list(forked.args), code, *said)
