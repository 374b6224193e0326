"""`srtm bridge run` as a child process, its routes, and what is at both of their ends."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from tests.support.kafka import Kafka
from tests.support.programs import SRTM
from tests.support.servers import GatewayProcess, Nsqd, Process, Servers, free_port, http, wait_for
from tests.support.v2 import V2

ROOT = Path(__file__).parents[2]
IN_MEMORY = "--mem-queue-size=200000"
"""What overflows to disk is delivered in any order; nsqd's default is 10,000."""

Route = dict[str, Any]


def out(nsqd: Nsqd | GatewayProcess, topic: str, **more: Any) -> Route:
    """A route from NSQ to Kafka's topic of the same name; more: keys, an underscore for a dash."""
    route = {"from": f"nsq:{topic}/bridge", "to": f"kafka:{topic}", "nsqd": [nsqd.tcp]}
    return route | _keys(more)


def back(nsqd: Nsqd | GatewayProcess, topic: str, **more: Any) -> Route:
    """A route from Kafka to NSQ's topic of the same name, as `out`."""
    route = {"from": f"kafka:{topic}", "group": topic, "to": f"nsq:{topic}", "nsqd": [nsqd.tcp]}
    return route | _keys(more)


def _keys(more: dict[str, Any]) -> Route:
    return {name.replace("_", "-"): value for name, value in more.items()}


@dataclass
class Bridge:
    """file: its TOML file; address: of its HTTP door."""

    process: Process
    file: Path
    address: str

    def route(self, name: str = "") -> dict[str, Any]:
        """What /stats says of a route; of the first without a name."""
        document = http(self.address, "/stats")[1]
        assert isinstance(document, dict)
        for each in document["routes"]:
            if not name or each["route"] == name:
                return dict(each)
        raise AssertionError(f"no route {name} in {document}")

    def reason(self, name: str = "") -> str:
        """Why a route waits; "" while the door is not open yet."""
        try:
            return str(self.route(name)["reason"])
        except OSError:
            return ""

    def ping(self) -> tuple[int, str]:
        """(0, "") while the door is not open yet."""
        assert self.process.alive, self.process.text()
        try:
            code, said, _ = http(self.address, "/ping", timeout=5)
            return code, str(said)
        except OSError:
            return 0, ""

    def wait_ready(self, seconds: float = 30) -> None:
        try:
            wait_for(lambda: self.ping()[0] == 200, "the bridge is ready", seconds)
        except BaseException:
            print(self.process.text())
            raise

    def again(self, seconds: float = 30) -> None:
        """Start it once more, from its file."""
        self.process.start()
        self.wait_ready(seconds)


def bridge(
    servers: Servers,
    kafka: Kafka,
    *routes: Route,
    wait: bool = True,
    name: str = "test",
    drain: str = "10s",
    **settings: Any,
) -> Bridge:
    """One that runs `routes`; settings: of [kafka.settings], an underscore for a dot."""
    address = f"127.0.0.1:{free_port()}"
    file = servers.folder / f"bridge-{address.rpartition(':')[2]}.toml"
    write(file, kafka, *routes, address=address, name=name, drain=drain, **settings)
    command = [*SRTM, "bridge", "run", str(file)]
    process = servers.process("bridge", command, PYTHONPATH=str(ROOT))
    found = Bridge(process, file, address)
    if wait:
        found.wait_ready()
    return found


def write(
    file: Path,
    kafka: Kafka,
    *routes: Route,
    address: str = "127.0.0.1:4190",
    name: str = "test",
    drain: str = "10s",
    **settings: Any,
) -> None:
    lines = ["[bridge]", f'http-address = "{address}"', f'name = "{name}"']
    lines.append(f'drain-timeout = "{drain}"')
    lines += ["[kafka]", f'bootstrap-servers = "{kafka.address}"', "[kafka.settings]"]
    lines += [
        f'"{name.replace("_", ".")}" = {json.dumps(value)}' for name, value in settings.items()
    ]
    for route in routes:
        lines.append("[[route]]")
        lines += [f"{name} = {json.dumps(value)}" for name, value in route.items()]
    file.write_text("\n".join(lines) + "\n")


# --- both ends --------------------------------------------------------------------------------


def publish(nsqd: Nsqd, topic: str, bodies: list[bytes]) -> None:
    for start in range(0, len(bodies), 1000):
        part = b"\n".join(bodies[start : start + 1000])
        assert http(nsqd.http, f"/mpub?topic={topic}", part)[0] == 200


def publish_one(nsqd: Nsqd, topic: str, body: bytes) -> None:
    """One that may be longer than all of an MPUB's."""
    assert http(nsqd.http, f"/pub?topic={topic}", body)[0] == 200


def open_channel(nsqd: Nsqd, topic: str, name: str = "bridge") -> None:
    http(nsqd.http, f"/topic/create?topic={topic}", b"")
    http(nsqd.http, f"/channel/create?topic={topic}&channel={name}", b"")


def channel(nsqd: Nsqd, topic: str, name: str = "bridge") -> dict[str, int]:
    for each in (nsqd.topic(topic) or {"channels": []})["channels"]:
        if each["channel_name"] == name:
            return dict(each)
    return {}


def wait_finished(nsqd: Nsqd, topic: str, seconds: float = 60) -> None:
    """Until the bridge has got, and finished, all that there is."""
    for left in ("depth", "in_flight_count"):
        wait_for(lambda left=left: channel(nsqd, topic)[left] == 0, f"its {left} is 0", seconds)  # type: ignore[misc]


def wait_committed(kafka: Kafka, topic: str, count: int, seconds: float = 60) -> None:
    """Until the group of the topic's name has committed so many records."""
    wait_for(lambda: kafka.committed(topic, topic) == count, f"{count} are committed", seconds)


def read(nsqd: Nsqd, topic: str, count: int, name: str = "reader") -> list[bytes]:
    """So many messages of a channel, one connection, in order of delivery."""
    with V2(nsqd.tcp) as reader:
        reader.identify(client_id="reader")
        reader.subscribe(topic, name, ready=2000)
        return [reader.message().body for _ in range(count)]


@contextmanager
def denied(kafka: Kafka, *rules: tuple[ResourceType, str, AclOperation]) -> Iterator[None]:
    """While it lasts nobody may do that."""
    literal = ResourcePatternType.LITERAL
    for kind, name, operation in rules:
        deny = AclBinding(
            kind, name, literal, "User:ANONYMOUS", "*", operation, AclPermissionType.DENY
        )
        kafka.admin.create_acls([deny])[deny].result(10)
    yield
    for kind, name, _ in rules:
        every = AclBindingFilter(
            kind, name, literal, None, None, AclOperation.ANY, AclPermissionType.ANY
        )
        kafka.admin.delete_acls([every])[every].result(10)
