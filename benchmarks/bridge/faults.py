"""NSQ -> Kafka -> NSQ while everything is killed: what is lost, what comes twice, what is out of
order.

Both nsqds keep their messages on disk, as only that survives kill -9. Two things do not: what nsqd
has read from a topic's file and not written to the channel's yet, and what it has delivered and has
no FIN for. So the last topic is paused until it is read, and the first one is paused, and its
channel emptied, before its nsqd is killed; it takes messages all the while, and what is lost then
nobody has promised to keep.
"""

import http.client
import json
import random
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

from benchmarks.harness.nsqd import ask, depth, drain
from benchmarks.harness.world import start, until, write_toml
from srtm.deploy.programs import find_program
from srtm.http.client import request
from srtm.kafka.server import KafkaServer, create_topic
from srtm.text.address import free_addresses
from srtm.text.errors import UnavailableError

_EVERY_SECONDS = 3.0
_KAFKA_EVERY_SECONDS = 10.0
_RATE = 2000  # messages/s
_BATCH = 50
_KEYS = 10
_PARTITIONS = 3
_SETTLE_SECONDS = 90.0
_MSG_TIMEOUT_SECONDS = 3  # what a killed bridge held comes again
_EMPTY_SECONDS = 8.0
_QUIET_SECONDS = 5.0
_FIRST = "first nsqd"


@dataclass(frozen=True)
class Outcome:
    """Messages: acknowledged to their publisher; of them not in Kafka, not back in NSQ; copies
    beyond the first in both; pairs of one key that NSQ has in another order than Kafka."""

    acknowledged: int
    lost_in_kafka: int
    lost_in_nsq: int
    twice_in_kafka: int
    twice_in_nsq: int
    out_of_order: int
    kills: dict[str, int]


class Faults:
    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._kafka = KafkaServer(folder / "kafka")
        addresses = [str(each) for each in free_addresses(7)]
        self._nsqd, self._nsqd_http, self._gateway, gateway_http, door = addresses[:5]
        self._gateway_http, self._first, self._first_http = gateway_http, *addresses[5:]
        out = {
            "from": "nsq:first/bridge",
            "to": "kafka:middle",
            "key": "/key",
            "nsqd": [self._first],
            "msg-timeout": f"{_MSG_TIMEOUT_SECONDS}s",
        }
        back = {"from": "kafka:middle", "to": "nsq:last", "group": "faults"}
        tables = {
            "bridge": {"http-address": door, "name": "faults"},
            "kafka": {"bootstrap-servers": self._kafka.address},
            "route": [out, back | {"nsqd": [self._gateway]}],
        }
        bridge_file = write_toml(folder / "bridge.toml", tables)
        self._commands = {
            _FIRST: _nsqd(self._first, self._first_http, folder / "first"),
            "nsqd": _nsqd(self._nsqd, self._nsqd_http, folder / "last"),
            "gateway": [
                *(sys.executable, "-m", "srtm", "gateway"),
                f"--tcp-address={self._gateway}",
                f"--http-address={self._gateway_http}",
                f"--nsqd-tcp-address={self._nsqd}",
                f"--nsqd-http-address={self._nsqd_http}",
                f"--admin-socket={folder / 'admin.sock'}",
                "--broadcast-address=127.0.0.1",
            ],
            "bridge": [sys.executable, "-m", "srtm", "bridge", "run", str(bridge_file)],
        }
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._acknowledged: list[int] = []
        self._over = threading.Event()
        self.kills = dict.fromkeys((*self._commands, "kafka"), 0)

    def run(self, seconds: float, seed: int = 1) -> Outcome:
        """Raises UnavailableError where it does not come to rest."""
        dice = random.Random(seed)
        victims: list[str] = []
        try:
            self._begin()
            sender = threading.Thread(target=self._publish)
            sender.start()
            until = time.monotonic() + seconds
            kafka_at = time.monotonic() + _KAFKA_EVERY_SECONDS
            while time.monotonic() < until:
                time.sleep(_EVERY_SECONDS)
                if not victims:  # each of them in turn, in an order of chance
                    victims = dice.sample(list(self._commands), len(self._commands))
                victim = victims.pop()
                if victim != _FIRST or self._empty_first():
                    self._kill(victim)
                if victim == _FIRST:
                    self._wake_first()
                if time.monotonic() > kafka_at:
                    kafka_at += _KAFKA_EVERY_SECONDS
                    self._kafka.kill()
                    self._kafka.start(wait=False)
                    self.kills["kafka"] += 1
                self._revive()
            self._over.set()
            sender.join()
            self._kafka.wait_ready()
            self._settle()
            return self._judge()
        finally:
            self._over.set()
            for process in self._running.values():
                process.kill()
                process.wait()
            self._kafka.kill()

    def _begin(self) -> None:
        self._kafka.start()
        create_topic(self._kafka.address, "middle", _PARTITIONS)
        for name, address, topic, channel in (
            (_FIRST, self._first_http, "first", "bridge"),
            ("nsqd", self._nsqd_http, "last", "reader"),
        ):
            self._start(name)
            _wait(address)
            ask(address, "create", topic, channel)
        ask(self._nsqd_http, "pause", "last")
        self._start("gateway")
        _wait(self._gateway_http)
        self._start("bridge")

    def _start(self, name: str) -> None:
        self._running[name] = start(self._commands[name], self._folder / f"{name}.log")

    def _kill(self, name: str) -> None:
        self._running[name].kill()
        self._running[name].wait()
        self._start(name)
        self.kills[name] += 1

    def _revive(self) -> None:
        """Start what has ended by itself, as a supervisor does: a gateway that finds no nsqd."""
        for name, process in self._running.items():
            if process.poll() is not None:
                self._start(name)

    def _empty_first(self) -> bool:
        """Pause its topic, and wait until its channel has nothing; False when that takes long, as
        Kafka or the bridge are away."""
        ask(self._first_http, "pause", "first")
        try:
            until(lambda: not self._in_channel(), "it is empty", _EMPTY_SECONDS, poll=0.05)
        except UnavailableError:
            return False
        return True

    def _wake_first(self) -> None:
        _wait(self._first_http)
        ask(self._first_http, "unpause", "first")

    def _in_channel(self) -> int:
        """Messages in the first channel."""
        found = depth(self._first_http, "first")
        return found.waiting - found.in_topic

    def _publish(self) -> None:
        """Numbers, in order; one that was not acknowledged may be there all the same."""
        number = 0
        while not self._over.wait(_BATCH / _RATE):
            batch = range(number, number + _BATCH)
            number += _BATCH
            lines = (json.dumps({"key": f"k{n % _KEYS}", "n": n}) for n in batch)
            try:
                body = "\n".join(lines).encode()
                if _post(self._first_http, "/mpub?topic=first", body):
                    self._acknowledged += batch
            except OSError:
                pass

    def _settle(self) -> None:
        """Wait until all that the bridge reads has been read to its end, and stays so for a
        while."""
        until, quiet, known = time.monotonic() + _SETTLE_SECONDS, time.monotonic(), (-1, -1)
        while time.monotonic() - quiet < _MSG_TIMEOUT_SECONDS + 2:
            if time.monotonic() > until:
                raise UnavailableError(
                    f"the bridge does not come to rest: {known[0]} messages left"
                )
            time.sleep(0.3)
            self._revive()
            try:
                now = self._left()
            except (UnavailableError, KafkaException):
                continue
            if now != known or now[0]:
                quiet, known = time.monotonic(), now

    def _left(self) -> tuple[int, int]:
        """Messages that the bridge has not finished; messages that the last nsqd ever got."""
        left = depth(self._first_http, "first").waiting
        left += _uncommitted(self._kafka.address, "middle", _PARTITIONS, "faults")
        return left, depth(self._nsqd_http, "last").received

    # --- the judgement --------------------------------------------------------------------------

    def _judge(self) -> Outcome:
        middle = _numbers_in_kafka(self._kafka.address, "middle", _PARTITIONS)
        ask(self._nsqd_http, "unpause", "last")
        # Read until nothing more comes: after kill -9 nsqd knows no right depth.
        drained = drain(self._nsqd, "last", "reader", _QUIET_SECONDS)
        last = [int(json.loads(body)["n"]) for body, _ in drained]
        sent = set(self._acknowledged)
        in_kafka, in_nsq = list(dict.fromkeys(middle)), list(dict.fromkeys(last))
        place = {n: at for at, n in enumerate(in_nsq)}
        broken = 0
        for key in range(_KEYS):
            places = [place[n] for n in in_kafka if n % _KEYS == key and n in place]
            broken += sum(one > other for one, other in pairwise(places))
        return Outcome(
            len(sent),
            len(sent - set(in_kafka)),
            len(set(in_kafka) - set(in_nsq)),
            len(middle) - len(in_kafka),
            len(last) - len(in_nsq),
            broken,
            self.kills,
        )


