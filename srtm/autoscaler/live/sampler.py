"""A thread that reads offsets ten times in each interval between two decisions."""

import logging
import threading
from collections.abc import Mapping

from srtm.autoscaler.live.capacity import Capacity
from srtm.autoscaler.live.monitor import SLOTS, Monitor, Reading
from srtm.autoscaler.live.probe import Probe
from srtm.consumer.file import GroupFile
from srtm.host.clock import NS, monotonic_ns
from srtm.text.errors import UnavailableError

log = logging.getLogger("srtm.autoscale")


class Sampler:
    """Follows the topic. `read` gives what was seen since it was called last.

    fault: why the last attempt failed; "" while all is well
    """

    def __init__(self, file: GroupFile, probe: Probe) -> None:
        target = file.group.slo.target_seconds
        self.fault = ""
        self._probe = probe
        self._seconds = file.group.interval / SLOTS
        self._monitor = Monitor(target, file.group.reset, file.group.weigh)
        self._capacities: dict[str, Capacity] = {}
        self._owned: Mapping[str, tuple[int, ...]] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._seen = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def aim(self, target_seconds: float) -> None:
        """Another target of the SLO."""
        with self._lock:
            self._monitor.aim(target_seconds)

    def close(self) -> None:
        self._over.set()

    def wait_first(self, seconds: float) -> bool:
        return self._seen.wait(seconds)

    def follow(self, owned: Mapping[str, tuple[int, ...]]) -> None:
        """Which consumer has which partitions now: for what each can serve."""
        with self._lock:
            self._owned = owned
            for gone in self._capacities.keys() - owned.keys():
                del self._capacities[gone]

    def read(self) -> Reading:
        with self._lock:
            return self._monitor.read()

    def mu(self, consumer: str, said: float = 0.0) -> float | None:
        """What it served while it had work, in what partitions are weighed in, each second; or what
        it says itself (`said`, events/s). None: it never was short of time, and says nothing."""
        with self._lock:
            found = self._capacities.get(consumer)
            if found is not None and found.mu is not None:
                return found.mu
            known = set(self._monitor.partitions)
            mine = [p for p in self._owned.get(consumer, ()) if p in known] or sorted(known)
            weights = [self._monitor.weight(p) for p in mine]
            return said * sum(weights) / len(weights) if said and weights else None

    def _run(self) -> None:
        while not self._over.is_set():
            begun = monotonic_ns()
            try:
                sample = self._probe.sample(begun / NS)
            except UnavailableError as error:
                if str(error) != self.fault:
                    log.warning("%s", error)
                self.fault = str(error)
            except Exception as error:
                log.exception("offsets cannot be read")
                self.fault = f"offsets cannot be read: {error}"
            else:
                if self.fault:
                    log.info("Kafka answers again")
                self.fault = ""
                with self._lock:
                    self._monitor.see(sample)
                    self._learn(sample.at)
                self._seen.set()
            spent = (monotonic_ns() - begun) / NS
            self._over.wait(max(self._seconds - spent, 0.01))

    def _learn(self, at: float) -> None:
        known = set(self._monitor.partitions)
        for consumer, partitions in self._owned.items():
            mine = tuple(p for p in partitions if p in known)
            work = sum(self._monitor.work(p) for p in mine)
            lag = sum(self._monitor.lag(p) * self._monitor.weight(p) for p in mine)
            self._capacities.setdefault(consumer, Capacity()).see(at, mine, work, lag)
