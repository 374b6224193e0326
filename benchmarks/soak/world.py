"""A deployment of two brokers by `srtm up`, publishers that never rest, and what became of their
messages: every acknowledged one is stored once, and no more are let in than the contract allows."""

import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil

from benchmarks.harness.nsqd import DURABLE, ask, create_paused, depth, drain
from benchmarks.harness.world import until, write_toml
from distributor.remote import Remote
from srtm.deployment.layout import Layout
from srtm.http.client import Endpoint
from srtm.limits.excess import worst_excess
from srtm.limits.queueing import Floats
from srtm.nsq.blocking import Blocking
from srtm.nsq.commands import pub
from srtm.text.address import free_addresses
from srtm.text.errors import SrtmError, UnavailableError

_ANSWER_SECONDS = 20.0
"""A gateway that is frozen for longer than any fault lasts has lost the connection."""
_PAUSE_SECONDS = 0.05


class Publisher(threading.Thread):
    """One message out at a time, to one gateway, whatever the placement says. A message whose
    answer did not come is not sent again. sent, acknowledged: all its messages, and those of them
    that were answered with OK."""

    def __init__(self, address: str, topic: str, name: str, over: threading.Event) -> None:
        super().__init__(name=name, daemon=True)
        self._address = address
        self._topic = topic.encode()
        self._over = over
        self.sent: set[bytes] = set()
        self.acknowledged: set[bytes] = set()

    def run(self) -> None:
        number = 0
        while not self._over.wait(_PAUSE_SECONDS):
            with (
                contextlib.suppress(UnavailableError),
                Blocking(self._address, {"client_id": "soak"}, 2) as link,
            ):
                link.socket.settimeout(_ANSWER_SECONDS)
                link.identify()
                while not self._over.is_set():
                    body = f"{self.name}-{number}".encode()
                    number += 1
                    self.sent.add(body)
                    link.ask(pub(self._topic, body))
                    self.acknowledged.add(body)


BROKERS = ("b1", "b2")
TOPIC, CHANNEL = "t", "all"
RATE, BURST = 200.0, 20.0
PUBLISHERS = 6
"""of each broker; together they always have more to send than the contract lets in"""
_REGISTERED = 8
"""publishers of the placement, which puts half of them on each broker; nobody sends as they"""
_LEASE_SECONDS = 3
_READY_SECONDS = 60.0
_SETTLE_SECONDS = 15.0
"""after the last fault: a deployment of which all was killed is whole again by then"""
_QUIET_SECONDS = 3.0
_KINDS = ("gateway", "distributor")


Sample = tuple[float, int, int, int]
"""of a process: seconds, RSS bytes, descriptors, threads"""


@dataclass
class Verdict:
    """lost: acknowledged and not stored; unexpected: stored and never sent; excess: messages over
    b + r t in the worst interval, but for those that waited while a process stood still."""

    sent: int = 0
    acknowledged: int = 0
    stored: int = 0
    lost: list[bytes] = field(default_factory=list)
    unexpected: list[bytes] = field(default_factory=list)
    excess: float = 0.0
    worst: tuple[float, float] = (0.0, 0.0)
    """where that interval begins and ends, in seconds since the first message"""
    began_at: float = 0.0
    seconds: float = 0.0
    samples: dict[str, list[Sample]] = field(default_factory=dict)


