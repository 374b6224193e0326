"""Consumers as processes of this machine. They live on when the controller ends."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from srtm.backoff import backoff_seconds
from srtm.consumer.file import ExecutorTable
from srtm.consumer.process import LAUNCH

_MOST_BACKOFF_SECONDS = 60.0
_DOUBLINGS_AT_FIRST = 3
"""The first wait is 0.4 to 0.8 s: a consumer that cannot start rarely can a moment later."""


class Local:
    """backing_off: why it launches nobody for now; "" where it does"""

    def __init__(self, table: ExecutorTable, file: Path) -> None:
        self._command = table.command or (
            *(sys.executable, "-m", "srtm", "consume"),
            str(file.resolve()),
        )
        self._startup = table.startup
        self._folder = (file.parent / table.log_folder) if table.log_folder else None
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._begun: dict[str, float] = {}
        self._failures = 0
        self._again_at = 0.0
        self._why = ""

    @property
    def command(self) -> Sequence[str]:
        return self._command

    def backing_off(self, at: float) -> str:
        return self._why if at < self._again_at else ""

    def launch(self, at: float, ids: Sequence[str]) -> list[str]:
        """Those that could not even be begun."""
        failed = []
        for id_ in ids:
            try:
                self._children[id_] = self._start(id_)
                self._begun[id_] = at
            except OSError as error:
                failed.append(id_)
                self._fail(at, f"{self._command[0]}: {error.strerror or error}")
        return failed

    def _start(self, id_: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, LAUNCH: id_}
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
        """A launch came to something: it is tried at once again from here."""
        if ids:
            self._failures, self._again_at = 0, 0.0
        for id_ in ids:
            self._begun.pop(id_, None)

    def failed(self, at: float) -> Iterator[str]:
        """Launches that ended before they joined, or took too long and were killed."""
        for id_, child in list(self._children.items()):
            code = child.poll()
            waits = id_ in self._begun
            if code is None and waits and at - self._begun[id_] > self._startup:
                child.kill()
                code = child.wait()
                self._fail(at, f"{id_} did not join within the time that startup gives it")
                yield self._forget(id_)
            elif code is not None:
                if waits:
                    self._fail(at, f"{id_} ended with code {code} before it joined")
                    yield self._forget(id_)
                else:
                    self._forget(id_)

    def _forget(self, id_: str) -> str:
        self._begun.pop(id_, None)
        del self._children[id_]
        return id_

    def _fail(self, at: float, why: str) -> None:
        self._why = why
        if at < self._again_at:  # of the same attempt: several were launched at once
            return
        attempt = self._failures + _DOUBLINGS_AT_FIRST
        self._again_at = at + backoff_seconds(attempt, 0.5, _MOST_BACKOFF_SECONDS)
        self._failures += 1

    def called_off(self, ids: Sequence[str]) -> None:
        """Launches that nobody wants any more; who has joined is told by a command."""
        for id_ in ids:
            child = self._children.get(id_)
            if child is not None and id_ in self._begun:
                child.terminate()
                self._begun.pop(id_)
