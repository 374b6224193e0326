"""One `srtm up` for each data path, and none while the children of a killed one still run."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from srtm.deploy.lock import DataPathLock, is_alive
from srtm.text.errors import UnavailableError

HOLDER = """
import subprocess, sys
from pathlib import Path
from srtm.deploy.lock import DataPathLock
lock = DataPathLock(Path(sys.argv[1]))
lock.acquire(print)
child = subprocess.Popen(["sleep", "60"], pass_fds=[lock.fileno()])
print(child.pid, flush=True)
child.wait()
"""


@contextmanager
def held(path: Path) -> Iterator[tuple[int, int]]:
    """The pids of a process that holds the lock and of its child, which has inherited it."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout
    child = int(holder.stdout.readline())
    try:
        yield holder.pid, child
    finally:
        for pid in (holder.pid, child):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        holder.stdout.close()
        holder.wait()


@contextmanager
def orphaned(path: Path) -> Iterator[tuple[int, int]]:
    """The same after kill -9 of the holder."""
    with held(path) as (pid, child):
        os.kill(pid, signal.SIGKILL)
        while is_alive(pid):
            time.sleep(0.01)
        yield pid, child


def test_it_can_be_taken_again_after_release(tmp_path: Path) -> None:
    for _ in range(2):
        lock = DataPathLock(tmp_path / "up.lock")
        lock.acquire(print)
        assert (tmp_path / "up.lock").read_text() == f"{os.getpid()}\n"
        lock.release()


def test_the_holder_is_named(tmp_path: Path) -> None:
    with held(tmp_path / "up.lock") as (pid, _):
        with pytest.raises(UnavailableError) as caught:
            DataPathLock(tmp_path / "up.lock").acquire(print)
        assert str(caught.value) == f"data-path {tmp_path} is in use by srtm up (pid {pid})"


def test_what_a_killed_holder_left_is_waited_for(tmp_path: Path) -> None:
    said: list[str] = []
    with orphaned(tmp_path / "up.lock") as (pid, child):

        def say(line: str) -> None:
            said.append(line)
            os.kill(child, signal.SIGKILL)

        lock = DataPathLock(tmp_path / "up.lock")
        lock.acquire(say)
        lock.release()
        assert said == [f"waiting for the programs of srtm up (pid {pid}, ended) to end"]


@pytest.mark.parametrize(
    ("wait_seconds", "stopped"),
    [
        pytest.param(0.2, False, id="when-the-time-is-over"),
        pytest.param(60.0, True, id="when-a-stop-is-asked-for"),
    ],
)
def test_the_wait_ends(tmp_path: Path, wait_seconds: float, stopped: bool) -> None:
    with (
        orphaned(tmp_path / "up.lock"),
        pytest.raises(UnavailableError, match="still run; wait for them, or end them: fuser -k"),
    ):
        DataPathLock(tmp_path / "up.lock").acquire(print, lambda: stopped, wait_seconds)
