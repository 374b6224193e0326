"""The servers of the benchmark, and one trial of each program."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from confluent_kafka import Consumer, TopicPartition

from benchmarks.bridge.programs import publish
from benchmarks.harness.arms import Node, nodes
from benchmarks.harness.machine import cpu_seconds
from benchmarks.harness.nsqd import depth
from benchmarks.harness.session import Session
from benchmarks.harness.world import child, until, write_toml
from srtm.kafka.server import KafkaServer, create_topic
from srtm.text.address import free_addresses
from srtm.text.errors import UnavailableError

PARTITIONS = 4
_TRIAL_SECONDS = 60.0


@dataclass(frozen=True)
class Rate:
    """messages/s, and CPU microseconds a message by process."""

    per_second: float
    cpu_us: dict[str, float]


class World:
    """plain: an nsqd alone, for what comes from NSQ; gateway: one behind a gateway, to go to."""

    def __init__(self, folder: Path, kafka: KafkaServer, plain: Node, gateway: Node) -> None:
        self.folder = folder
        self.kafka = kafka
        self.plain = plain
        self.gateway = gateway
        self._consumer = Consumer(
            {"bootstrap.servers": kafka.address, "group.id": "count", "log_level": 0}
        )

    def topic(self, name: str) -> None:
        create_topic(self.kafka.address, name, PARTITIONS)

        def is_known() -> bool:
            found = self._consumer.list_topics(timeout=5).topics.get(name)
            return found is not None and len(found.partitions) == PARTITIONS

        until(is_known, f"Kafka has topic {name}", 10, poll=0.02)

    def records(self, topic: str) -> int:
        marks: list[tuple[int, int]] = [
            self._consumer.get_watermark_offsets(TopicPartition(topic, each), 10)
            for each in range(PARTITIONS)
        ]
        return sum(high for _, high in marks)

    def fill(self, topic: str, channels: list[str], count: int, size: int) -> None:
        """Messages in nsqd, in each channel."""
        for channel in channels:
            self.plain.create(topic, channel)
        publish(self.plain.nsqd_tcp, topic, count, size)

    def finished(self, topic: str, channel: str, count: int) -> int:
        """How many of `count` messages of a channel are finished."""
        return count - depth(self.plain.nsqd_http, topic, channel).waiting

    def published(self, topic: str) -> int:
        return self.gateway.depth(topic).received

    def trial(self, command: list[str], progress: Callable[[], int], count: int) -> Rate:
        """The rate of one trial, from its first progress to the end. Raises UnavailableError."""
        watched = {"nsqd": self.plain.pids["nsqd"], "kafka": self.kafka.pid}
        watched |= {f"gateway's {name}": pid for name, pid in self.gateway.pids.items()}
        log = self.folder / "trial.log"
        with child(command, log) as process:
            watched["program"] = process.pid
            last = time.monotonic() + _TRIAL_SECONDS
            while not (first := progress()):
                if time.monotonic() > last or process.poll() is not None:
                    raise UnavailableError(f"{command} does not begin; see {log}")
                time.sleep(0.002)
            began, before = time.monotonic(), _cpu(watched)
            while (now := progress()) < count:
                if time.monotonic() > last:
                    raise UnavailableError(f"{command} stands at {now} of {count}")
                time.sleep(0.02)
            seconds, after = time.monotonic() - began, _cpu(watched)
        done = max(count - first, 1)
        spent = {name: (after[name] - before[name]) / done * 1e6 for name in watched}
        return Rate(done / seconds, spent)

    def bridge_file(self, name: str, route: Mapping[str, object]) -> list[str]:
        """The command of a bridge with one route."""
        tables = {
            "bridge": {"http-address": str(free_addresses(1)[0]), "name": name},
            "kafka": {"bootstrap-servers": self.kafka.address},
            "route": [route],
        }
        file = write_toml(self.folder / f"{name}.toml", tables)
        return [sys.executable, "-m", "srtm", "bridge", "run", str(file)]


def _cpu(watched: Mapping[str, int]) -> dict[str, float]:
    return {name: cpu_seconds(psutil.Process(pid)) for name, pid in watched.items()}


@contextmanager
def world(session: Session) -> Iterator[World]:
    """Raises SrtmError."""
    kafka = KafkaServer(session.folder / "kafka", quick_to_start=False)
    try:
        kafka.start()
        with nodes(session.folder, {"plain": None, "gateway": []}) as made:
            yield World(session.folder, kafka, made["plain"], made["gateway"])
    finally:
        kafka.kill()