def _nsqd(tcp: str, web: str, data: Path) -> list[str]:
    data.mkdir(exist_ok=True)
    return [
        find_program("nsqd"),
        f"--tcp-address={tcp}",
        f"--http-address={web}",
        f"--data-path={data}",
        "--mem-queue-size=0",
        "--broadcast-address=127.0.0.1",
    ]


def _post(address: str, path: str, body: bytes) -> bool:
    connection = http.client.HTTPConnection(address, timeout=10)
    try:
        connection.request("POST", path, body)
        return connection.getresponse().status == 200
    except http.client.HTTPException:
        return False
    finally:
        connection.close()


def _wait(address: str) -> None:
    def answers() -> bool:
        try:
            return request(address, "GET", "/ping").status == 200
        except UnavailableError:
            return False

    until(answers, f"{address} answers", 20, poll=0.05)


def _numbers_in_kafka(address: str, topic: str, partitions: int) -> list[int]:
    """Partition by partition; a key is in one partition only."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "judge", "log_level": 0})
    found = []
    for partition in range(partitions):
        where = TopicPartition(topic, partition, 0)
        _, high = consumer.get_watermark_offsets(where, 10)
        consumer.assign([where])
        at = 0
        while at < high:
            for record in consumer.consume(1000, 0.2):
                if record.error() is None:
                    found.append(int(json.loads(record.value() or b"")["n"]))
                    at = (record.offset() or 0) + 1
    consumer.close()
    return found


def _uncommitted(address: str, topic: str, partitions: int, group: str) -> int:
    """How many offsets of the topic the group has not committed yet. Raises KafkaException where
    Kafka does not answer."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": group, "log_level": 0})
    try:
        places = [TopicPartition(topic, each) for each in range(partitions)]
        left = 0
        for place in consumer.committed(places, timeout=10):
            _, high = consumer.get_watermark_offsets(place, 10)
            left += high - max(place.offset, 0)
        return left
    finally:
        consumer.close()
