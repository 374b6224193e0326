"""Plain consumers of a group, one of which comes and goes."""

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.autoscaler.hand_over.standstill import moves_of, read_batches

_SETTLED_SECONDS = 1.5
_CHANGE_SECONDS = 30.0


def come_and_go(command: Sequence[str], folder: Path, staying: int, moves: int) -> None:
    """Let a consumer come and go until so many partitions have moved. Raises TimeoutError."""
    with (folder / "workers.log").open("ab") as log:

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

        stay = [start() for _ in range(staying)]
        guest: subprocess.Popen[bytes] | None = None
        try:
            _wait_workers(folder, staying)
            while len(moves_of(read_batches(folder))) < moves:
                before = len(list(folder.glob("batches-*.jsonl")))
                guest = start()
                _wait_workers(folder, before + 1)
                time.sleep(_SETTLED_SECONDS)
                guest.terminate()
                guest.wait(_CHANGE_SECONDS)
                time.sleep(_SETTLED_SECONDS)
        finally:
            for each in [*stay, *([guest] if guest else [])]:
                each.kill()
                each.wait()


def _wait_workers(folder: Path, count: int) -> None:
    """Wait until so many consumers have worked on something. Raises TimeoutError."""
    until = time.monotonic() + _CHANGE_SECONDS
    while sum(file.stat().st_size > 0 for file in folder.glob("batches-*.jsonl")) < count:
        if time.monotonic() > until:
            said = (folder / "workers.log").read_text("utf-8", "replace")[-500:]
            raise TimeoutError(f"{count} consumers do not work in {_CHANGE_SECONDS:g} s: {said}")
        time.sleep(0.05)
