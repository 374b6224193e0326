"""A real Kafka 4.3 as one KRaft node on free ports: for the demo, benchmarks and tests."""

import base64
import os
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from srtm.text.address import Address, free_addresses
from srtm.text.errors import UnavailableError

JARS = Path(__file__).parents[2] / ".setup" / "kafka"
"""where `make setup` puts them"""
_READY_SECONDS = 60.0
_JAVA = ("-Xmx400m", "-XX:+UseSerialGC")
_QUICK_JAVA = "-XX:TieredStopAtLevel=1"
"""The first compiler alone: up in half of the time, for servers that live for a minute."""
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "500",
    "log.segment.delete.delay.ms": "100",
    # After kill -9 it delivers again in 6 s instead of 14; less would fence it on a busy machine.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "200",
    # Tests refuse a topic by an ACL; nobody has one otherwise.
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


def missing() -> str:
    """What is needed and not there, with its remedy; "" where all is."""
    if shutil.which("java") is None:
        return "java is not installed: install a JRE (17 or newer) for Kafka"
    if not any(JARS.glob("kafka_*.jar")):
        return "Kafka's jars are not there: install Maven and run make setup"
    return ""


class KafkaServer:
    """Its data stay in `folder` when it is killed, and it comes back on the same port.

    quick_to_start: and slow at work.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        quick_to_start: bool = True,
    ) -> None:
        """Raises UnavailableError where Java or the jars are missing."""
        if missing():
            raise UnavailableError(missing())
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "kafka.log"
        self._file = folder / "kafka.properties"
        self._flags = [_QUICK_JAVA] if quick_to_start else []
        address, controller = map(str, free_addresses(2))
        self.address = address
        self._popen: subprocess.Popen[bytes] | None = None
        values = _SETTINGS | {
            "listeners": f"PLAINTEXT://{address},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{address},CONTROLLER://{controller}",
            "controller.quorum.bootstrap.servers": controller,
            "log.dirs": str(folder / "data"),
        }
        values |= settings or {}
        self._file.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        tool = ["kafka.tools.StorageTool", "format", "--standalone", "-t", _cluster_id()]
        with self.log.open("ab") as log:
            subprocess.run(
                _java(_QUICK_JAVA, *tool, "-c", str(self._file)),
                stdout=log,
                stderr=log,
                check=True,
                timeout=60,
            )

    def start(self, wait: bool = True, **settings: str) -> None:
        """Raises UnavailableError with the end of its log. settings: of this start alone; an
        underscore in a name is a dot"""
        own = [f"{name.replace('_', '.')}={value}" for name, value in settings.items()]
        overrides = [word for each in own for word in ("--override", each)]
        with self.log.open("ab") as log:
            self._popen = subprocess.Popen(
                _java(*self._flags, "kafka.Kafka", str(self._file), *overrides),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while time.monotonic() < deadline and self.alive:
            with suppress(OSError), socket.create_connection(Address.of(self.address), 1):
                return
            time.sleep(0.05)
        raise UnavailableError(f"Kafka does not start: {self.log.read_text()[-500:]}")

    @property
    def alive(self) -> bool:
        return self._popen is not None and self._popen.poll() is None

    @property
    def pid(self) -> int:
        assert self._popen is not None
        return self._popen.pid

    def signal(self, number: signal.Signals) -> None:
        if self._popen is not None:
            self._popen.send_signal(number)

    def kill(self) -> None:
        """Kill the server at once; its data stay."""
        if self._popen is not None:
            with suppress(ProcessLookupError):
                self._popen.kill()
            self._popen.wait(10)


@contextmanager
def kafka(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[KafkaServer]:
    """One that is ready, ended with the block. Raises UnavailableError."""
    server = KafkaServer(folder, settings)
    try:
        server.start()
        yield server
    finally:
        server.kill()


def create_topic(address: str, topic: str, partitions: int = 1) -> None:
    """Create a topic of one replica. Raises UnavailableError."""
    from confluent_kafka import KafkaException  # an extra
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    try:
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(20)
    except KafkaException as error:
        raise UnavailableError(f"Kafka makes no topic: {error.args[0].str()}") from None


def _java(*arguments: str) -> list[str]:
    return ["java", *_JAVA, "-cp", f"{JARS}{os.sep}*", *arguments]


def _cluster_id() -> str:
    """22 characters; the format tool takes one that begins with `-` for a flag."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
