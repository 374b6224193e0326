"""Rates, lags and latencies of a group from offsets alone. Pure: readings and time are passed in.

Everything is on the reader's own clock: an event arrived when its partition's end offset was seen
to pass it, and is served when the committed offset was. So events served, late ones and the time
that they stayed are known to within the time between two readings, for any consumer.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from srtm.autoscaler.live.curve import Curve
from srtm.autoscaler.live.weights import Weights
from srtm.autoscaler.observation import PartitionSeen

SLOTS = 10
"""Parts of an interval in which arrivals are counted, as the simulator has it."""

Reset = Literal["earliest", "latest"]
Weigh = Literal["events", "bytes"]


@dataclass(frozen=True, slots=True)
class Sample:
    """Offsets of each partition at `at` (seconds, monotonic).

    ends:      of the next event to come; starts: of the oldest that is still kept
    committed: by the group; a partition that is missing was never committed
    sizes:     bytes of the partitions' logs, where they were looked at now
    """

    at: float
    ends: Mapping[int, int]
    starts: Mapping[int, int]
    committed: Mapping[int, int]
    sizes: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reading:
    """The topic over the time since the last reading; time_lags: seconds since the oldest event
    that waits came, by partition (at least: what came before anybody looked has no date)."""

    at: float
    partitions: tuple[PartitionSeen, ...]
    time_lags: Mapping[int, float]
    staying_seconds: float | None
    served: int
    late: int
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Track:
    curve: Curve = field(default_factory=Curve)
    position: int | None = None  # all below is served
    start: int = 0
    seen_at: float = 0.0
    counted: int | None = None  # end offset at the last reading
    work: float = 0.0  # of what was served since somebody looks


class Monitor:
    """target_seconds: of the SLO; reset: where a group begins that never committed; weigh: what
    rates, lags and work are counted in. Events served and late ones are events always."""

    def __init__(
        self, target_seconds: float, reset: Reset = "earliest", weigh: Weigh = "events"
    ) -> None:
        self._weights = Weights() if weigh == "bytes" else None
        self._target = target_seconds
        self._reset = reset
        self._tracks: dict[int, _Track] = {}
        self._at: float | None = None
        self._last: float | None = None
        self._served = 0
        self._late = 0
        self._stayed = 0.0
        self._notes: dict[str, None] = {}

    def see(self, sample: Sample) -> None:
        for partition, end in sample.ends.items():
            track = self._tracks.setdefault(partition, _Track())
            if not track.curve.add(sample.at, end):
                self._note(f"partition {partition} begins anew: its offsets went back")
                track.position = track.counted = None
            if track.counted is None:
                track.counted = end
            track.start = sample.starts.get(partition, track.start)
            self._advance(partition, track, sample)
            track.seen_at = sample.at
        if self._weights is not None:
            self._weights.see(sample.sizes, sample.starts, sample.ends)
        self._at = sample.at

    def weight(self, partition: int) -> float:
        """Of one event: 1, or its bytes."""
        return self._weights.weight(partition) if self._weights is not None else 1.0

    def work(self, partition: int) -> float:
        """Served since somebody looks, weighed."""
        return self._tracks[partition].work

    def _advance(self, partition: int, track: _Track, sample: Sample) -> None:
        committed = sample.committed.get(partition, -1)
        position = committed
        if committed < 0:
            position = track.start if self._reset == "earliest" else track.curve.end
            if track.position is not None and self._reset == "latest":
                position = track.position  # what came since somebody looks does wait
        elif committed < track.start:
            self._note(
                f"partition {partition}: committed offset {committed} is older than what is kept; "
                "the events in between are gone and are no lag"
            )
            position = track.start
        before = track.position
        track.position = position
        if before is None or committed < 0 or position <= before:
            return
        track.work += (position - before) * self.weight(partition)
        self._count(track, before, position, (track.seen_at + sample.at) / 2)

    def _count(self, track: _Track, before: int, position: int, at: float) -> None:
        """Events `before` to `position` were served at `at`, as near as is known."""
        known = max(before, min(track.curve.begins_at, position))
        served = position - known  # of the rest nobody knows when they came
        if not served:
            return
        due = track.curve.arrived_by(at - self._target)
        self._served += served
        self._late += round(min(max(due - known, 0.0), served))
        arrived = (track.curve.time_of(known + 0.5) + track.curve.time_of(position)) / 2
        self._stayed += max(at - arrived, 0.0) * served

    def _note(self, text: str) -> None:
        self._notes[text] = None

    def forget(self, partition: int) -> None:
        """It is there no more."""
        self._tracks.pop(partition, None)

    def lag(self, partition: int) -> int:
        track = self._tracks[partition]
        return max(track.curve.end - (track.position or 0), 0) if track.position is not None else 0

    def position(self, partition: int) -> int:
        """All below it is served."""
        return self._tracks[partition].position or 0

    @property
    def partitions(self) -> tuple[int, ...]:
        return tuple(sorted(self._tracks))

    def read(self) -> Reading:
        """What was seen since the last call. Raises ValueError before the first sample."""
        if self._at is None:
            raise ValueError("nothing has been seen yet")
        at, last = self._at, self._last
        seconds = at - last if last is not None else 0.0
        seen = tuple(self._seen(p, at, seconds) for p in self.partitions)
        lags = {
            p: max(at - track.curve.time_of(self.position(p) + 0.5), 0.0) if self.lag(p) else 0.0
            for p, track in self._tracks.items()
        }
        staying = self._stayed / self._served if self._served else None
        reading = Reading(at, seen, lags, staying, self._served, self._late, tuple(self._notes))
        self._last, self._served, self._late, self._stayed = at, 0, 0, 0.0
        self._notes.clear()
        return reading

    def _seen(self, partition: int, at: float, seconds: float) -> PartitionSeen:
        track = self._tracks[partition]
        curve, counted = track.curve, track.counted or 0
        track.counted = curve.end
        rate = max(curve.end - counted, 0) / seconds if seconds > 0 else 0.0
        slots: tuple[int, ...] = ()
        weight = self.weight(partition)
        if seconds > 0:
            edges = [
                round(weight * curve.arrived_by(at - seconds * (SLOTS - n) / SLOTS))
                for n in range(SLOTS + 1)
            ]
            slots = tuple(b - a for a, b in itertools.pairwise(edges))
        return PartitionSeen(partition, rate * weight, self.lag(partition) * weight, slots)
