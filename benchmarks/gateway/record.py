"""The gateway's own record of one topic: every arrival stamp and every bucket time, exactly.

It is asked for twice, before the load and after it. A poll in between would hold the gateway up for
about 2 us a message that it has recorded, and so be seen in the latency; a record keeps 30 s.
"""

import threading
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import numpy as np

from srtm.host.clock import WallClock, monotonic_ns
from srtm.http.client import get_json
from srtm.limits.queueing import Floats, token_waits
from srtm.nsq.blocking import Blocking
from srtm.nsq.commands import rdy, sub
from srtm.text.errors import SrtmError

MAX_SECONDS = 25.0
"""The most seconds of a recorded run with its draining: recording ends by itself 30 s after the
last call."""
_TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True)
class Record:
    """Times in seconds since `origin_ns` of the monotonic clock, one for each message, sorted.

    arrivals:   when each message arrived
    admissions: when each got its token (bucket time); shorter while some still wait
    read_late:  share of the reads that were decided after one with a later stamp
    """

    origin_ns: int
    arrivals: Floats
    admissions: Floats
    read_late: float = 0.0

    def waits(self) -> Floats:
        """Token wait of each message in seconds, matched first in, first out; shape (n,).

        One bucket serves in order of arrival. Where a message that was read late went first, the
        matching swaps two waits; their sum stays. Raises SrtmError while messages wait.
        """
        if self.arrivals.size != self.admissions.size:
            raise SrtmError(
                f"{self.arrivals.size} messages arrived and {self.admissions.size} were admitted: "
                "the record is not complete"
            )
        return self.admissions - self.arrivals

    def exact_waits(self, rate: float, burst: float) -> Floats:
        """What the same arrivals wait in an exact bucket that starts full; shape (n,)."""
        return token_waits(self.arrivals, rate, burst)


def record_of(documents: Sequence[dict[str, Any]], origin_ns: int | None = None) -> Record:
    """Join the answers of GET /topics/NAME/record. Raises SrtmError where messages were lost."""
    lost = sum(document["lost"] for document in documents)
    if lost:
        raise SrtmError(f"the gateway's record lost {lost} entries: take a shorter run")
    arrivals = [entry for document in documents for entry in document["arrivals"]]
    admissions = [entry for document in documents for entry in document["admissions"]]
    if origin_ns is None:
        origin_ns = min((stamp for stamp, _ in arrivals), default=0)
    # The origin goes before anything becomes a float: nanoseconds since boot have 53 bits.
    stamps = np.array([stamp - origin_ns for stamp, _ in arrivals], dtype=np.float64)
    counts = np.array([count for _, count in arrivals], dtype=np.int64)
    firsts = np.array([first - origin_ns for first, _, _ in admissions], dtype=np.float64)
    steps = np.array([step for _, step, _ in admissions], dtype=np.float64)
    many = np.array([count for _, _, count in admissions], dtype=np.int64)
    total = int(many.sum())
    within = np.arange(total) - np.repeat(np.cumsum(many) - many, many)
    times = np.repeat(firsts, many) + within * np.repeat(steps, many)
    late = stamps < np.maximum.accumulate(stamps)
    return Record(
        origin_ns,
        np.sort(np.repeat(stamps, counts)) / 1e9,
        np.sort(times) / 1e9,
        float(late.mean()) if late.size else 0.0,
    )


class Recorder:
    """Records one topic from now on; the topic must have its contract already. documents: what was
    recorded so far."""

    def __init__(self, admin: str, topic: str) -> None:
        self._admin = admin
        self._path = f"/topics/{quote(topic, safe='')}"
        self.documents: list[dict[str, Any]] = []
        self.take()

    def finish(self, timeout_seconds: float = _TIMEOUT_SECONDS) -> list[dict[str, Any]]:
        """Wait until nobody waits for a token; what was recorded. Raises SrtmError."""
        deadline = time.monotonic() + timeout_seconds
        while get_json(self._admin, self._path)["waiting"]:
            if time.monotonic() > deadline:
                raise SrtmError(f"{self._path}: messages still wait for tokens")
            time.sleep(0.05)
        self.take()
        return self.documents

    def take(self) -> None:
        """What has been recorded since; where a run takes longer than a record is kept."""
        path = f"{self._path}/record"
        self.documents.append(get_json(self._admin, path, timeout_seconds=_TIMEOUT_SECONDS))


def topic_figures(admin: str, topic: str) -> dict[str, Any]:
    """What the gateway itself says of the topic: counts, tokens, sketches of the last minute."""
    figures: dict[str, Any] = get_json(admin, f"/topics/{quote(topic, safe='')}")
    return figures


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
