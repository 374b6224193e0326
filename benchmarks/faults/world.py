"""A testbed of four netns hosts: two brokers, the distributor, and publishers; and what is left of
their messages."""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness.nsqd import DURABLE, ask, create_paused, depth, drain
from benchmarks.harness.world import until, write_toml
from distributor.remote import Remote
from srtm.audit.folder import read_sessions
from srtm.audit.judge import Audit, judge
from srtm.deployment.layout import Layout
from srtm.host.certificates import PLAIN_TEXT
from srtm.http.nsqd import stats
from srtm.http.service import ClientFiles, service_at
from srtm.testbed import Testbed, Unit, open_testbed
from srtm.testbed.host import Host
from srtm.text.errors import SrtmError

BROKERS = {"b1": "h1", "b2": "h2"}
TOPICS = ("steady", "pressed")
CHANNEL = "all"
PUBLISHERS, STEADY_RATE = 4, 20.0
"""of each broker and kind; messages/s of a steady one: 160 in all"""
STEADY = 400.0, 40.0
PRESSED = 200.0, 20.0
"""(r, b): steady publishers keep well within, the others would send far more"""
LEASE_SECONDS = 3
_READY_SECONDS = 90.0
_QUIET_SECONDS = 3.0
_IDLE_ROUNDS = 10
_PUBLISHERS = "publishers"


class World:
    """Started with `with`; all of it is taken down in the end."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "faults.toml"
        self._out = folder / "messages.json"
        self._write()
        self.testbed: Testbed = open_testbed(self._file)

    def __enter__(self) -> "World":
        try:
            self.testbed.up(lambda host, line: None)
            self.testbed = open_testbed(self._file)
            self._place()
            self._await_limits()
            for broker in BROKERS:
                for topic in TOPICS:
                    create_paused(self._nsqd_http(broker), topic, CHANNEL)
            self._publish()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.testbed.down(lambda host, line: None, purge=True)

    def pause(self, topic: str, broker: str, *, paused: bool) -> None:
        """Pause the topic, or let it go on (`create_paused` says what for)."""
        ask(self._nsqd_http(broker), "pause" if paused else "unpause", topic)

    def end_publishing(self) -> dict[str, list[tuple[str, int, bool, int]]]:
        """What the publishers say of each message, by topic."""
        self._load.stop(_PUBLISHERS, 30.0)
        document: dict[str, Any] = json.loads(self._out.read_text())
        return {
            topic: [(str(body), int(at), bool(sent), int(ok)) for body, at, sent, ok in rows]
            for topic, rows in document.items()
        }

    def stored(self, topic: str) -> set[str]:
        """All that the nsqds have of a topic, once nobody publishes any more."""
        found: set[str] = set()
        for broker in BROKERS:
            self.pause(topic, broker, paused=False)
            idle = 0
            while depth(self._nsqd_http(broker), topic, CHANNEL).waiting:
                nsqd_tcp = str(self._layout(broker).nsqd_tcp)
                bodies = [body for body, _ in drain(nsqd_tcp, topic, CHANNEL, _QUIET_SECONDS)]
                found |= {body.decode("ascii", "replace") for body in bodies}
                idle = 0 if bodies else idle + 1
                if idle == _IDLE_ROUNDS:
                    raise SrtmError(f"{broker} does not give out what it has of {topic}")
        return found

    def audit(self, topic: str) -> Audit:
        """One machine, one clock."""
        folders = [self._data_path(each) / "log" for each in BROKERS]
        return judge(topic, read_sessions(folders, topic), None, 0)

    # --- inside ---------------------------------------------------------------------------------

    def _write(self) -> None:
        topics = []
        for topic, (rate, burst) in zip(TOPICS, (STEADY, PRESSED), strict=True):
            name = f"{topic}.csv"
            rows = "".join(f"{topic}{n},,{rate / 16:g}\n" for n in range(8))
            (self._file.parent / name).write_text(f"id,key,rate\n{rows}")
            topics.append({"name": topic, "rate": rate, "burst": burst, "publishers": name})
        broker = {"capacity": 1000, "admission-log": "log", "nsqd-flags": DURABLE}
        tables = {
            "deployment": {"name": "faults", "data-path": "d"},
            "host": [{"name": each, "kind": "netns", "disk": "256m"} for each in ("h1", "h2")]
            + [{"name": each, "kind": "netns"} for each in ("h3", "h4")],
            "lookupd": {"host": "h3"},
            "distributor": {"host": "h3", "lease-duration": f"{LEASE_SECONDS}s"},
            "load": [{"host": "h4"}],
            "broker": [{"name": name, "host": host, **broker} for name, host in BROKERS.items()],
            "topic": topics,
        }
        write_toml(self._file, tables)

    def _place(self) -> None:
        """Place each topic on both brokers, although one could carry it alone."""
        inventory = self.testbed.inventory
        address, token_file = inventory.distributor_address, inventory.token_file
        assert address is not None
        files = ClientFiles(str(token_file or ""), PLAIN_TEXT)
        remote = Remote(service_at(str(address), files, "token"))

        def is_placed(topic: str) -> bool:
            placed = remote.call("POST", "topics", topic, "placements", body={"policy": "lb"})
            return {each["name"] for each in placed["brokers"]} == set(BROKERS)

        for topic in TOPICS:
            until(partial(is_placed, topic), f"{topic} is placed on both brokers", _READY_SECONDS)

    def _await_limits(self) -> None:
        """A gateway that has not heard of a placement yet lets everything in."""
        inventory = self.testbed.inventory
        for broker in inventory.plan.brokers:
            address = str(inventory.broker_http_address(broker))
            for topic in TOPICS:
                limited = partial(_is_limited, address, topic)
                until(limited, f"{broker.name} has a limit of {topic}", _READY_SECONDS)

    def _publish(self) -> None:
        brokers = self.testbed.inventory.plan.brokers
        addresses = [str(self.testbed.inventory.broker_address(each)) for each in brokers]
        command = [
            *(sys.executable, "-m", "benchmarks.faults.publishers", f"--out={self._out}"),
            *(f"--publishers={PUBLISHERS}", f"--rate={STEADY_RATE}", *addresses),
        ]
        root = str(Path(__file__).parents[2])
        load = self._load
        load.start(Unit(_PUBLISHERS, command, {"PYTHONPATH": root}))
        until(
            lambda: "publishes" in load.log(_PUBLISHERS, 5),
            lambda: f"the publishers publish: {load.log(_PUBLISHERS, 5)}",
            _READY_SECONDS,
        )

    @property
    def _load(self) -> Host:
        return self.testbed.hosts["h4"]

    def _data_path(self, broker: str) -> Path:
        return Path(self.testbed.hosts[BROKERS[broker]].table.data_path)

    def _layout(self, broker: str) -> Any:
        return Layout(self._data_path(broker)).broker(broker)

    def _nsqd_http(self, broker: str) -> str:
        return str(self._layout(broker).nsqd_http)


def _is_limited(gateway: str, topic: str) -> bool:
    return any("rate" in each for each in stats(gateway, topic)["srtm"]["topics"])
