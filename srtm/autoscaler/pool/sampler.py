"""What is seen of a channel over all its brokers: rates, lags, latencies, and what consumers do."""

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from srtm.autoscaler.live.capacity import Capacity
from srtm.autoscaler.live.monitor import SLOTS, Monitor, Sample
from srtm.autoscaler.pool.brokers import Brokers
from srtm.autoscaler.pool.busy import Busy
from srtm.autoscaler.pool.counters import Counters
from srtm.autoscaler.pool.reading import PoolReading
from srtm.autoscaler.pool.stats import ChannelSeen, ClientSeen
from srtm.consumer.pool_file import PoolFile


class PoolSampler:
    def __init__(self, file: PoolFile) -> None:
        self._monitor = Monitor(file.group.slo.target_seconds)
        self._lock = threading.Lock()
        self._counters: dict[str, Counters] = {}
        self._seen: dict[str, ChannelSeen] = {}
        self._numbers: dict[str, int] = {}
        self._next = 0
        self._brokers = Brokers(file.nsq, file.group.interval / SLOTS, self._see, self._forget)
        self._capacities: dict[str, Capacity] = {}
        self._pool = Capacity()
        self._busy: dict[tuple[str, str], Busy] = {}
        """by broker and consumer; "" is all of them"""

    def start(self) -> None:
        self._brokers.start()

    def aim(self, target_seconds: float) -> None:
        """Another target of the SLO."""
        with self._lock:
            self._monitor.aim(target_seconds)

    def close(self) -> None:
        self._brokers.close()

    def wait_first(self, seconds: float) -> bool:
        """Has any broker told of the channel?"""
        self._brokers.wait_first(seconds)
        with self._lock:
            return bool(self._seen)

    @property
    def faults(self) -> list[str]:
        return self._brokers.faults

    def brokers(self) -> dict[str, str]:
        """address -> why it is away; "" where it answers"""
        return self._brokers.document()

    def _see(self, address: str, at: float, seen: ChannelSeen) -> None:
        with self._lock:
            if address not in self._numbers:
                self._numbers[address] = self._next
                self._next += 1
            counters = self._counters.setdefault(address, Counters())
            counters.see(seen)
            self._seen[address] = seen
            self._see_busy(address, at, seen)
            number = self._numbers[address]
            self._monitor.see(
                Sample(at, {number: counters.arrived}, {number: 0}, {number: counters.finished})
            )

    def _see_busy(self, address: str, at: float, seen: ChannelSeen) -> None:
        finished = sum(each.finished for each in seen.clients)
        busy = sum(each.in_flight > 0 for each in seen.clients)
        self._busy.setdefault((address, ""), Busy()).see(at, finished, busy)
        named = dict(_numbered(seen.clients))
        for gone in [key for key in self._busy if key[0] == address and key[1]]:
            if gone[1] not in named:
                del self._busy[gone]
        for name, each in named.items():
            one = self._busy.setdefault((address, name), Busy())
            one.see(at, each.finished, each.in_flight > 0)

    def _forget(self, address: str) -> None:
        with self._lock:
            self._seen.pop(address, None)
            self._counters.pop(address, None)
            for key in [each for each in self._busy if each[0] == address]:
                del self._busy[key]
            number = self._numbers.pop(address, None)
            if number is not None:
                self._monitor.forget(number)

    def read(self) -> PoolReading | None:
        """What was seen since the last call; None before the first answer of a broker."""
        faults = tuple(self._brokers.faults)
        with self._lock:
            if not self._seen:
                return None
            reading = self._monitor.read()
            clients, ids = _clients(self._seen)
            waiting = sum(each.depth for each in self._seen.values())
            self._learn(reading.at, clients, waiting)
            return PoolReading(
                reading=reading,
                parts=tuple(self._numbers),
                clients=clients,
                client_ids=frozenset(ids),
                waiting=waiting,
                deferred=sum(each.deferred for each in self._seen.values()),
                paused=all(each.paused for each in self._seen.values()),
                faults=faults,
            )

    def _learn(self, at: float, clients: Mapping[str, int], waiting: int) -> None:
        for gone in self._capacities.keys() - clients.keys():
            del self._capacities[gone]
        for name, finished in clients.items():
            capacity = self._capacities.setdefault(name, Capacity())
            capacity.see(at, (), finished, waiting // len(clients))
        # Whoever connects anew begins at 0: a window in which that happens says nothing.
        started = sum(each.started for each in self._seen.values())
        self._pool.see(at, (len(clients), started), sum(clients.values()), waiting)

    def mu(self, consumer: str) -> float | None:
        """Messages/s that it served while it had work; by its name here, or by its client id."""
        with self._lock:
            if consumer in self._capacities:
                return self._capacities[consumer].mu
            found = [each.mu for name, each in self._capacities.items() if _id_of(name) == consumer]
            return found[0] if len(found) == 1 else None

    def mean_mu(self, consumers: int) -> float | None:
        """Messages/s of one of `consumers` consumers: an equal part of what they served together
        while they had work."""
        with self._lock:
            return self._pool.mu / consumers if self._pool.mu and consumers else None

    def least_mu(self) -> float | None:
        """Messages/s that one consumer serves at least, whatever was learnt."""
        with self._lock:
            known = [each.mu for key, each in self._busy.items() if each.mu and not key[1]]
            return max(known, default=None)


def _id_of(name: str) -> str:
    return name.rpartition("#")[0].rpartition("@")[0]


def _clients(seen: Mapping[str, ChannelSeen]) -> tuple[dict[str, int], set[str]]:
    """Consumers and their FINs, and client ids. A consumer has one connection to each broker; of
    several that say that they are the same, as many are there as one broker has."""
    finished: Counter[str] = Counter()
    ids = set()
    for channel in seen.values():
        ids |= {each.client_id for each in channel.clients}
        for name, each in _numbered(channel.clients):
            finished[name] += each.finished
    return dict(finished), ids


def _numbered(clients: Sequence[ClientSeen]) -> Iterator[tuple[str, ClientSeen]]:
    """The clients of one broker, each with a name that is its own: several may have one name, so
    they are numbered."""
    places: Counter[str] = Counter()
    for each in clients:
        yield f"{each.name}#{places[each.name]}", each
        places[each.name] += 1
