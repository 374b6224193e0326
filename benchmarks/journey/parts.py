"""The parts of one arm: a topic with its contract, perhaps a bridge, consumers and controller."""

import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.harness.arms import Node
from benchmarks.harness.world import child, until, write_toml
from benchmarks.journey.shapes import MU
from srtm.http.client import get_json
from srtm.journey.causes import Leg
from srtm.kafka.server import create_topic
from srtm.limits.contract import Contract
from srtm.limits.slo import SLO
from srtm.text.errors import UnavailableError

LEAST, MOST = 2, 12
"""consumers of an arm; a Kafka topic has as many partitions as there may be consumers"""
_LEASE = "10s"
"""of a group: its members tell of themselves less often, and cost less CPU"""
_CONTRACT = (200.0, 200.0)
"""(r, b): nothing waits in the bucket"""
_BEGIN_SECONDS, _END_SECONDS = 60.0, 15.0
_SRTM = (sys.executable, "-m", "srtm")
_WORK = f"""
import os, time
from pathlib import Path

OUT = os.open(Path(__file__).parent / "ages.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def handle(records):
    time.sleep(len(records) / {MU})
    return [record.value.decode() for record in records]


def keep(sent, batch):
    now = time.time_ns()
    os.write(OUT, "".join(f"{{each}} {{now}}\\n" for each in sent).encode())
"""


class Parts:
    """Within a `with` block. kafka: its address, or "" for a pool; journeys: address of `srtm
    journey run`; controller, bridge: addresses to be theirs"""

    def __init__(
        self,
        folder: Path,
        node: Node,
        topic: str,
        kafka: str,
        journeys: str,
        controller: str,
        bridge: str,
    ) -> None:
        folder.mkdir()
        (folder / "work.py").write_text(_WORK)
        self.topic = topic
        self._folder, self._node, self._kafka = folder, node, kafka
        self._journeys, self._controller, self._bridge = journeys, controller, bridge
        self._channel = "bridge" if kafka else "handlers"
        self._file = folder / "consumers.toml"
        self._running = ExitStack()

    def __enter__(self) -> "Parts":
        self._node.create(self.topic, self._channel)
        if self._kafka:
            create_topic(self._kafka, self.topic, MOST)
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()
        stop = (*_SRTM, "autoscale", "stop", str(self._file))
        subprocess.run(stop, capture_output=True, timeout=_BEGIN_SECONDS, check=False)

    @property
    def journey(self) -> dict[str, Any]:
        """Its row of `journeys.toml`, but for the SLO, in the folder above."""
        found = {"topic": self.topic, "consumers": f"{self._folder.name}/{self._file.name}"}
        if self._kafka:
            found["bridge"] = f"{self._folder.name}/bridge.toml"
        return found | {"nsqd-http": [self._node.gateway_http]}

    def write(self, slos: Mapping[Leg, SLO]) -> None:
        """The files and the contract, with these SLOs."""
        rate, burst = _CONTRACT
        contract = Contract(topic=self.topic, rate=rate, burst=burst, slo=slos[Leg.BROKER])
        self._node.limit(contract)
        if self._kafka:
            write_toml(self._folder / "bridge.toml", self._bridge_tables(slos[Leg.BRIDGE]))
        write_toml(self._file, self._tables(slos[Leg.CONSUMER]))

    def begin(self) -> None:
        """Start bridge and controller."""
        log = self._folder / "parts.log"
        if self._kafka:
            run = (*_SRTM, "bridge", "run", str(self._folder / "bridge.toml"))
            self._running.enter_context(child(run, log, _END_SECONDS))
        run = (*_SRTM, "autoscale", "run", str(self._file))
        self._running.enter_context(child(run, log, _END_SECONDS))

    def wait(self) -> None:
        """Until the least number of consumers is there."""
        until(
            lambda: self._stats().get("consumers", 0) >= LEAST,
            lambda: f"consumers: {(self._folder / 'parts.log').read_text()[-500:]}",
            _BEGIN_SECONDS,
        )

    def replica_seconds(self) -> float:
        """What its consumers took since the controller began. Raises UnavailableError."""
        found = get_json(self._controller, "/stats", timeout_seconds=_BEGIN_SECONDS)
        return float(found["replica_seconds"])

    def startup_seconds(self) -> float | None:
        """From a consumer's launch to its work, as its controller has learnt."""
        if self._kafka:
            found = get_json(self._controller, "/stats", timeout_seconds=_BEGIN_SECONDS)
            return float(found["startup_seconds"])
        startup = json.loads((self._folder / "consumers.state.json").read_text())["startup"]
        return None if startup is None else float(startup)

    def ages(self) -> dict[int, int]:
        """When a message was done for the first time, by when it was sent: ns since 1970."""
        file = self._folder / "ages.txt"
        found = dict[int, int]()
        for line in file.read_text().splitlines() if file.exists() else ():
            sent, done = map(int, line.split())
            found[sent] = min(done, found.get(sent, done))
        return found

    def _stats(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = get_json(self._controller, "/stats")
        except UnavailableError:
            return {}
        return found

    def _bridge_tables(self, slo: SLO) -> dict[str, Any]:
        route = {
            "from": f"nsq:{self.topic}/{self._channel}",
            "to": f"kafka:{self.topic}",
            "nsqd": [self._node.gateway_tcp],
            "slo": str(slo),
        }
        return {
            "bridge": {"http-address": self._bridge, "name": self.topic},
            "kafka": {"bootstrap-servers": self._kafka},
            "route": [route],
        }

    def _tables(self, slo: SLO) -> dict[str, Any]:
        group: dict[str, Any] = {"slo": str(slo), "min": LEAST, "max": MOST, "mu": MU}
        if self._kafka:
            source: dict[str, Any] = {"kafka": {"bootstrap-servers": self._kafka}}
            group |= {"topic": self.topic, "id": self.topic, "lease": _LEASE}
        else:
            nsq = {
                "topic": self.topic,
                "channel": self._channel,
                "nsqd": [self._node.gateway_tcp],
                "nsqd-http": [self._node.gateway_http],
            }
            source = {"nsq": nsq}
        return {
            **source,
            "group": group,
            "consumer": {
                "process": "work:handle",
                "sink": "callback",
                "callback": "work:keep",
                "batch": 1,
                "wait": "1ms",
                "journey-address": self._journeys,
            },
            "executor": {"log-folder": "logs"},
            "controller": {"http-address": self._controller},
        }
