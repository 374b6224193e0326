"""The process that writes a gateway's trace, as the gateway sees it: a pipe that takes chunks, and
figures that come back. Nothing here waits for the disk, or for that process.
"""

import contextlib
import fcntl
import importlib.util
import json
import logging
import os
import select
import subprocess
import tempfile
from collections import deque
from pathlib import Path
from typing import Any

from srtm.host.clock import NS, monotonic_ns
from srtm.host.python import module
from srtm.text.errors import UsageError
from srtm.traces.names import UNFINISHED

log = logging.getLogger("srtm.gateway")

_MAX_QUEUED_BYTES = 16 << 20
"""that the pipe has no room for: 10 s at 40,000 runs/s"""
_PIPE_BYTES = 1 << 20
"""as many as the kernel gives without privilege: what it holds needs no second write"""
_CLOSE_NS = 5 * NS
_FIRST_PAUSE_NS = NS
_LONGEST_PAUSE_NS = 60 * NS
"""between two starts of a process that ends by itself"""
REMEDY = (
    "pip install pyarrow, or the wheel's file with the extra: pip install './FILE.whl[parquet]'"
)


class TraceProcess:
    """Times are monotonic nanoseconds. What has not come into a file when the process ends, because
    it was killed, say, counts as dropped."""

    def __init__(self, settings: dict[str, Any]) -> None:
        """settings: of `srtm.traces.writer.Settings`. Raises UsageError where it cannot work."""
        folder = settings["folder"]
        if importlib.util.find_spec("pyarrow") is None:
            raise UsageError(f"--trace-dir {folder} needs pyarrow; {REMEDY}")
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder, suffix=UNFINISHED):
                pass  # it can be written to
        except OSError as error:
            raise UsageError(f"--trace-dir {folder}: {error.strerror}") from None
        self.folder = folder
        self.dropped = 0
        self.generation = 0
        self.failing = ""
        self.handed_messages = 0
        self.written_messages = 0
        self.written_bytes = 0
        self._arguments = json.dumps(settings)
        self._queue: deque[memoryview] = deque()
        self._queued = 0  # bytes
        self._handed = 0  # messages, since the process began
        self._process: subprocess.Popen[bytes] | None = None
        self._status: dict[str, Any] = {}  # the last that it said
        self._said = b""  # an unfinished line of it
        self._pause_ns = _FIRST_PAUSE_NS
        self._start_at = 0
        self._start()

    def document(self) -> dict[str, Any]:
        return {
            "folder": self.folder,
            "handed_messages": self.handed_messages,
            "written_messages": self.written_messages,
            "written_bytes": self.written_bytes,
            "dropped_messages": self.dropped,
            "failing": self.failing,
        }

    # --- chunks ---------------------------------------------------------------------------------

    def put(self, data: bytes, messages: int) -> bool:
        if self._process is None or self._queued + len(data) > _MAX_QUEUED_BYTES:
            return False
        self._queue.append(memoryview(data))
        self._queued += len(data)
        self._handed += messages
        self.handed_messages += messages
        self._drain()
        return True

    def _drain(self) -> None:
        process, queue = self._process, self._queue
        while queue and process is not None:
            try:
                written = os.write(_input(process), queue[0])
            except BlockingIOError:
                return
            except OSError:
                return  # it has ended: `tick` finds out
            self._queued -= written
            if written == len(queue[0]):
                queue.popleft()
            else:
                queue[0] = queue[0][written:]

    # --- the process ----------------------------------------------------------------------------

    def tick(self, now: int) -> None:
        """Look after the process, once a second."""
        if self._process is None:
            if now >= self._start_at:
                self._start()
            return
        self._drain()
        self._read_status()
        code = self._process.poll()
        if code is None:
            return
        why = f"signal {-code}" if code < 0 else f"exit code {code}"
        self._end()
        self._start_at = now + self._pause_ns
        self._pause_ns = min(2 * self._pause_ns, _LONGEST_PAUSE_NS)
        self._say(f"the process that writes it ended ({why}), and is started again")

    def _start(self) -> None:
        command = [*module("srtm.traces.process"), self._arguments]
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
            )
        except OSError as error:  # no memory, or no descriptors
            self._say(f"the process that writes it cannot be started: {error.strerror}")
            return
        for pipe in (_input(process), _output(process)):
            os.set_blocking(pipe, False)
        _widen(_input(process))
        self._process = process
        self._status, self._said, self._handed = {}, b"", 0

    def _end(self) -> None:
        """The process is no more: what it had not stored is lost."""
        process, self._process = self._process, None
        assert process is not None
        self._read_status_of(process)
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()
        self.dropped += self._handed - self._status.get("messages", 0)
        self.dropped -= self._status.get("dropped", 0)  # which are counted
        self._queue.clear()
        self._queued = 0
        self.generation += 1

    def _read_status(self) -> None:
        if self._process is not None:
            self._read_status_of(self._process)

    def _read_status_of(self, process: "subprocess.Popen[bytes]") -> None:
        try:
            while data := os.read(_output(process), 1 << 16):
                self._said += data
        except BlockingIOError:
            pass
        *lines, self._said = self._said.split(b"\n")
        if not lines:
            return
        before, status = self._status, json.loads(lines[-1])
        self._status = status
        self.written_messages += status["messages"] - before.get("messages", 0)
        self.written_bytes += status["bytes"] - before.get("bytes", 0)
        self.dropped += status["dropped"] - before.get("dropped", 0)
        if status["untidy"] and status["untidy"] != before.get("untidy"):
            log.warning(
                "--trace-dir %s: old files are not removed: %s", self.folder, status["untidy"]
            )
        if status["messages"] != before.get("messages", 0):
            self._pause_ns = _FIRST_PAUSE_NS
        if status["failing"] or status["messages"]:
            self._say(status["failing"])

    def _say(self, failing: str) -> None:
        """Log once that the trace cannot be written, or is written again, not at each attempt."""
        if failing == self.failing:
            return
        self.failing = failing
        if failing:
            log.error("--trace-dir %s: %s", self.folder, failing)
        else:
            log.info("--trace-dir %s: the trace is written again", self.folder)

    def close(self) -> None:
        """End the process once what was put is in a file, or cannot be."""
        process = self._process
        if process is None:
            return
        deadline = monotonic_ns() + _CLOSE_NS
        while self._queue and process.poll() is None and monotonic_ns() < deadline:
            select.select([], [_input(process)], [], 0.1)
            self._drain()
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(max(0.0, (deadline - monotonic_ns()) / NS))
        except subprocess.TimeoutExpired:
            log.error("--trace-dir %s: the trace was not fully written before the end", self.folder)


def _input(process: "subprocess.Popen[bytes]") -> int:
    assert process.stdin is not None
    return process.stdin.fileno()


def _output(process: "subprocess.Popen[bytes]") -> int:
    assert process.stdout is not None
    return process.stdout.fileno()


def _widen(pipe: int) -> None:
    with contextlib.suppress(OSError):  # this user has enough of them: it stays at 64 KiB
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
