"""Real servers for tests: nsqd, nsqlookupd, nsqadmin and the gateway, as child processes."""

import contextlib
import itertools
import json
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from srtm.http.client import request
from tests.support.programs import SRTM, Forked, start_srtm

STARTED: list[subprocess.Popen[bytes] | Forked] = []


def program(name: str) -> str:
    """Path of an NSQ program; a skip where it is missing."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        message = f"{name} is not installed; `make setup` builds it"
        pytest.skip(message)
    return found


_SHARES = 32


def _share() -> tuple[int, socket.socket]:
    """Of the ports, a part that no other process of tests has now, whichever run it belongs to; the
    socket holds it."""
    for number in random.sample(range(_SHARES), _SHARES):
        holder = socket.socket(socket.AF_UNIX)
        try:
            holder.bind(f"\0srtm-tests-ports-{number}")
        except OSError:
            holder.close()
            continue
        return number, holder
    raise AssertionError(f"{_SHARES} processes of tests run on this machine")


_SHARE, _HOLDER = _share()
_OWN_PORTS = range(10_000 + _SHARE, 32_000, _SHARES)
"""below those that the kernel gives to clients, and of this process alone: either could take one
before its server binds"""
_PORTS = itertools.cycle(random.Random(os.getpid()).sample(_OWN_PORTS, len(_OWN_PORTS)))


def free_port() -> int:
    """One that nobody has now, and that no other test of this machine is likely to try."""
    for port in _PORTS:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("it has no end")


PATIENCE = 4.0
"""by which a machine with much else to do may be slower than one that has nothing else to do"""


def wait_for(condition: Any, what: str, seconds: float = 60.0) -> Any:
    """Poll until `condition()` is true; its value. Fails the test with `what`.

    seconds: that are enough on a machine with nothing else to do
    """
    seconds *= PATIENCE
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            pytest.fail(f"{what}: not within {seconds:g} s")
        time.sleep(0.01)


class _UnixConnection(HTTPConnection):
    """HTTP over a unix socket, as nsqd and the gateway's admin door speak it."""

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.host)


def http(
    address: str,
    path: str,
    data: bytes | None = None,
    method: str | None = None,
    timeout: float = 60,
) -> tuple[int, Any, dict[str, str]]:
    """(status, JSON or text, headers) from host:port or a socket's path; a body makes it a POST."""
    if "/" in address:
        connection: HTTPConnection = _UnixConnection("localhost", timeout=timeout)
        connection.host = address
    else:
        connection = HTTPConnection(address, timeout=timeout)
    with contextlib.closing(connection):
        method = method or ("GET" if data is None else "POST")
        connection.request(method, path, data, {"Connection": "close", "Host": "localhost"})
        response = connection.getresponse()
        status, body, headers = response.status, response.read(), dict(response.getheaders())
    try:
        return status, json.loads(body), headers
    except ValueError:
        return status, body.decode(), headers


@dataclass
class Process:
    """A child that is always ended; `log` is its stderr and stdout."""

    arguments: list[str]
    log: Path
    environment: dict[str, str] = field(default_factory=dict)
    popen: subprocess.Popen[bytes] | Forked = field(init=False)

    def start(self) -> None:
        with self.log.open("ab") as out:
            if tuple(self.arguments[: len(SRTM)]) == SRTM:
                words = self.arguments[len(SRTM) :]
                self.popen = start_srtm(
                    *words, stdout=out, stderr=out, environment=self.environment
                )
            else:
                self.popen = subprocess.Popen(
                    self.arguments,
                    stdout=out,
                    stderr=out,
                    stdin=subprocess.DEVNULL,
                    env={**os.environ, **self.environment},
                )
        STARTED.append(self.popen)

    def signal(self, number: int) -> None:
        self.popen.send_signal(number)

    def freeze(self) -> None:
        """Stop it, and return only when none of its threads runs any more."""
        self.signal(signal.SIGSTOP)
        threads = Path(f"/proc/{self.popen.pid}/task")
        wait_for(
            lambda: all(
                (thread / "stat").read_text().rpartition(")")[2].split()[0] == "T"
                for thread in threads.iterdir()
            ),
            "all threads are stopped",
        )

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """At once, also when it is frozen: it does not run once more."""
        with contextlib.suppress(ProcessLookupError):
            self.popen.kill()
        self.popen.wait(60)

    def stop(self, seconds: float = 15) -> int:
        """SIGTERM, and the exit code."""
        with contextlib.suppress(ProcessLookupError):
            self.popen.send_signal(signal.SIGCONT)
            self.popen.terminate()
        return self.popen.wait(seconds)

    @property
    def alive(self) -> bool:
        return self.popen.poll() is None

    def text(self) -> str:
        return self.log.read_text(errors="replace")


@dataclass
class Nsqd:
    """A real nsqd. `tcp` and `http` are host:port, or socket paths with `unix=True`."""

    process: Process
    tcp: str
    http: str
    data_path: Path

    def get(self, path: str) -> Any:
        return http(self.http, path)[1]

    def topic(self, name: str) -> dict[str, Any] | None:
        """Its own /stats entry of a topic."""
        found = self.get(f"/stats?format=json&topic={name}&include_mem=false")["topics"]
        return found[0] if found else None

    def message_count(self, name: str) -> int:
        entry = self.topic(name)
        return entry["message_count"] if entry else 0

    @contextlib.contextmanager
    def full_disk(self) -> Iterator[None]:
        """Its writes fail: no file of it may grow, its log included."""
        pid = self.process.popen.pid
        before = resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        try:
            yield
        finally:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, before)

    def wait_ready(self) -> None:
        def ready() -> bool:
            assert self.process.alive, self.process.text()
            return _answers(self.http)

        wait_for(ready, "nsqd answers /ping")


