"""A testbed of four netns hosts: two brokers, the distributor, and publishers; and what is left of
their messages."""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.faults.judged import Row
from benchmarks.soak.traffic import drain
from distributor.remote import Remote
from srtm.audit.folder import read_sessions
from srtm.audit.judge import Audit, judge
from srtm.deployment.layout import Layout
from srtm.host.clock import NS
from srtm.http.bearer import read_token
from srtm.http.client import request
from srtm.http.nsqd import stats
from srtm.testbed import Testbed, Unit, open_testbed
from srtm.testbed.host import Host
from srtm.text.errors import SrtmError, UnavailableError

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
_POLL_SECONDS = 0.1
_PUBLISHERS = "publishers"
_INVENTORY = """
[deployment]
name = "faults"
data-path = "d"
[[host]]
name = "h1"
kind = "netns"
disk = "256m"
[[host]]
name = "h2"
kind = "netns"
disk = "256m"
[[host]]
name = "h3"
kind = "netns"
[[host]]
name = "h4"
kind = "netns"
[lookupd]
host = "h3"
[distributor]
host = "h3"
lease-duration = "{lease}s"
[[load]]
host = "h4"
"""


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
                    self._ask_nsqd(broker, f"/topic/create?topic={topic}")
                    self._ask_nsqd(broker, f"/topic/pause?topic={topic}")
                    self._ask_nsqd(broker, f"/channel/create?topic={topic}&channel={CHANNEL}")
            self._publish()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.testbed.down(lambda host, line: None, purge=True)

    def pause(self, topic: str, broker: str, *, paused: bool) -> None:
        """A paused topic keeps its messages: nsqd reads one from the topic's file before it writes
        it into the channel's, and an nsqd that is killed in between loses it."""
        self._ask_nsqd(broker, f"/topic/{'pause' if paused else 'unpause'}?topic={topic}")

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
            path = str(self._layout(broker).nsqd_tcp)
            idle = 0
            while self._depth(broker, topic):
                bodies = drain(path, topic, CHANNEL, _QUIET_SECONDS)
                found |= {body.decode("ascii", "replace") for body in bodies}
                idle = 0 if bodies else idle + 1
                if idle == _IDLE_ROUNDS:
                    raise SrtmError(f"{broker} does not give out what it has of {topic}")
        return found

    def audit(self, topic: str) -> Audit:
        """One machine, one clock."""
        folders = [Path(self._host(each).table.data_path, "log") for each in BROKERS]
        return judge(topic, read_sessions(folders, topic), None, 0)

    # --- inside ---------------------------------------------------------------------------------

    def _write(self) -> None:
        text = _INVENTORY.format(lease=LEASE_SECONDS)
        for broker, host in BROKERS.items():
            text += (
                f'[[broker]]\nname = "{broker}"\nhost = "{host}"\ncapacity = 1000\n'
                'admission-log = "log"\n'
                # What nsqd has acknowledged survives its death: else a lost message says nothing.
                'nsqd-flags = ["--mem-queue-size=0", "--sync-every=1"]\n'
            )
        for topic, (rate, burst) in zip(TOPICS, (STEADY, PRESSED), strict=True):
            name = f"{topic}.csv"
            rows = "".join(f"{topic}{n},,{rate / 16:g}\n" for n in range(8))
            (self._file.parent / name).write_text(f"id,key,rate\n{rows}")
            text += f'[[topic]]\nname = "{topic}"\nrate = {rate}\nburst = {burst}\n'
            text += f'publishers = "{name}"\n'
        self._file.write_text(text)

    def _place(self) -> None:
        """Place each topic on both brokers, although one could carry it alone."""
        inventory = self.testbed.inventory
        address, token_file = inventory.distributor_address, inventory.token_file
        assert address is not None
        remote = Remote(address, read_token(str(token_file or ""), "token"))
        deadline = time.monotonic() + _READY_SECONDS
        for topic in TOPICS:
            while True:
                placed = remote.call("POST", "topics", topic, "placements", body={"policy": "lb"})
                if {each["name"] for each in placed["brokers"]} == set(BROKERS):
                    break
                if time.monotonic() > deadline:
                    raise UnavailableError(f"{topic} was not placed on both brokers: {placed}")
                time.sleep(_POLL_SECONDS)

    def _await_limits(self) -> None:
        """A gateway that has not heard of a placement yet lets everything in."""
        inventory = self.testbed.inventory
        deadline = time.monotonic() + _READY_SECONDS
        for broker in inventory.plan.brokers:
            address = str(inventory.broker_http_address(broker))
            for topic in TOPICS:
                while not _is_limited(address, topic):
                    if time.monotonic() > deadline:
                        raise UnavailableError(f"{broker.name} was given no limit of {topic}")
                    time.sleep(_POLL_SECONDS)

    def _publish(self) -> None:
        brokers = self.testbed.inventory.plan.brokers
        addresses = [str(self.testbed.inventory.broker_address(each)) for each in brokers]
        command = [
            *(sys.executable, "-m", "benchmarks.faults.publishers", f"--out={self._out}"),
            *(f"--publishers={PUBLISHERS}", f"--rate={STEADY_RATE}", *addresses),
        ]
        root = str(Path(__file__).parents[2])
        self._load.start(Unit(_PUBLISHERS, command, {"PYTHONPATH": root}))
        deadline = time.monotonic() + _READY_SECONDS
        while "publishes" not in self._load.log(_PUBLISHERS, 5):
            if time.monotonic() > deadline:
                raise UnavailableError(f"publishers: {self._load.log(_PUBLISHERS, 5)}")
            time.sleep(_POLL_SECONDS)

    @property
    def _load(self) -> Host:
        return self._host_named("h4")

    def _host(self, broker: str) -> Host:
        return self._host_named(BROKERS[broker])

    def _host_named(self, name: str) -> Host:
        return self.testbed.hosts[name]

    def _path(self, host: str) -> str:
        return self._host_named(host).table.data_path

    def _layout(self, broker: str) -> Any:
        return Layout(Path(self._path(BROKERS[broker]))).broker(broker)

    def _depth(self, broker: str, topic: str) -> int:
        path = str(self._layout(broker).nsqd_http)
        found = 0
        for row in stats(path, topic)["topics"]:
            channels = [each for each in row["channels"] if each["channel_name"] == CHANNEL]
            found += row["depth"] + sum(each["depth"] for each in channels)
        return found

    def _ask_nsqd(self, broker: str, target: str) -> None:
        request(str(self._layout(broker).nsqd_http), "POST", target)


def _is_limited(gateway: str, topic: str) -> bool:
    return any("rate" in each for each in stats(gateway, topic)["srtm"]["topics"])


def rows_of(messages: Sequence[tuple[str, int, bool, int]]) -> list[Row]:
    """The rows of steady messages, in seconds of the monotonic clock."""
    return [Row(at / NS, (ok - at) / NS if ok else None) for _, at, _, ok in messages]
