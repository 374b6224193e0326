"""Where the figures come from: the machine, the programs and the commit."""

import importlib
import os
import platform
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from srtm.deploy.programs import find_program

_ROOT = Path(__file__).parents[2]
_HOT = ("srtm.gateway.topic", "srtm.gateway.client", "srtm.gateway.upstream", "srtm.limits.bucket")


def machine() -> dict[str, Any]:
    """CPU, memory in bytes, kernel and versions. `compiled`: are the gateway's hot modules?"""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": psutil.virtual_memory().total,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "nsqd": _said([find_program("nsqd"), "--version"]),
        "compiled": {name: _is_compiled(name) for name in _HOT},
    }


def commit() -> dict[str, Any]:
    """id: None outside a checkout; dirty: does the tree differ from it?"""
    identity = _said(["git", "rev-parse", "HEAD"])
    changed = _said(["git", "status", "--porcelain"])
    return {"id": identity, "dirty": None if identity is None else bool(changed)}


def load_average() -> list[float]:
    """The machine's load average over the last 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]


def cpu_seconds(process: psutil.Process, all_below: bool = False) -> float:
    """User and system time so far, with the processes that it has started. all_below: with those
    that these started, and the ones that have ended."""
    total = 0.0
    for each in (process, *process.children(recursive=all_below)):
        with suppress(psutil.NoSuchProcess):
            times = each.cpu_times()
            total += times.user + times.system
            if all_below:
                total += times.children_user + times.children_system
    return total


def peak_bytes(pid: int) -> int:
    """The most memory that the process has had until now."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    return 0


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _is_compiled(module: str) -> bool:
    return (importlib.import_module(module).__file__ or "").endswith(".so")


def _said(command: list[str]) -> str | None:
    try:
        done = subprocess.run(
            command, cwd=_ROOT, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
