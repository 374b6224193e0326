"""A deployment of two brokers by `srtm up`, publishers that never rest, and what became of their
messages: every acknowledged one is stored once, and no more are let in than the contract allows."""

import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.soak.traffic import Publisher, drain
from srtm.deployment.layout import Layout
from srtm.http.client import request
from srtm.http.nsqd import stats
from srtm.limits.excess import worst_excess
from srtm.limits.queueing import Floats
from srtm.text.errors import SrtmError

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
    samples: dict[str, list[tuple[float, int, int, int]]] = field(default_factory=dict)
    """kind -> (seconds, RSS bytes, descriptors, threads)"""


class World:
    """Started with `with`; everything that it started is ended with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.layout = Layout(folder / "data")
        self.store = self.layout.distributor_store
        ports = _free_ports(7)
        self._tcp = dict(zip(BROKERS, ports[:2], strict=True))
        self._http = dict(zip(BROKERS, ports[2:4], strict=True))
        self.distributor = f"127.0.0.1:{ports[4]}"
        self.second_ports = ports[5], ports[6]
        self._over = threading.Event()
        self._publishers: list[Publisher] = []
        self._stored: dict[bytes, int] = {}
        self._began = time.monotonic()
        self.verdict = Verdict()

    # --- life -----------------------------------------------------------------------------------

    def __enter__(self) -> "World":
        file = self._write_files()
        self._log = (self.folder / "up.log").open("w")
        self._up = subprocess.Popen(
            [sys.executable, "-m", "srtm", "up", str(file)],
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )
        try:
            self._until(self._is_placed, "topic t has a share on each broker")
            for name in BROKERS:
                self._make_channel(name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._up.send_signal(signal.SIGTERM)
        for each in self.children().values():
            each.resume()  # one that is frozen does not hear it
        try:
            self._up.wait(60)
        except subprocess.TimeoutExpired:
            self._up.kill()
        self._log.close()

    def publish(self) -> None:
        """Begin to."""
        self._began = time.monotonic()
        for name, port in self._tcp.items():
            for number in range(PUBLISHERS):
                made = Publisher(f"127.0.0.1:{port}", TOPIC, f"{name}-{number}", self._over)
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

    def nsqd_flags(self, broker: str) -> list[str]:
        layout = self.layout.broker(broker)
        return [
            f"--nsqd-tcp-address={layout.nsqd_tcp}",
            f"--nsqd-http-address={layout.nsqd_http}",
        ]

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """The distributor. Raises OSError, SrtmError."""
        connection = HTTPConnection(self.distributor, timeout=5)
        try:
            connection.request(method, f"/v1{path}", json.dumps(body))
            answer = connection.getresponse()
            document = json.loads(answer.read())
        except (HTTPException, ValueError) as error:
            raise SrtmError(f"the distributor answers {error!r}") from None
        finally:
            connection.close()
        if answer.status != 200:
            raise SrtmError(str(document.get("error")))
        return document

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
        """Take what has been stored so far. A broker that is away is asked the next time.

        At all other times the topic is paused: nsqd reads a message from the topic's file before
        it writes it into the channel's, and one that is killed in between loses it."""
        for name in BROKERS:
            path = str(self.layout.broker(name).nsqd_tcp)
            for change in ("unpause", "pause"):
                with contextlib.suppress(OSError, SrtmError):
                    self._ask_nsqd(name, f"/topic/{change}?topic={TOPIC}")
                    for body, stamp in drain(path, TOPIC, CHANNEL, _QUIET_SECONDS).items():
                        self._stored.setdefault(body, stamp)

    def judge(self) -> Verdict:
        """The verdict, once the deployment is whole again and nobody publishes any more."""
        time.sleep(_SETTLE_SECONDS)
        self._over.set()
        for each in self._publishers:
            each.join(30)
        self._until(self._emptied, "all that was stored is read")
        verdict = self.verdict
        sent = set().union(*(each.found.sent for each in self._publishers))
        acknowledged = set().union(*(each.found.acknowledged for each in self._publishers))
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
        depths = []
        for name in BROKERS:
            for topic in stats(str(self.layout.broker(name).nsqd_http), TOPIC)["topics"]:
                depths += [topic["depth"], *(each["depth"] for each in topic["channels"])]
        return not any(depths)

    # --- inside ---------------------------------------------------------------------------------

    def _write_files(self) -> Path:
        (self.folder / "t.csv").write_text(
            "id,key,rate\n" + "".join(f"p{n},,25\n" for n in range(8))
        )
        text = (
            f'[deployment]\ndata-path = "{self.layout.data_path}"\n'
            f'[distributor]\nhttp-address = "{self.distributor}"\n'
            f'lease-duration = "{_LEASE_SECONDS}s"\n'
        )
        for name in BROKERS:
            text += (
                f'[[broker]]\nname = "{name}"\ncapacity = 120\n'
                f'tcp-address = "127.0.0.1:{self._tcp[name]}"\n'
                f'http-address = "127.0.0.1:{self._http[name]}"\n'
                # What nsqd has acknowledged survives its death: else a lost message says nothing.
                'nsqd-flags = ["--mem-queue-size=0", "--sync-every=1"]\n'
            )
        text += f'[[topic]]\nname = "{TOPIC}"\nrate = {RATE:g}\nburst = {BURST:g}\n'
        text += 'publishers = "t.csv"\n'
        file = self.folder / "soak.toml"
        file.write_text(text)
        return file

    def _is_placed(self) -> bool:
        """Publishers are sent to a broker once that has acknowledged its share."""
        try:
            places = [
                self.ask("GET", f"/topics/{TOPIC}/publishers/p{number}")["broker"]
                for number in range(_REGISTERED)
            ]
        except (OSError, SrtmError):
            return False
        return set(places) == set(BROKERS)

    def _make_channel(self, broker: str) -> None:
        self._ask_nsqd(broker, f"/topic/create?topic={TOPIC}")
        self._ask_nsqd(broker, f"/topic/pause?topic={TOPIC}")
        self._ask_nsqd(broker, f"/channel/create?topic={TOPIC}&channel={CHANNEL}")

    def _ask_nsqd(self, broker: str, target: str) -> None:
        request(str(self.layout.broker(broker).nsqd_http), "POST", target)

    def _until(self, condition: Any, what: str) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while True:
            try:
                if condition():
                    return
            except SrtmError:
                pass
            if time.monotonic() > deadline:
                log = (self.folder / "up.log").read_text()[-2000:]
                raise SrtmError(f"not within {_READY_SECONDS:g} s: {what}; srtm up said: {log}")
            time.sleep(0.2)


def _worst_interval(times: Floats) -> tuple[float, float]:
    """The one that `worst_excess` measures."""
    before = np.arange(times.size) - RATE * times
    least = np.minimum.accumulate(before)
    end = int(np.argmax(before - least))
    return float(times[int(np.argmin(before[: end + 1]))]), float(times[end])


def _free_ports(count: int) -> list[int]:
    opened = [socket.socket() for _ in range(count)]
    try:
        for each in opened:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in opened]
    finally:
        for each in opened:
            each.close()
