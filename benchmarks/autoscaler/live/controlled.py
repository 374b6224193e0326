"""A group of consumers under its controller, `srtm autoscale run`."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.world import child, until
from srtm.http.client import get_json
from srtm.text.errors import UnavailableError

_JOIN_SECONDS = 60.0
_END_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Controlled:
    """address: of the controller's HTTP server; log: of the controller"""

    process: subprocess.Popen[bytes]
    address: str
    log: Path

    def stats(self) -> dict[str, Any]:
        """What the controller says; nothing while it does not answer. Raises UnavailableError
        where it has ended."""
        if self.process.poll() is not None:
            raise UnavailableError(self.log.read_text()[-500:])
        try:
            found: dict[str, Any] = get_json(self.address, "/stats")
        except UnavailableError:
            return {}
        return found

    def settle(self, consumers: int) -> None:
        """Wait until so many consumers are there and nothing is under way. Raises
        UnavailableError."""
        there = f"{consumers} consumers are there"
        until(lambda: self.stats().get("consumers") == consumers, there, _JOIN_SECONDS)
        settled = "nothing is under way"
        until(lambda: self.stats().get("state") == "sentinel", settled, _JOIN_SECONDS)


@contextmanager
def controlled(file: Path, address: str, log: Path) -> Iterator[Controlled]:
    """The group of `file` for the time of a `with` block. address: of `[controller]`."""
    autoscale = (sys.executable, "-m", "srtm", "autoscale")
    with ExitStack() as stack:
        stop = (*autoscale, "stop", str(file))  # once its controller has ended
        stack.callback(subprocess.run, stop, capture_output=True, timeout=60, check=False)
        run = (*autoscale, "run", str(file))
        process = stack.enter_context(child(run, log, _END_SECONDS))
        yield Controlled(process, address, log)
