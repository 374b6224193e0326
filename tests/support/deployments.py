"""`srtm up` as a process of its own, for tests."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs import run_srtm, start_srtm

WAIT_SECONDS = 60.0

Spec = dict[str, Any]
PROGRAMS = ("nsqd", "nsqlookupd", "nsqadmin")


def need_nsq(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the test where NSQ is missing."""
    beside = Path(sys.executable).parent
    monkeypatch.setenv("PATH", os.pathsep.join((os.environ["PATH"], str(beside))))
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        pytest.skip(f"no {', '.join(missing)} on PATH")


class Outside:
    """`srtm up` as a process of its own, as a shell starts it."""

    def __init__(self, process: "subprocess.Popen[str]", errors: Path, out: Path) -> None:
        self.process = process
        self._errors, self._out = errors, out

    @property
    def lines(self) -> list[str]:
        return self._errors.read_text().splitlines()

    @property
    def output(self) -> str:
        return self._out.read_text()

    def until(self, text: str) -> None:
        def said() -> bool:
            assert self.process.poll() is None, self.lines
            return any(text in line for line in self.lines)

        wait_for(said)

    def end(self) -> tuple[int, list[str]]:
        return self.process.wait(WAIT_SECONDS), self.lines


@contextmanager
def outside(folder: Path, spec: Spec, *flags: str) -> Iterator[Outside]:
    run = len(list(folder.glob("errors-*")))
    errors, out = folder / f"errors-{run}", folder / f"out-{run}"
    with errors.open("w") as stderr, out.open("w") as stdout:
        process = start_srtm(
            *("up", write_file(folder, spec), *flags), stdout=stdout, stderr=stderr, session=True
        )
    try:
        yield Outside(process, errors, out)
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(WAIT_SECONDS)
        wait_for(lambda: not processes_of(spec))


def write_file(folder: Path, spec: Spec) -> Path:
    """JSON values are TOML values here, but for tables inside a list."""

    def pairs(table: dict[str, Any]) -> str:
        return "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())

    text = pairs({name: value for name, value in spec.items() if isinstance(value, bool)})
    for name, tables in spec.items():
        if isinstance(tables, bool):
            continue
        if isinstance(tables, list):
            text += "".join(f"[[{name}]]\n{pairs(table)}" for table in tables)
        else:
            text += f"[{name}]\n{pairs(tables)}"
    file = folder / "srtm.toml"
    file.write_text(text)
    return file


def processes_of(spec: Spec) -> dict[int, str]:
    """Every process whose command line names the data path, but `srtm up` itself."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = folder.joinpath("cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if any(f"={spec['deployment']['data-path']}/" in word for word in words):
            found[int(folder.name)] = " ".join(words)
    return found


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def srtm(*words: str) -> str:
    done = run_srtm(*words)
    done.check_returncode()
    return done.stdout
