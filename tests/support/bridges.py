"""`srtm bridge run` as a child process."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.programs import SRTM
from tests.support.servers import Process, Servers, free_port, http, wait_for

ROOT = Path(__file__).parents[2]


@dataclass
class Bridge:
    """file: its TOML file; address: of its HTTP door."""

    process: Process
    file: Path
    address: str

    def stats(self) -> dict[str, Any]:
        document = http(self.address, "/stats")[1]
        assert isinstance(document, dict)
        return document

    def route(self, name: str = "") -> dict[str, Any]:
        """What /stats says of a route; of the first without a name."""
        for each in self.stats()["routes"]:
            if not name or each["route"] == name:
                return dict(each)
        raise AssertionError(f"no route {name} in {self.stats()}")

    def ready(self) -> bool:
        assert self.process.alive, self.process.text()
        try:
            return http(self.address, "/ping", timeout=5)[0] == 200
        except OSError:
            return False

    def wait_ready(self, seconds: float = 30) -> None:
        try:
            wait_for(self.ready, "the bridge is ready", seconds)
        except BaseException:
            print(self.process.text())
            raise

    def again(self) -> None:
        """Start it once more, from its file."""
        self.process.start()


def bridge(
    servers: Servers,
    kafka: str,
    *routes: dict[str, Any],
    wait: bool = True,
    name: str = "test",
    drain: str = "10s",
    **settings: Any,
) -> Bridge:
    """One that runs `routes`; settings: of [kafka.settings], an underscore for a dot."""
    address = f"127.0.0.1:{free_port()}"
    file = servers.folder / f"bridge-{address.rpartition(':')[2]}.toml"
    write(file, kafka, address, *routes, name=name, drain=drain, **settings)
    command = [*SRTM, "bridge", "run", str(file)]
    process = servers.process("bridge", command, PYTHONPATH=str(ROOT))
    found = Bridge(process, file, address)
    if wait:
        found.wait_ready()
    return found


def write(
    file: Path,
    kafka: str,
    address: str,
    *routes: dict[str, Any],
    name: str = "test",
    drain: str = "10s",
    **settings: Any,
) -> None:
    lines = ["[bridge]", f'http-address = "{address}"', f'name = "{name}"']
    lines.append(f'drain-timeout = "{drain}"')
    lines += ["[kafka]", f'bootstrap-servers = "{kafka}"', "[kafka.settings]"]
    lines += [
        f'"{name.replace("_", ".")}" = {json.dumps(value)}' for name, value in settings.items()
    ]
    for route in routes:
        lines.append("[[route]]")
        lines += [f"{name} = {json.dumps(value)}" for name, value in route.items()]
    file.write_text("\n".join(lines) + "\n")
