"""A real `srtm distributor` as a child process, and brokers that report to it."""

import json
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any

from tests.support.programs import SRTM, run_srtm
from tests.support.servers import Process, free_port, wait_for

ROOT = Path(__file__).parents[2]


@dataclass
class DistributorProcess:
    """address: host:port; `call` speaks to /v1."""

    process: Process
    address: str
    token: str | None = None
    tls: ssl.SSLContext | None = None

    def call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        connection = HTTPConnection(self.address, timeout=60)
        if self.tls is not None:
            connection = HTTPSConnection(self.address, timeout=60, context=self.tls)
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        with closing(connection):
            connection.request(method, f"/v1{path}", data, headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())

    def settled(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """The answer of a leader that is sure of it: one that a busy machine holds up for a lease
        says that it is to be asked again."""
        for _ in range(100):
            status, answer = self.call(method, path, body)
            if status != 503 or "store has not confirmed" not in answer["error"]:
                break
            time.sleep(0.1)
        return status, answer

    def ok(self, method: str, path: str, body: object = None) -> Any:
        status, answer = self.settled(method, path, body)
        assert status == 200, answer
        return answer

    def leads(self) -> bool:
        try:
            return bool(self.call("GET", "/health")[1]["leading"])
        except OSError:
            assert self.process.alive, self.process.text()
            return False

    def wait_leading(self) -> None:
        wait_for(self.leads, "the distributor leads")

    def broker(self, name: str, capacity: float = 1000.0) -> "FakeBroker":
        found = FakeBroker(self, name)
        found.register(capacity)
        return found

    def topic(self, name: str = "t", **changes: object) -> None:
        values = {"rate": 150.0, "burst": 20.0, "slo": "0.99@1ms"} | changes
        self.ok("PUT", f"/topics/{name}", values)

    def publishers(self, count: int, topic: str = "t", rate: float = 10.0) -> None:
        rows = [{"id": f"p{n}", "key": f"k{n % 3}", "rate": rate} for n in range(count)]
        self.ok("POST", f"/topics/{topic}/publishers", {"publishers": rows})

    def place(self, topic: str = "t", **body: object) -> Any:
        return self.ok("POST", f"/topics/{topic}/placements", body)

    def placed(
        self, *capacities: float, publishers: int, policy: str = "srtm", **topic: object
    ) -> list["FakeBroker"]:
        """Brokers b1, b2, ... of these capacities, which have their shares of topic t, as its
        publishers are placed on them."""
        brokers = [self.broker(f"b{n}", each) for n, each in enumerate(capacities, 1)]
        self.topic("t", **topic)
        self.publishers(publishers)
        self.place(policy=policy)
        settle(*brokers)
        return brokers

    def where(self, publisher: str, topic: str = "t") -> Any:
        return self.ok("GET", f"/topics/{topic}/publishers/{publisher}")

    def srtm(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command with this distributor's address."""
        return srtm(*arguments, "--distributor-address", self.address)


@dataclass
class FakeBroker:
    """What a gateway's agent does, one step at a time."""

    distributor: DistributorProcess
    name: str
    epoch: int = 0
    shares: dict[str, Any] = field(default_factory=dict)
    store: str = ""
    newest: int = 0
    proof: str = ""
    names: list[str] = field(default_factory=list)
    names_version: str = ""
    instance: str = ""
    process: str = ""

    def register(self, capacity: float | None = None) -> Any:
        return self.distributor.ok("POST", "/brokers", self.description(capacity))

    def description(self, capacity: float | None = None) -> dict[str, Any]:
        held = ("topic", "rate", "burst", "topic_rate", "topic_burst", "mode", "max_wait", "slo")
        return {
            "name": self.name,
            "tcp_address": f"{self.name}:4150",
            "http_address": f"{self.name}:4151",
            "capacity": capacity,
            "instance": self.instance,
            "process": self.process,
            "store": self.store,
            "applied_epoch": self.epoch,
            "newest": max(self.newest, self.epoch),
            "proof": self.proof,
            "held": [{key: each[key] for key in held} for each in self.shares.values()],
            "names": self.names,
        }

    def report(self, *busy: str, seconds: float = 0.0, **counts: Any) -> Any:
        """Report and apply the answer; `busy`: topics of which messages came, and their counts."""
        topics = [{"topic": each, "offered": 1.0, **counts} for each in busy]
        body = {
            "applied_epoch": self.epoch,
            "store": self.store,
            "process": self.process,
            "names_version": self.names_version,
            "seconds": seconds,
            "topics": topics,
        }
        status, answer = self.distributor.settled("POST", f"/brokers/{self.name}/report", body)
        if status == 404:  # another distributor leads
            self.register()
            answer = self.distributor.ok("POST", f"/brokers/{self.name}/report", body)
        assert "epoch" in answer, answer
        assert answer["epoch"] >= self.epoch
        self.epoch = answer["epoch"]
        self.store, self.newest, self.proof = answer["store"], answer["newest"], answer["proof"]
        if answer["names"] is not None:
            self.names, self.names_version = answer["names"], answer["names_version"]
        self.shares = {each["topic"]: each for each in answer["topics"]}
        return answer


def settle(*brokers: FakeBroker) -> None:
    """Long enough for every shrink, growth and acknowledgement."""
    for _ in range(4):
        for each in brokers:
            each.report()


def srtm(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_srtm(*arguments, seconds=150)


Starter = Callable[..., DistributorProcess]


@contextmanager
def distributors_in(folder: Path) -> Iterator[Starter]:
    """A function that starts one on `store`; all are ended with it."""
    started: list[Process] = []

    def start(
        store: str | Path = folder / "store.db",
        *flags: str,
        address: str | None = None,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
        largest_file: int | None = None,
        open_files: int | None = None,
    ) -> DistributorProcess:
        address = address or f"127.0.0.1:{free_port()}"
        command = [*SRTM, "distributor", f"--http-address={address}"]
        if largest_file is not None:
            command = ["prlimit", f"--fsize={largest_file}:unlimited", *command]
        if open_files is not None:
            command = ["prlimit", f"--nofile={open_files}:{open_files}", *command]
        process = Process(
            [*command, f"--store={store}", *flags],
            folder / f"distributor-{len(started)}.log",
            {"PYTHONPATH": str(ROOT)},
        )
        process.start()
        started.append(process)
        return DistributorProcess(process, address, token, tls)

    try:
        yield start
    finally:
        for process in started:
            process.kill()
