"""The brokers of a channel, each asked for its /stats in a thread of its own: one that hangs holds
up nobody, and what was known of it stays."""

import logging
import threading
from collections.abc import Callable

from srtm.autoscaler.pool.stats import ChannelSeen, channel_seen
from srtm.consumer.pool_file import NsqTable
from srtm.host.clock import NS, boottime_ns
from srtm.http.nsqd import NsqdDoor, StatsReader
from srtm.http.nsqlookupd import producers_of
from srtm.text.errors import UnavailableError

log = logging.getLogger("srtm.autoscale")

_LOOKUP_SECONDS = 2.0
_ASK_SECONDS = 3.0
_MOST_BYTES = 16 << 20
_MOST_BROKERS = 256

See = Callable[[str, float, ChannelSeen], None]
"""address, when it answered (seconds, of a clock that counts sleep), and what it said"""


class BrokerReader:
    """fault: why the last question failed"""

    def __init__(self, door: NsqdDoor, nsq: NsqTable, seconds: float, see: See) -> None:
        self.address = door.address
        self.fault = ""
        self.answered = threading.Event()
        """once at least, well or not"""
        self._door = door
        self._nsq = nsq
        self._seconds = seconds
        self._see = see
        self._over = threading.Event()
        threading.Thread(target=self._run, name=f"broker {self.address}", daemon=True).start()

    def close(self) -> None:
        self._over.set()

    def _run(self) -> None:
        broker = StatsReader(self._door)
        while not self._over.is_set():
            begun = boottime_ns()
            try:
                seen = self._ask(broker)
            except UnavailableError as error:
                fault = str(error)
                if fault != self.fault:
                    log.warning("%s; what is known of it stays", fault)
                self.fault = fault
                self.answered.set()
                self._over.wait(max(self._seconds, 0.2))
                continue
            if self.fault:
                log.info("%s answers again", self.address)
            self.fault = ""
            now = boottime_ns()
            if not self._over.is_set():
                self._see(self.address, now / NS, seen)
            self.answered.set()
            self._over.wait(max(self._seconds - (now - begun) / NS, 0.01))
        broker.close()

    def _ask(self, broker: StatsReader) -> ChannelSeen:
        """Raises UnavailableError."""
        topic, channel = self._nsq.topic, self._nsq.channel
        document = broker.read(
            topic, channel, clients=True, timeout_seconds=_ASK_SECONDS, max_bytes=_MOST_BYTES
        )
        try:
            return channel_seen(document, topic, channel)
        except ValueError as error:
            said = " ".join(str(error).split())[:200]
            raise UnavailableError(f"{self.address}: /stats: {said}") from None


class Brokers:
    """gone: called with the address of one that nsqlookupd names no more, and that is away."""

    def __init__(
        self, nsq: NsqTable, seconds: float, see: See, gone: Callable[[str], None]
    ) -> None:
        """Raises UsageError for files of `[nsq]` that are wrong."""
        self.fault = ""
        """of nsqlookupd"""
        self._nsq = nsq
        self._features = nsq.features("[nsq] ")
        self._seconds = seconds
        self._see = see
        self._gone = gone
        self._all: dict[str, BrokerReader] = {}
        self._over = threading.Event()
        self._looked = threading.Event()

    def start(self) -> None:
        for address in self._nsq.nsqd_http:
            self._add(address)
        if not self._nsq.lookupd:
            self._looked.set()
            return
        threading.Thread(target=self._follow, name="lookup", daemon=True).start()

    def close(self) -> None:
        self._over.set()
        for each in list(self._all.values()):
            each.close()

    def wait_first(self, seconds: float) -> None:
        """Wait until each broker that is known now was asked once, for at most `seconds` each."""
        self._looked.wait(seconds)
        for each in list(self._all.values()):
            each.answered.wait(seconds)

    def document(self) -> dict[str, str]:
        """address -> why it is away; "" where it answers"""
        return {each.address: each.fault for each in list(self._all.values())}

    @property
    def faults(self) -> list[str]:
        found = [self.fault, *(each.fault for each in list(self._all.values()))]
        return [each for each in found if each]

    def _add(self, address: str) -> None:
        if address not in self._all and len(self._all) < _MOST_BROKERS:
            tls, name = self._features.tls, self._features.server_name
            door = NsqdDoor(address, tls, name, "set tls-v1 = true in [nsq]")
            self._all[address] = BrokerReader(door, self._nsq, self._seconds, self._see)

    def _follow(self) -> None:
        while not self._over.is_set():
            found, fault = set[str](), ""
            for lookupd in self._nsq.lookupd:
                try:
                    producers = producers_of(lookupd, self._nsq.topic)
                    found |= {each.http for each in producers} - {""}
                except UnavailableError as error:
                    fault = str(error)
            if fault and fault != self.fault:
                log.warning("%s; what is known goes on", fault)
            self.fault = fault
            for address in sorted(found):
                self._add(address)
            for address, broker in list(self._all.items()):
                if not fault and address not in found and broker.fault:
                    broker.close()
                    del self._all[address]
                    self._gone(address)
            self._looked.set()
            self._over.wait(_LOOKUP_SECONDS)
