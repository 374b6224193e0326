"""Rates, lags and latencies of a group from offsets alone. Pure: readings and time are passed in.

Everything is on the reader's own clock: an event arrived when its partition's end offset was seen
to pass it, and is served when the committed offset was. So events served, late ones and the time
that they stayed are known to within the time between two readings, for any consumer. Of groups
that commit the number of their records an event is a record; of others it is an offset.
"""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from srtm.autoscaler.live.curve import Curve
from srtm.autoscaler.live.passed import Passed
from srtm.autoscaler.live.weights import Weights
from srtm.autoscaler.observation import PartitionSeen

SLOTS = 10
"""Parts of an interval in which arrivals are counted, as the simulator has it."""

_PASSED_SECONDS = 0.3
"""A fetch, a commit and two samples: what has no records is passed by then, if its consumer is not
at work."""

_STUCK_SECONDS = 10.0
"""A consumer that starts, or a batch that takes long, serves nothing for seconds."""

Reset = Literal["earliest", "latest"]
Weigh = Literal["events", "bytes"]


@dataclass(frozen=True, slots=True)
class Sample:
    """Offsets of each partition at `at` (seconds, monotonic).

    ends:      of the next event to come; starts: of the oldest that is still kept
    committed: by the group; a partition that is missing was never committed
    sizes:     bytes of the partitions' logs, where they were looked at now
    records:   that the group has done up to what it committed, where it counts them
    beyond:    where the log ends, of partitions whose committed offset is not there
    topic_id:  of Kafka; another one: the topic was made anew. Empty: not known
    """

    at: float
    ends: Mapping[int, int]
    starts: Mapping[int, int]
    committed: Mapping[int, int]
    sizes: Mapping[int, int] = field(default_factory=dict)
    records: Mapping[int, int] = field(default_factory=dict)
    beyond: Mapping[int, int] = field(default_factory=dict)
    topic_id: str = ""


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

    @property
    def oldest_wait(self) -> float:
        """Seconds for which the event that has waited longest has done so."""
        return max(self.time_lags.values(), default=0.0)

    def stuck(self, target_seconds: float) -> str:
        """Why the group is not well though no event is late yet, as none is served; "" where some
        are, or none has waited long."""
        if self.served or self.oldest_wait <= max(target_seconds, _STUCK_SECONDS):
            return ""
        return f"nothing is served, and events have waited for {self.oldest_wait:.0f} s"


@dataclass(slots=True)
class _Track:
    curve: Curve = field(default_factory=Curve)
    passed: Passed = field(default_factory=Passed)
    position: int | None = None  # all below is served
    start: int = 0
    seen_at: float = 0.0
    counted: float | None = None  # offsets that the last reading took for events, all below
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
        self._topic_id = ""
        self._at: float | None = None
        self._last: float | None = None
        self._served = 0
        self._late = 0
        self._stayed = 0.0
        self._notes: dict[str, None] = {}

    def aim(self, target_seconds: float) -> None:
        """Another target, by which what is served from now on is late or not."""
        self._target = target_seconds

    def see(self, sample: Sample) -> None:
        if sample.topic_id and self._topic_id not in ("", sample.topic_id):
            self._begin_anew(sample)
        self._topic_id = sample.topic_id or self._topic_id
        for partition, end in sample.ends.items():
            track = self._tracks.setdefault(partition, _Track())
            if not track.curve.add(sample.at, end):
                self._note(f"partition {partition} begins anew: its offsets went back")
                track.position = track.counted = None
                track.passed = Passed()
            if track.counted is None:
                track.counted = end
            track.start = sample.starts.get(partition, track.start)
            self._advance(partition, track, sample)
            track.seen_at = sample.at
        if self._weights is not None:
            self._weights.see(sample.sizes, sample.starts, sample.ends)
        self._at = sample.at

    def _begin_anew(self, sample: Sample) -> None:
        """Another topic has the name; all of it came since the last sample."""
        self._note("the topic was made anew: what was known of the old one is forgotten")
        self._tracks.clear()
        for partition in sample.ends if self._at is not None else ():
            start = sample.starts.get(partition, 0)
            track = self._tracks[partition] = _Track(start=start, seen_at=self._at or 0.0)
            track.curve.add(track.seen_at, start)
            track.counted = start

    def weight(self, partition: int) -> float:
        """The weight of one event of the partition: 1, or its bytes."""
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
                "the offsets in between are gone and are no lag"
            )
            position = track.start
        elif partition in sample.beyond:
            self._note(
                f"partition {partition}: committed offset {committed} is beyond the end, "
                f"{sample.beyond[partition]}: the topic was made anew, or offsets were set; its "
                f"consumer will begin with the {self._reset}"
            )
            position = track.start if self._reset == "earliest" else track.curve.end
        before = track.position
        if committed >= 0:
            track.passed.see(before, position, sample.records.get(partition))
        track.position = position
        if before is None or committed < 0 or position <= before:
            return
        track.work += track.passed.between(before, position) * self.weight(partition)
        self._count(track, before, position, (track.seen_at + sample.at) / 2)

    def _count(self, track: _Track, before: int, position: int, at: float) -> None:
        """Events `before` to `position` were served at `at`, as near as is known."""
        known = max(before, min(track.curve.begins_at, position))
        # Of the rest nobody knows when they came.
        served = round(track.passed.between(known, position))
        if not served:
            return
        due = min(max(track.curve.arrived_by(at - self._target), known), position)
        self._served += served
        self._late += min(round(track.passed.between(known, due)), served)
        arrived = (track.curve.time_of(known + 0.5) + track.curve.time_of(position)) / 2
        self._stayed += max(at - arrived, 0.0) * served

    def _note(self, text: str) -> None:
        self._notes[text] = None

    def forget(self, partition: int) -> None:
        """Forget a partition that is there no more."""
        self._tracks.pop(partition, None)

    def lag(self, partition: int) -> int:
        """Events that wait, as far as offsets tell."""
        track = self._tracks[partition]
        if track.position is None:
            return 0
        return math.ceil(track.passed.between(track.position, self._judged(track)) - 1e-9)

    def _judged(self, track: _Track) -> float:
        """The offset below which offsets that nobody has passed are taken for events. A consumer
        that counts passes what has no records in a moment: it is waited for."""
        end, position = track.curve.end, track.position or 0
        if not track.passed.counts or self._at is None:
            return float(max(end, position))
        return max(min(track.curve.arrived_by(self._at - _PASSED_SECONDS), end), position)

    def position(self, partition: int) -> int:
        """The offset below which all of the partition is served; 0 while it is not known."""
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
        track, weight = self._tracks[partition], self.weight(partition)
        judged = self._judged(track)
        counted, track.counted = min(track.counted or 0, judged), judged
        if seconds <= 0:
            return PartitionSeen(partition, 0.0, self.lag(partition) * weight)
        passed = track.passed
        offsets = [
            min(max(track.curve.arrived_by(at - seconds * (SLOTS - n) / SLOTS), counted), judged)
            for n in range(1, SLOTS)
        ]
        edges = [
            round(weight * passed.between(counted, each)) for each in (counted, *offsets, judged)
        ]
        slots = tuple(b - a for a, b in itertools.pairwise(edges))
        rate = weight * passed.between(counted, judged) / seconds
        return PartitionSeen(partition, rate, self.lag(partition) * weight, slots)