@dataclass
class GatewayProcess:
    """`srtm gateway` in front of an nsqd."""

    process: Process
    tcp: str
    http: str
    admin: str
    nsqd: Nsqd

    def ours(self, topic: str) -> dict[str, Any]:
        """What the gateway says of a topic under "srtm" in /stats."""
        document = http(self.http, f"/stats?format=json&topic={topic}")[1]
        found = document["srtm"]["topics"]
        assert found, f"the gateway does not know topic {topic}"
        return found[0]

    def inside(self, topic: str) -> dict[str, Any]:
        """The same from the admin socket, which asks no nsqd; {} for a topic that it lacks."""
        response = request(self.admin, "GET", f"/topics/{topic}")
        return response.json() if response.status == 200 else {}

    def set_limit(self, topic: str, **limit: object) -> None:
        """Give the topic a contract at run time, or change it."""
        response = request(self.admin, "PUT", f"/topics/{topic}", document=limit)
        assert response.status == 200, response.message

    def offered(self, topic: str) -> int:
        return self.inside(topic).get("offered", 0)

    def metric(self, name: str) -> float:
        """A figure of /metrics that has no label."""
        for line in http(self.http, "/metrics")[1].splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
        raise AssertionError(f"/metrics has no {name}")

    def wait_ready(self) -> None:
        def ready() -> bool:
            assert self.process.alive, self.process.text()
            return _answers(self.http)

        wait_for(ready, "the gateway answers /ping")


def _answers(address: str) -> bool:
    try:
        return http(address, "/ping", timeout=1)[0] in (200, 403)  # 403: it is there, with TLS
    except OSError:
        return False


class Servers:
    """Starts real servers in one temporary folder, and ends them all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._processes: list[Process] = []
        self._count = 0

    def process(self, name: str, arguments: list[str], **environment: str) -> Process:
        self._count += 1
        log = self.folder / f"{name}-{self._count}.log"
        process = Process(arguments, log, environment)
        self._processes.append(process)
        process.start()
        return process

    def nsqd(
        self,
        *flags: str,
        gateway_ports: tuple[int, int] | None = None,
        unix: bool = False,
        data_path: Path | None = None,
    ) -> Nsqd:
        """An nsqd on free ports, or on unix sockets; it tells lookupd `gateway_ports`."""
        ports = free_port(), free_port()
        tcp, web = f"127.0.0.1:{ports[0]}", f"127.0.0.1:{ports[1]}"
        if unix:
            tcp, web = str(self.folder / f"t{ports[0]}"), str(self.folder / f"h{ports[0]}")
        data_path = data_path or self.folder / f"nsqd-{self._count}"
        data_path.mkdir(exist_ok=True)
        ports = gateway_ports or ports
        process = self.process(
            "nsqd",
            [
                program("nsqd"),
                f"--tcp-address={tcp}",
                f"--http-address={web}",
                f"--data-path={data_path}",
                "--broadcast-address=127.0.0.1",
                f"--broadcast-tcp-port={ports[0]}",
                f"--broadcast-http-port={ports[1]}",
                *flags,
            ],
        )
        nsqd = Nsqd(process, tcp, web, data_path)
        nsqd.wait_ready()
        return nsqd

    def lookupd(self, *flags: str) -> tuple[str, str, Process]:
        """(TCP address, HTTP address, process) of a real nsqlookupd."""
        tcp, web = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        process = self.process(
            "nsqlookupd",
            [
                program("nsqlookupd"),
                f"--tcp-address={tcp}",
                f"--http-address={web}",
                "--broadcast-address=127.0.0.1",
                *flags,
            ],
        )
        wait_for(lambda: _answers(web), "nsqlookupd answers /ping")
        return tcp, web, process

    def nsqadmin(self, lookupd_http: str) -> str:
        """HTTP address of a real nsqadmin that knows brokers by nsqlookupd alone."""
        web = f"127.0.0.1:{free_port()}"
        self.process(
            "nsqadmin",
            [
                program("nsqadmin"),
                f"--http-address={web}",
                f"--lookupd-http-address={lookupd_http}",
            ],
        )
        wait_for(lambda: _answers(web), "nsqadmin answers /ping")
        return web

    def gateway(
        self,
        *flags: str,
        nsqd: Nsqd | None = None,
        wait: bool = True,
        ports: tuple[int, int] | None = None,
        unix: bool = False,
        prefix: tuple[str, ...] = (),
    ) -> GatewayProcess:
        """A gateway before `nsqd` (a new one if none is given), on free ports.

        `prefix` is a program that runs it (`sh -c 'ulimit ...'`); a later flag beats an earlier.
        """
        ports = ports or (free_port(), free_port())
        nsqd = nsqd or self.nsqd(gateway_ports=ports, unix=unix)
        tcp, web = f"127.0.0.1:{ports[0]}", f"127.0.0.1:{ports[1]}"
        admin = str(self.folder / f"a{ports[0]}.sock")
        process = self.process(
            "gateway",
            [
                *prefix,
                *SRTM,
                "gateway",
                f"--tcp-address={tcp}",
                f"--http-address={web}",
                f"--nsqd-tcp-address={nsqd.tcp}",
                f"--nsqd-http-address={nsqd.http}",
                f"--admin-socket={admin}",
                "--broadcast-address=127.0.0.1",
                *flags,
            ],
        )
        gateway = GatewayProcess(process, tcp, web, admin, nsqd)
        if wait:
            gateway.wait_ready()
        return gateway

    def close(self) -> None:
        for process in reversed(self._processes):
            process.kill()


@contextlib.contextmanager
def servers_in(folder: Path) -> Iterator[Servers]:
    servers = Servers(folder)
    try:
        yield servers
    finally:
        servers.close()