class World:
    """Started with `with`; everything that it started is ended with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.layout = Layout(folder / "data")
        self.store = self.layout.distributor_store
        self._log = folder / "up.log"
        addresses = free_addresses(7)
        self._tcp = dict(zip(BROKERS, map(str, addresses[:2]), strict=True))
        self._http = dict(zip(BROKERS, map(str, addresses[2:4]), strict=True))
        self.distributor = addresses[4]
        self.remote = Remote(Endpoint(str(self.distributor)))
        self.second_addresses = addresses[5:]
        self._over = threading.Event()
        self._publishers: list[Publisher] = []
        self._stored: dict[bytes, int] = {}
        self._began = time.monotonic()
        self.verdict = Verdict()

    # --- life -----------------------------------------------------------------------------------

    def __enter__(self) -> "World":
        command = [sys.executable, "-m", "srtm", "up", str(self._write_files())]
        with self._log.open("w") as log:
            self._up = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            self._until(self._is_placed, "topic t has a share on each broker")
            for name in BROKERS:
                create_paused(self.nsqd_http(name), TOPIC, CHANNEL)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._up.send_signal(signal.SIGTERM)
        for each in self.children().values():
            with contextlib.suppress(psutil.Error):  # one that has ended meanwhile
                each.resume()  # one that is frozen does not hear it
        try:
            self._up.wait(60)
        except subprocess.TimeoutExpired:
            self._up.kill()

    def publish(self) -> None:
        """Begin to."""
        self._began = time.monotonic()
        for name, address in self._tcp.items():
            for number in range(PUBLISHERS):
                made = Publisher(address, TOPIC, f"{name}-{number}", self._over)
                self._publishers.append(made)
                made.start()

    # --- what faults need -----------------------------------------------------------------------

    def children(self) -> dict[str, psutil.Process]:
        """The processes of the deployment that run, by what they are."""
        found = {}
        try:
            for child in psutil.Process(self._up.pid).children():
                words = child.cmdline()
                kind = next((each for each in _KINDS if each in words), None)
                if kind is None and any("nsqd" in word for word in words[:1]):
                    kind = "nsqd"
                text = " ".join(words)
                broker = next((b for b in BROKERS if f"/{b}/" in text), "")
                if kind is not None:
                    found[f"{kind} {broker}".strip()] = child
        except psutil.Error:
            pass  # one has just ended
        return found

    def nsqd_http(self, broker: str) -> str:
        return str(self.layout.broker(broker).nsqd_http)

    def nsqd_tcp(self, broker: str) -> str:
        return str(self.layout.broker(broker).nsqd_tcp)

    # --- what is measured -----------------------------------------------------------------------

    def sample(self) -> None:
        """Memory, descriptors and threads of each process of ours."""
        now = time.monotonic() - self._began
        for name, child in self.children().items():
            try:
                with child.oneshot():
                    row = now, child.memory_info().rss, child.num_fds(), child.num_threads()
            except psutil.Error:
                continue
            self.verdict.samples.setdefault(name, []).append(row)

    def collect(self) -> None:
        """Take what has been stored so far. A broker that is away is asked the next time; at all
        other times the topic is paused (`create_paused` says why)."""
        for name in BROKERS:
            for change in ("unpause", "pause"):
                with contextlib.suppress(SrtmError):
                    ask(self.nsqd_http(name), change, TOPIC)
                    for body, stamp in drain(self.nsqd_tcp(name), TOPIC, CHANNEL, _QUIET_SECONDS):
                        self._stored.setdefault(body, stamp)

    def judge(self) -> Verdict:
        """The verdict, once the deployment is whole again and nobody publishes any more."""
        time.sleep(_SETTLE_SECONDS)
        self._over.set()
        for each in self._publishers:
            each.join(30)
        self._until(self._emptied, "all that was stored is read")
        verdict = self.verdict
        sent = set().union(*(each.sent for each in self._publishers))
        acknowledged = set().union(*(each.acknowledged for each in self._publishers))
        verdict.sent, verdict.acknowledged = len(sent), len(acknowledged)
        verdict.stored = len(self._stored)
        verdict.lost = sorted(acknowledged - self._stored.keys())
        verdict.unexpected = sorted(self._stored.keys() - sent)
        times = np.sort(np.array(list(self._stored.values()), dtype=float)) / 1e9
        # Each publisher has one message out. While a process stands still these wait, and take the
        # tokens of their own time afterwards.
        verdict.began_at = float(times[0])
        times -= times[0]
        verdict.excess = worst_excess(times, RATE, BURST + 2 * PUBLISHERS)
        verdict.worst = _worst_interval(times)
        verdict.seconds = time.monotonic() - self._began
        return verdict

    def _emptied(self) -> bool:
        self.collect()
        return not any(depth(self.nsqd_http(name), TOPIC).waiting for name in BROKERS)

    # --- inside ---------------------------------------------------------------------------------

    def _write_files(self) -> Path:
        rows = "".join(f"p{n},,25\n" for n in range(_REGISTERED))
        (self.folder / "t.csv").write_text(f"id,key,rate\n{rows}")
        brokers = [
            {
                "name": name,
                "capacity": 120,
                "tcp-address": self._tcp[name],
                "http-address": self._http[name],
                "nsqd-flags": DURABLE,
            }
            for name in BROKERS
        ]
        tables = {
            "deployment": {"data-path": str(self.layout.data_path)},
            "distributor": {
                "http-address": str(self.distributor),
                "lease-duration": f"{_LEASE_SECONDS}s",
            },
            "broker": brokers,
            "topic": [{"name": TOPIC, "rate": RATE, "burst": BURST, "publishers": "t.csv"}],
        }
        return write_toml(self.folder / "soak.toml", tables)

    def _is_placed(self) -> bool:
        """Publishers are sent to a broker once that has acknowledged its share."""
        places = [
            self.remote.call("GET", "topics", TOPIC, "publishers", f"p{number}")["broker"]
            for number in range(_REGISTERED)
        ]
        return set(places) == set(BROKERS)

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        def holds() -> bool:
            try:
                return condition()
            except SrtmError:
                return False

        def told() -> str:
            return f"{what}; srtm up said: {self._log.read_text()[-2000:]}"

        until(holds, told, _READY_SECONDS, poll=0.2)


def _worst_interval(times: Floats) -> tuple[float, float]:
    """The one that `worst_excess` measures."""
    before = np.arange(times.size) - RATE * times
    least = np.minimum.accumulate(before)
    end = int(np.argmax(before - least))
    return float(times[int(np.argmin(before[: end + 1]))]), float(times[end])
