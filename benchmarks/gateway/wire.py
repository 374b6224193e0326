"""When messages came to nsqd, by nsqd's own clock: what the rest of the world sees of a limiter."""

import threading
from array import array

import numpy as np

from srtm.host.clock import WallClock, monotonic_ns
from srtm.limits.queueing import Floats
from srtm.nsq.blocking import Blocking
from srtm.nsq.commands import rdy, sub

_MAX_IN_FLIGHT = 2500
_TICK_SECONDS = 0.2


class WireClock(threading.Thread):
    """Consumes a channel of nsqd itself and keeps the time that nsqd wrote into each message."""

    def __init__(self, nsqd_socket: str, topic: str, channel: str) -> None:
        super().__init__(name="wire-clock", daemon=True)
        self._link = Blocking(nsqd_socket, {"client_id": "wire-clock"}).identify()
        self._link.ask(sub(topic.encode(), channel.encode()))
        self._link.write(rdy(_MAX_IN_FLIGHT))
        self._link.socket.settimeout(_TICK_SECONDS)
        self._stamps = array("q")
        self._clock = WallClock()
        self._ended = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._ended.is_set():
            try:
                messages = self._link.messages()
            except TimeoutError:
                continue
            except ConnectionError:
                return
            self._stamps.extend(each.timestamp_ns for each in messages if each.attempts == 1)

    def finish(self, messages: int, origin_ns: int, timeout_seconds: float = 10.0) -> Floats:
        """The times of receipt once so many messages have come (or in time no more): seconds since
        `origin_ns`, sorted."""
        deadline = monotonic_ns() + int(timeout_seconds * 1e9)
        while len(self._stamps) < messages and self.is_alive() and monotonic_ns() < deadline:
            self._ended.wait(0.02)
        self.close()
        wall_origin_ns = origin_ns + self._clock.offset_ns
        stamps = [stamp - wall_origin_ns for stamp in self._stamps]
        return np.sort(np.array(stamps, dtype=np.float64)) / 1e9

    @property
    def clock_moved(self) -> bool:
        """Was the wall clock stepped meanwhile? The stamps are worth nothing then."""
        return self._clock.refresh()

    def close(self) -> None:
        self._ended.set()
        self.join()
        self._link.close()
