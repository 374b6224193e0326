"""A program under `srtm autoscale run`, with consumers that write down what their sinks got."""

import json
import os
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.programs import SRTM, run_srtm
from tests.support.servers import Process, Servers, http, wait_for

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


@dataclass
class Autoscaled:
    """folder: of the file, the worker module and what the sinks wrote. address: of the controller's
    HTTP. defaults: the file's tables, as long as a test says nothing else."""

    servers: Servers
    folder: Path
    address: str
    defaults: dict[str, dict[str, Any]]
    sent: int = 0
    _controllers: list[Process] = field(default_factory=list)

    @property
    def file(self) -> Path:
        return self.folder / "group.toml"

    def write(self, **tables: dict[str, Any]) -> None:
        """Keys of `tables` over the defaults; an underscore in a key is a hyphen."""
        always = {
            "executor": {"log-folder": "logs", "startup": "20s", "grace": "5s"},
            "controller": {"http-address": self.address},
        }
        values = self.defaults | always
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

    # --- programs ---------------------------------------------------------------------------------

    def controller(self, file: Path | None = None, **environment: str) -> Process:
        command = [*SRTM, "autoscale", "run", str(file or self.file)]
        process = self.servers.process("run", command, PYTHONPATH=str(ROOT), **environment)
        self._controllers.append(process)
        return process

    def consumer(self, **environment: str) -> Process:
        """One that nobody launched."""
        command = [*SRTM, "consume", str(self.file)]
        return self.servers.process("consume", command, PYTHONPATH=str(ROOT), **environment)

    def command(self, name: str, *flags: str) -> subprocess.CompletedProcess[str]:
        """`srtm autoscale NAME` on the file."""
        return run_srtm("autoscale", name, self.file, *flags, seconds=60)

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

    def end(self) -> None:
        for each in self._controllers:
            each.kill()
        for pid in self.pids():
            os.kill(pid, signal.SIGKILL)

    # --- what they say and did --------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """The controller's; {} while it does not answer."""
        try:
            found = http(self.address, "/stats", timeout=5)[1]
        except OSError:
            return {}
        return dict(found) if isinstance(found, dict) else {}

    def lines(self) -> list[list[Any]]:
        """What the sinks wrote, as the worker module wrote it; of the last line all or nothing."""
        files = self.folder.glob("sink-*.jsonl")
        return [json.loads(line) for file in files for line in file.read_text().split("\n")[:-1]]

    def wait(self, condition: Any, what: str, seconds: float = 60) -> None:
        try:
            wait_for(condition, what, seconds)
        except BaseException:
            print(self.stats(), self.logs())
            raise

    def logs(self) -> str:
        texts = [each.text()[-4000:] for each in self._controllers]
        texts += [each.read_text()[-3000:] for each in (self.folder / "logs").glob("*.log")]
        return "\n---\n".join(texts)
