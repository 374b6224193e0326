"""What a consumer counts. The main thread writes, the watchdog and the HTTP door read."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from srtm.consumer.batch import Record
from srtm.host.clock import NS, monotonic_ns


class Phase(StrEnum):
    """Landau, section 4.3: of the cycle."""

    IDLE = "idle"
    GATHER = "gather"
    PROCESS = "process"
    SINK = "sink"
    COMMIT = "commit"


_BATCH = (Phase.PROCESS, Phase.SINK)
"""Phases that `batch-timeout` bounds: the user's code. A commit has Kafka's own time limit."""


@dataclass(slots=True)
class Figures:
    records: int = 0
    bytes: int = 0
    batches: int = 0
    busy_seconds: float = 0.0
    dropped: int = 0
    failed: int = 0
    buried: int = 0
    fault: str = ""
    phase: Phase = Phase.IDLE
    name: str = ""
    partitions: Sequence[int] = ()
    _batch_since_ns: int = 0
    _phase_since_ns: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def member(self, name: str, partitions: Sequence[int]) -> None:
        self.name, self.partitions = name, partitions

    def enter(self, phase: Phase) -> None:
        with self._lock:
            if phase in _BATCH and self.phase not in _BATCH:
                self._batch_since_ns = monotonic_ns()
            if phase is not self.phase:
                self._phase_since_ns = monotonic_ns()
            self.phase = phase

    @property
    def in_batch_seconds(self) -> float:
        """How long the user's code has had the batch; 0 outside of it."""
        with self._lock:
            if self.phase not in _BATCH:
                return 0.0
            return (monotonic_ns() - self._batch_since_ns) / NS

    @property
    def phase_seconds(self) -> tuple[Phase, float]:
        """The phase, and how long it has lasted."""
        with self._lock:
            return self.phase, (monotonic_ns() - self._phase_since_ns) / NS

    def served(self, records: Sequence[Record], seconds: float) -> None:
        self.records += len(records)
        self.bytes += sum(len(each.value or b"") for each in records)
        self.batches += 1
        self.busy_seconds += seconds

    def document(self) -> dict[str, Any]:
        return {
            "consumer": self.name,
            "phase": str(self.phase),
            "partitions": list(self.partitions),
            "fault": self.fault,
            "record_count": self.records,
            "record_bytes": self.bytes,
            "batch_count": self.batches,
            "busy_seconds": round(self.busy_seconds, 6),
            "dropped_count": self.dropped,
            "failed_count": self.failed,
            "dead_letter_count": self.buried,
        }
