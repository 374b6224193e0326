"""What a route counts and measures. One thread writes, the one of the HTTP door reads."""

import threading
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from srtm.host.clock import monotonic_ns
from srtm.http.metrics import Histogram, latencies
from srtm.limits.sketch import LatencySketch
from srtm.limits.slo import SLO

_FOLD_NS = 250_000_000  # numpy costs as much for one batch as for many


class State(StrEnum):
    """What a route is doing."""

    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"  # for what `reason` says; nothing is lost meanwhile
    DRAINING = "draining"
    STOPPED = "stopped"  # by a fault that only a person can mend: `reason`
    ENDED = "ended"


COUNTERS = {
    "message_count": "Messages that came from the source.",
    "message_bytes": "Bytes of the bodies that came from the source.",
    "delivered_count": "Messages that the other side has acknowledged.",
    "redelivered_count": "Messages that nsqd delivered again (attempts over 1).",
    "not_repeated_count": "Redeliveries left out because the first copy is queued or delivered.",
    "requeue_count": "Messages requeued at nsqd because Kafka did not take them.",
    "touch_count": "TOUCHes of messages that wait for Kafka.",
    "late_finish_count": "FINs that came after the message had timed out at nsqd.",
    "dead_letter_count": "Messages in the dead-letter topic or file.",
    "cut_count": "Dead letters cut short because they were too big for their topic.",
    "tombstone_count": "Records without a body that were skipped.",
    "looped_count": "Records that came from the topic that they would go to.",
    "resent_count": "Messages published again because their connection broke before the answer.",
    "connect_count": "Connections to nsqd that were made.",
    "gone_count": "Offsets that Kafka had deleted before they were read (of records, or only of "
    "transaction markers).",
}
"""Their names are nsqd's where it has one."""


@dataclass
class Figures:
    """slo: of the route, from the source's own message time to the acknowledgement."""

    slo: SLO | None = None
    state: State = State.STARTING
    reason: str = ""
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTERS, 0))
    in_flight: int = 0
    in_flight_bytes: int = 0
    records_lag: int | None = None
    latency: LatencySketch = field(default_factory=LatencySketch)
    _folded: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def waits(self, reason: str) -> bool:
        """True when that is new."""
        if self.state in (State.DRAINING, State.STOPPED, State.ENDED):
            return False
        changed = self.reason != reason
        self.state, self.reason = State.WAITING, reason
        return changed

    def runs(self) -> bool:
        """True when it did not before."""
        if self.state not in (State.STARTING, State.WAITING):
            return False
        self.state, self.reason = State.RUNNING, ""
        return True

    def measured(self, nanoseconds: list[int], counts: list[int]) -> None:
        """`counts[i]` messages of latency `nanoseconds[i]`."""
        with self._lock:
            self.latency.add_many(nanoseconds, counts)
            now = monotonic_ns()
            if now - self._folded > _FOLD_NS:
                self._folded = now
                self.latency.fold(now)

    def latencies(self) -> Histogram:
        """The histogram of all latencies since start."""
        with self._lock:
            return latencies(*self.latency.counted(monotonic_ns()))

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "state": str(self.state),
            "reason": self.reason,
            **self.counts,
            "in_flight_count": self.in_flight,
            "in_flight_bytes": self.in_flight_bytes,
        }
        if self.records_lag is not None:
            found["records_lag"] = self.records_lag
        with self._lock:
            found["latency"] = self.latency.quantiles(monotonic_ns()).document()
        if self.slo:
            found["slo"] = str(self.slo)
            found["late_share"] = self.late_share
            found["error_budget"] = self.error_budget
        return found

    @property
    def late_share(self) -> float | None:
        """The share of the messages that took longer than the SLO's target, since start; None
        without an SLO."""
        if self.slo is None:
            return None
        with self._lock:
            all_, late = self.latency.counts(self.slo.target_seconds)
        return late / all_ if all_ else 0.0

    @property
    def error_budget(self) -> float | None:
        """What is left of the late share that the SLO allows; negative where it is overspent."""
        late_share = self.late_share
        if self.slo is None or late_share is None:
            return None
        return 1.0 - late_share / self.slo.allowed_late_share
