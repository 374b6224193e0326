"""The load generator as a process of its own, the same for every arm."""

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from srtm.text.errors import SrtmError

_END_SECONDS = 60.0


class Generator:
    """`srtm load FLAGS --json`, started at once."""

    def __init__(self, flags: Sequence[str], seconds: float) -> None:
        self._limit_seconds = seconds + _END_SECONDS
        self._process = subprocess.Popen(
            [sys.executable, "-m", "srtm", "load", "--json", *flags, f"--duration={seconds}s"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def result(self) -> dict[str, Any]:
        """Its document, once it has ended: exit code 1 tells of problems, and they are in it."""
        try:
            printed, said = self._process.communicate(timeout=self._limit_seconds)
        except subprocess.TimeoutExpired:
            self.stop()
            raise SrtmError("the load generator did not end") from None
        try:
            document: dict[str, Any] = json.loads(printed)
        except ValueError:
            raise SrtmError(f"the load generator failed: {said.strip()}") from None
        document["settings"].pop("assignment", None)
        if len(document["brokers"]) == 1:
            del document["brokers"]
        return document

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()


def percentile_ms(latencies: dict[str, Any] | None, name: str) -> float:
    """A percentile of the generator's document; infinite where nothing came."""
    return float("inf") if latencies is None else float(latencies[f"{name}_ms"])
