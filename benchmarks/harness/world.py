"""What benchmarks start, and how they wait for it: programs, deployments, files for them."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from distributor.remote import Remote
from srtm.deploy.programs import Programs
from srtm.deploy.up import Running, running
from srtm.text.address import free_addresses
from srtm.text.errors import UnavailableError


def until(
    condition: Callable[[], object],
    what: str | Callable[[], str],
    seconds: float,
    poll: float = 0.1,
) -> None:
    """Wait for the condition. Raises UnavailableError where it does not come about. what: is waited
    for; a function that says more is asked then."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            said = what if isinstance(what, str) else what()
            raise UnavailableError(f"not within {seconds:g} s: {said}")
        time.sleep(poll)


def start(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """A program that writes into `log`, behind what is there."""
    with log.open("ab") as file:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)


@contextmanager
def child(
    command: Sequence[str], log: Path, end_seconds: float = 0.0
) -> Iterator[subprocess.Popen[bytes]]:
    """A program for the time of a `with` block. end_seconds: how long it may take to end by
    SIGTERM; 0: it is killed at once."""
    process = start(command, log)
    try:
        yield process
    finally:
        try:
            if end_seconds:
                process.terminate()
                process.wait(end_seconds)
        except subprocess.TimeoutExpired:
            pass
        finally:
            process.kill()
            process.wait()


def write_toml(file: Path, tables: Mapping[str, Any]) -> Path:
    """A file of tables; a list of tables under a name is an array of them."""
    lines = []
    for name, found in tables.items():
        many = isinstance(found, list)
        for each in found if many else [found]:
            lines.append(f"[[{name}]]" if many else f"[{name}]")
            # What JSON writes for text, numbers, truth and lists of these is TOML too.
            lines += [f"{key} = {json.dumps(value)}" for key, value in each.items()]
    file.write_text("\n".join(lines) + "\n")
    return file


@contextmanager
def brokers_up(
    folder: Path,
    names: Sequence[str],
    say: Callable[[str], None] = lambda line: None,
    distributor: bool = True,
    lease: str = "30s",
    programs: Programs | None = None,
    own: Mapping[str, Mapping[str, object]] = MappingProxyType({}),
    **each: object,
) -> Iterator[Running]:
    """A deployment of brokers for the time of a `with` block; lease: the distributor's; each:
    further keys of every broker, with _ for -; own: further keys of a broker, by its name. Raises
    SrtmError."""
    addresses = iter(map(str, free_addresses(2 * len(names) + 1)))
    more = {key.replace("_", "-"): value for key, value in each.items()}
    leader = {"http-address": next(addresses), "lease-duration": lease}
    spec = {
        "deployment": {"name": "benchmark", "data-path": str(folder)},
        "lookupd": False,
        "distributor": leader if distributor else False,
        "broker": [
            {"name": n, "tcp-address": next(addresses), "http-address": next(addresses)}
            | {**more, **own.get(n, {})}
            for n in names
        ],
    }
    with running(spec, say=say, programs=programs) as up:
        yield up


def distributor_address(up: Running) -> str:
    """Where the Load Distributor of a deployment that has one listens."""
    assert up.deployment.distributor is not None
    return up.deployment.distributor.http_address


def distributor_of(up: Running) -> Remote:
    """The Load Distributor of a deployment that has one."""
    assert up.deployment.distributor is not None
    return Remote(up.deployment.distributor.endpoint())
