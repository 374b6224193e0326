"""What is compared: nsqd alone, and nsqd behind a gateway; all of them up for the whole run."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from urllib.parse import quote

import psutil

from benchmarks.harness.machine import cpu_seconds
from benchmarks.harness.nsqd import Depth, ask, depth
from srtm.deploy.process import ChildSpec, Stage
from srtm.deploy.programs import find_program
from srtm.deploy.supervisor import Supervisor
from srtm.http.client import request
from srtm.limits.contract import Contract
from srtm.text.address import free_addresses
from srtm.text.errors import UnavailableError

NSQD_FLAGS = ("--mem-queue-size=1000000",)
"""nsqd's flags in every arm: what waits does so in memory, or the disk would be measured."""


@dataclass(frozen=True, slots=True)
class Node:
    """An nsqd on TCP loopback, or on a unix socket behind its gateway. pids: by program.

    nsqd_tcp: host:port, or the socket's path
    """

    name: str
    nsqd_tcp: str
    nsqd_http: str
    pids: dict[str, int]
    gateway_tcp: str = ""
    admin: str = ""
    gateway_http: str = ""

    @property
    def publish_to(self) -> str:
        return self.gateway_tcp or self.nsqd_tcp

    def cpu_seconds(self) -> dict[str, float]:
        """User and system time so far, by program, with the processes that it has started."""
        return {name: cpu_seconds(psutil.Process(pid)) for name, pid in self.pids.items()}

    def depth(self, topic: str) -> Depth:
        return depth(self.nsqd_http, topic)

    def create(self, topic: str, channel: str = "") -> None:
        """Create the topic in nsqd, so that nothing is published before somebody can receive it."""
        ask(self.nsqd_http, "create", topic, channel)

    def empty(self, topic: str, channel: str = "") -> None:
        """Drop what an earlier trial left."""
        ask(self.nsqd_http, "empty", topic, channel)

    def limit(self, contract: Contract) -> None:
        """Through the gateway's admin socket; a new topic's bucket starts full."""
        path = f"/topics/{quote(contract.topic, safe='')}"
        answer = request(self.admin, "PUT", path, document=contract.limit().document())
        if answer.status != 200:
            raise UnavailableError(f"{self.admin}: {path}: {answer.error}")


@contextmanager
def nodes(
    folder: Path,
    arms: Mapping[str, Sequence[Contract] | None],
    flags: Mapping[str, Sequence[str]] | None = None,
    nsqd_flags: Mapping[str, Sequence[str]] | None = None,
    environments: Mapping[str, Mapping[str, str]] | None = None,
) -> Iterator[dict[str, Node]]:
    """Start them all and end them all; None: without a gateway. `flags` are more of the gateway's,
    by arm, `nsqd_flags` of nsqd's, and `environments` variables that nsqd reads beside ours.
    Raises SrtmError."""
    specs: list[ChildSpec] = []
    made = []
    for name, contracts in arms.items():
        tcp, web, gateway_tcp, gateway_web = map(str, free_addresses(4))
        data = folder / name
        data.mkdir()
        command = [
            find_program("nsqd"),
            f"--tcp-address={tcp}",
            f"--http-address={web}",
            f"--data-path={data}",
            "--broadcast-address=127.0.0.1",
            *NSQD_FLAGS,
            *(nsqd_flags or {}).get(name, ()),
        ]
        if contracts is not None:
            tcp = str(folder / f"{name}-nsqd.sock")  # as `srtm up` deploys it
            command[1] = f"--tcp-address={tcp}"
            command += [
                f"--broadcast-tcp-port={gateway_tcp.rpartition(':')[2]}",
                f"--broadcast-http-port={gateway_web.rpartition(':')[2]}",
            ]
        nsqd = _spec(f"{name}-nsqd", Stage.NSQD, command, web, folder)
        specs.append(replace(nsqd, environment=(environments or {}).get(name, {})))
        if contracts is None:
            made.append((name, tcp, web, "", "", ""))
            continue
        admin = str(folder / f"{name}.sock")
        command = [
            *(sys.executable, "-m", "srtm", "gateway"),
            f"--tcp-address={gateway_tcp}",
            f"--http-address={gateway_web}",
            f"--nsqd-tcp-address={tcp}",
            f"--nsqd-http-address={web}",
            "--broadcast-address=127.0.0.1",
            f"--admin-socket={admin}",
            *(flags or {}).get(name, ()),
        ]
        specs.append(_spec(f"{name}-gateway", Stage.GATEWAY, command, gateway_web, folder))
        made.append((name, tcp, web, gateway_tcp, admin, gateway_web))
    supervisor = Supervisor(specs, lambda line: None)
    try:
        supervisor.start()
        started = {}
        for name, tcp, web, gateway_tcp, admin, gateway_web in made:
            pids = {
                key.removeprefix(f"{name}-"): pid
                for key, pid in supervisor.pids.items()
                if key.startswith(f"{name}-")
            }
            started[name] = Node(name, tcp, web, pids, gateway_tcp, admin, gateway_web)
            for contract in arms[name] or ():
                started[name].limit(contract)
        yield started
    finally:
        supervisor.stop()


def _spec(name: str, stage: Stage, command: list[str], ping: str, folder: Path) -> ChildSpec:
    return ChildSpec(name, stage, partial(list, command), ping, folder / f"{name}.log")
