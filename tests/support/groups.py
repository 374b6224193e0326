"""A Kafka group under `srtm autoscale run`, with consumers that write down what their sinks got."""

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.kafka import Kafka
from tests.support.servers import Process, Servers, free_port, http, wait_for

ROOT = Path(__file__).parents[2]

WORK = """
import json, os, time
from pathlib import Path

HERE = Path(__file__).parent
SINK = os.open(HERE / f"sink-{os.getpid()}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
EACH = float(os.environ.get("EACH", "0"))


def handle(records):
    for record in records:
        if record.value == b"stall":
            (HERE / f"stalled-{os.getpid()}").touch()
            while (HERE / "stall").exists():
                time.sleep(0.01)
        elif EACH:
            time.sleep(EACH)
    return [record.value.decode() for record in records]


async def later(records):
    import asyncio

    await asyncio.sleep(0.01)
    return handle(records)


def fails_once(records):
    marker = HERE / "failed"
    if not marker.exists():
        marker.touch()
        raise ValueError("not this time")
    return handle(records)


def rows(records):
    return [{"id": record.value.decode(), "offset": record.offset} for record in records]


def keep(results, batch):
    at = time.clock_gettime(time.CLOCK_BOOTTIME)
    lines = [
        json.dumps([at, os.getpid(), each.partition, batch.tokens[each.partition], each.offset, id])
        for each, id in zip(batch.records, results)
    ]
    os.write(SINK, ("\\n".join(lines) + "\\n").encode())
"""


@dataclass(frozen=True, order=True)
class Kept:
    """A record that a sink got. at: seconds of the machine's clock that counts sleep too."""

    at: float
    pid: int
    partition: int
    token: int
    offset: int
    id: str


@dataclass
class Group:
    """folder: of the file, the worker module and what the sinks wrote."""

    kafka: Kafka
    servers: Servers
    folder: Path
    topic: str
    address: str
    sent: int = 0
    _controllers: list[Process] = field(default_factory=list)

    @property
    def file(self) -> Path:
        return self.folder / "group.toml"

    def write(self, **tables: dict[str, Any]) -> None:
        values: dict[str, dict[str, Any]] = {
            "kafka": {"bootstrap-servers": self.kafka.address},
            "group": {
                "topic": self.topic,
                "id": f"{self.topic}-group",
                "slo": "0.99@500ms",
                "mu": 500,
                "lease": "1s",
                "interval": "300ms",
                "policy": "closer2",
            },
            "consumer": {"process": "work:handle", "sink": "callback", "callback": "work:keep"},
            "executor": {"log-folder": "logs", "startup": "20s", "grace": "5s"},
            "controller": {"http-address": self.address},
        }
        for name, table in tables.items():
            values[name] = {**values.get(name, {}), **table}
        lines = []
        for name, table in values.items():
            lines.append(f"[{name}]")
            lines += [
                f"{key.replace('_', '-')} = {json.dumps(value)}" for key, value in table.items()
            ]
        self.file.write_text("\n".join(lines) + "\n")
        (self.folder / "work.py").write_text(WORK)

    def controller(self, file: Path | None = None, **environment: str) -> Process:
        command = [sys.executable, "-m", "srtm", "autoscale", "run", str(file or self.file)]
        process = self.servers.process("run", command, PYTHONPATH=str(ROOT), **environment)
        self._controllers.append(process)
        return process

    def command(self, name: str, *flags: str) -> subprocess.CompletedProcess[str]:
        """`srtm autoscale NAME` on the group's file."""
        return subprocess.run(
            [sys.executable, "-m", "srtm", "autoscale", name, str(self.file), *flags],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    def consumer(self, **environment: str) -> Process:
        """One that nobody launched."""
        command = [sys.executable, "-m", "srtm", "consume", str(self.file)]
        return self.servers.process("consume", command, PYTHONPATH=str(ROOT), **environment)

    def produce(self, count: int, partition: int = -1) -> None:
        """Ids that nobody has had yet."""
        values: list[bytes | None] = [b"%d" % (self.sent + n) for n in range(count)]
        self.kafka.produce(self.topic, values, partition=partition)
        self.sent += count

    def stats(self) -> dict[str, Any]:
        try:
            found = http(self.address, "/stats", timeout=5)[1]
        except OSError:
            return {}
        return dict(found) if isinstance(found, dict) else {}

    def pids(self) -> list[int]:
        """Of consumers that the controller has launched and that live."""
        found = []
        for process in Path("/proc").iterdir():
            if process.name.isdigit():
                try:
                    command = (process / "cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                ours = b"consume" in command or any(b"script.py" in each for each in command)
                if ours and str(self.file).encode() in command:
                    found.append(int(process.name))
        return sorted(found)

    def kept(self) -> list[Kept]:
        found = []
        for file in self.folder.glob("sink-*.jsonl"):
            for line in file.read_text().splitlines():
                found.append(Kept(*json.loads(line)))
        return sorted(found)

    def ids(self) -> Counter[str]:
        return Counter(each.id for each in self.kept())

    def wait_kept(self, seconds: float = 60) -> None:
        """Until each id that was sent is in a sink."""
        try:
            wait_for(lambda: len(self.ids()) >= self.sent, f"{self.sent} ids are kept", seconds)
        except BaseException:
            print(self.logs())
            raise

    def wait_state(self, consumers: int, seconds: float = 60) -> None:
        """Until so many consumers have every partition among them, and nothing is under way."""

        def there() -> bool:
            found = self.stats()
            return found.get("consumers") == consumers and found.get("state") == "sentinel"

        try:
            wait_for(there, f"{consumers} consumers", seconds)
        except BaseException:
            print(self.stats(), self.logs())
            raise

    def check_kept(self) -> None:
        """Nothing is lost."""
        assert {str(n) for n in range(self.sent)} <= self.ids().keys()

    def check(self) -> None:
        """The same, and no partition is had by two: whoever has a newer token is the last to write,
        and each owner writes in order."""
        self.check_kept()
        newest: dict[int, Kept] = {}
        for each in self.kept():
            before = newest.get(each.partition)
            if before is not None:
                assert each.token >= before.token, f"{before} and then {each}"
                if each.token == before.token:
                    assert each.pid == before.pid, f"{before} and {each} have one token"
                    assert each.offset > before.offset, f"{before} and then {each}"
            newest[each.partition] = each

    def logs(self) -> str:
        texts = [each.text()[-4000:] for each in self._controllers]
        texts += [each.read_text()[-3000:] for each in (self.folder / "logs").glob("*.log")]
        return "\n---\n".join(texts)

    def end(self) -> None:
        for each in self._controllers:
            each.kill()
        for pid in self.pids():
            os.kill(pid, 9)


def group(
    kafka: Kafka, servers: Servers, topic: str, partitions: int = 4, **tables: dict[str, Any]
) -> Group:
    folder = servers.folder / topic
    folder.mkdir()
    kafka.create(topic, partitions)
    found = Group(kafka, servers, folder, topic, f"127.0.0.1:{free_port()}")
    found.write(**tables)
    return found


@contextmanager
def under_load(group: Group, rate: int = 100) -> Iterator[None]:
    """`rate` ids/s until the block ends."""
    over = threading.Event()

    def load() -> None:
        while not over.wait(0.1):
            group.produce(rate // 10)

    thread = threading.Thread(target=load)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(30)
