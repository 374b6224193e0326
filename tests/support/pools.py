"""An NSQ pool under `srtm autoscale run`, with consumers that write down what their sinks got."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.groups import ROOT, WORK
from tests.support.servers import Process, Servers, free_port, http, wait_for


@dataclass
class Pool:
    """folder: of the file, the worker module and what the sinks wrote. brokers: HTTP addresses of
    nsqds or gateways that take messages"""

    servers: Servers
    folder: Path
    lookupd: str
    brokers: list[str]
    address: str
    sent: int = 0
    _controllers: list[Process] = field(default_factory=list)

    @property
    def file(self) -> Path:
        return self.folder / "pool.toml"

    def write(self, **tables: dict[str, Any]) -> None:
        values: dict[str, dict[str, Any]] = {
            "nsq": {
                "topic": "events",
                "channel": "workers",
                "lookupd": [self.lookupd],
                "msg_timeout": "2s",
            },
            "group": {
                "slo": "0.99@500ms",
                "mu": 500,
                "interval": "300ms",
                "policy": "closer1",
                "max": 4,
            },
            "consumer": {
                "process": "work:handle",
                "sink": "callback",
                "callback": "work:keep",
                "batch": 20,
            },
            "executor": {"log-folder": "logs", "startup": "20s", "grace": "5s"},
            "controller": {"http-address": self.address},
        }
        for name, table in tables.items():
            values[name] = {**values.get(name, {}), **table}
        lines = []
        for name, table in values.items():
            if table:
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

    def consumer(self, **environment: str) -> Process:
        command = [sys.executable, "-m", "srtm", "consume", str(self.file)]
        return self.servers.process("consume", command, PYTHONPATH=str(ROOT), **environment)

    def command(self, name: str, *flags: str) -> subprocess.CompletedProcess[str]:
        """`srtm autoscale NAME` on the pool's file."""
        return subprocess.run(
            [sys.executable, "-m", "srtm", "autoscale", name, str(self.file), *flags],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    def publish(self, count: int, broker: int = -1) -> None:
        """Ids that nobody has had yet, over all brokers."""
        for number, address in enumerate(self.brokers):
            if broker in (-1, number):
                ids = range(self.sent + number, self.sent + count, len(self.brokers))
                ids = range(self.sent, self.sent + count) if broker >= 0 else ids
                body = "\n".join(map(str, ids)).encode()
                if body:
                    assert http(address, "/mpub?topic=events", body)[0] == 200
        self.sent += count

    def publish_body(self, body: bytes, broker: int = 0) -> None:
        assert http(self.brokers[broker], "/pub?topic=events", body)[0] == 200

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
                    variables = (process / "environ").read_bytes().split(b"\0")
                    command = (process / "cmdline").read_bytes()
                except OSError:
                    continue
                launched = any(each.startswith(b"SRTM_LAUNCH=") for each in variables)
                if launched and str(self.folder).encode() in command:
                    found.append(int(process.name))
        return sorted(found)

    def kept(self) -> list[tuple[float, int, str]]:
        """(when, by which process, id) of each message that a sink got."""
        found = []
        for file in self.folder.glob("sink-*.jsonl"):
            for line in file.read_text().splitlines():
                at, pid, *_, id_ = json.loads(line)
                found.append((at, pid, id_))
        return sorted(found)

    def ids(self) -> Counter[str]:
        return Counter(id_ for _, _, id_ in self.kept())

    def wait_kept(self, seconds: float = 60) -> None:
        """Until each id that was sent is in a sink."""
        self.wait(lambda: {str(n) for n in range(self.sent)} <= self.ids().keys(), "kept", seconds)

    def wait_consumers(self, count: int, seconds: float = 60) -> None:
        """Until so many are there, and nobody starts or leaves."""

        def there() -> bool:
            found = self.stats()
            quiet = not found.get("starting") and not found.get("leaving")
            return found.get("consumers") == count and quiet

        self.wait(there, f"{count} consumers", seconds)

    def wait(self, condition: Any, what: str, seconds: float = 60) -> None:
        try:
            wait_for(condition, what, seconds)
        except BaseException:
            print(self.stats(), self.logs())
            raise

    def backlog(self) -> int:
        """Messages that nobody has finished, over all brokers."""
        waiting = 0
        for address in self.brokers:
            path = "/stats?format=json&topic=events&channel=workers"
            for topic in http(address, path)[1]["topics"] or []:
                for each in topic["channels"]:
                    waiting += each["depth"] + each["in_flight_count"] + each["deferred_count"]
        return waiting

    def logs(self) -> str:
        texts = [each.text()[-4000:] for each in self._controllers]
        texts += [each.read_text()[-3000:] for each in (self.folder / "logs").glob("*.log")]
        return "\n---\n".join(texts)

    def end(self) -> None:
        for each in self._controllers:
            each.kill()
        for pid in self.pids():
            os.kill(pid, signal.SIGKILL)


def pool(servers: Servers, brokers: int = 1, **tables: dict[str, Any]) -> Pool:
    """With a nsqlookupd and so many nsqds of its own."""
    folder = servers.folder / "pool"
    folder.mkdir()
    tcp, web, _ = servers.lookupd()
    nsqds = [servers.nsqd(f"--lookupd-tcp-address={tcp}").http for _ in range(brokers)]
    for address in nsqds:
        assert http(address, "/topic/create?topic=events", b"")[0] == 200
    found = Pool(servers, folder, web, nsqds, f"127.0.0.1:{free_port()}")
    found.write(**tables)
    return found
