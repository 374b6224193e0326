"""The ages of a journey's messages: what consumers tell, joined with what gateways tell. Pure.

A consumer tells the durations since nsqd received a message. What was before that is found by
nsqd's time and a checksum of the body (srtm/gateway/measure/arrivals.py), so a message's whole age
is known by cause, without a byte of ours in it and without a clock that two hosts share: each
difference is of two times of one host, but for the queue, which is corrected by what is known of
the difference of their clocks.
"""

from collections import Counter, deque
from typing import Any, NamedTuple

from srtm.host.clock import NS
from srtm.host.offsets import Offset
from srtm.journey.arrivals import Arrival, Arrivals
from srtm.journey.causes import Cause, Leg
from srtm.journey.numbers import MOST_COUNT, nanoseconds, whole
from srtm.limits.bins import ZERO, Bins, key_of
from srtm.limits.sketch import LatencySketch
from srtm.limits.slots import HIGHEST_LEVEL, level_of, slot_of

WAIT_NS = 3_000_000_000
"""from a sample to its judgement: gateways are asked twice a second, and may answer late"""
_WEIGHED_NS = 60 * NS + 2 * WAIT_NS
"""A sample is in the figures of the minute after its judgement."""
_MOST_WAITING = 50_000
_MOST_SAMPLES = 2_000
_LEAST_BIN, _MOST_BIN = key_of(1e-9), key_of(1e7)
"""from a nanosecond to four months"""
_MOST_BINS = _MOST_BIN - _LEAST_BIN + 2


class _Sample(NamedTuple):
    """A message of a consumer's report. since: when the report came; level: of the slots that the
    consumer tells; clock: of the consumer's host"""

    since: int
    received: int
    checksum: int
    bridge: int
    queue: int
    processing: int
    level: int
    clock: Offset


class Ages:
    """The ages of one journey's messages. `now` is monotonic nanoseconds.

    count:     messages that consumers were done with
    matched:   messages for which samples stand whose arrival a gateway told
    unmatched: those whose arrival none told: their age begins when nsqd received them, and is too
               young
    handled_at: when consumers were done with one last; None: they never were
    late:      (all, late ones) since the last call of `take_late`, each sample by its weight
    """

    def __init__(self, target_ns: int) -> None:
        self.age = LatencySketch()
        self.causes = {cause: LatencySketch() for cause in Cause}
        self.legs = {leg: LatencySketch() for leg in Leg}
        self.count = self.matched = self.unmatched = 0
        self.clock_error_ns = 0
        self.handled_at: int | None = None
        self._target_ns = target_ns
        self._arrivals = Arrivals()
        self._waiting: deque[_Sample] = deque()
        self._weights: deque[tuple[int, int]] = deque()  # (since, weight), each above all after it
        self._late = [0, 0]

    def arrived(self, document: Any, clock: Offset) -> None:
        """A gateway has answered. Raises ValueError."""
        self._arrivals.add(document, clock)

    def handled(self, report: Any, clock: Offset, now: int) -> None:
        """What a consumer says of the topic (`Ages.report` of srtm/consumer/ages.py). clock: of its
        host. Raises ValueError."""
        try:
            count = whole(report["count"], 0, MOST_COUNT)
            level = whole(report["level"], 0, HIGHEST_LEVEL)
            bins = {name: _bins(report[name]) for name in ("bridge", "consumer")}
            samples = [
                _sample(each, now, level, clock) for each in report["samples"][:_MOST_SAMPLES]
            ]
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
            raise ValueError(f"no report of ages: {error!r}"[:300]) from None
        self.count += count
        if count:
            self.handled_at = now
        self.legs[Leg.BRIDGE].merge(bins["bridge"], now)
        self.legs[Leg.CONSUMER].merge(bins["consumer"], now)
        self._waiting.extend(samples)
        while len(self._waiting) > _MOST_WAITING:
            self._judge(self._waiting.popleft())

    def settle(self, now: int) -> None:
        """Judge the samples that have waited long enough for gateways to tell of them."""
        while self._waiting and self._waiting[0].since <= now - WAIT_NS:
            self._judge(self._waiting.popleft())
        for sketch in (self.age, *self.causes.values(), *self.legs.values()):
            sketch.fold(now)  # or it would count in the ten seconds in which somebody looks

    def weight(self, now: int) -> int:
        """Messages for which a sample of the last minute or two stands at most."""
        while self._weights and self._weights[0][0] < now - _WEIGHED_NS:
            self._weights.popleft()
        return self._weights[0][1] if self._weights else 1

    def take_late(self) -> tuple[int, int]:
        late, self._late = self._late, [0, 0]
        return late[0], late[1]

    def _judge(self, sample: _Sample) -> None:
        found = self._arrivals.find(sample.received, sample.checksum)
        level = max(sample.level, self._arrivals.level(sample.received))
        if level_of(slot_of(sample.received)) < level:
            return  # one of a batch that took longer than a slot; others stand for it
        weight = 1 << level
        while self._weights and self._weights[-1][1] <= weight:
            self._weights.pop()
        self._weights.append((sample.since, weight))
        parts = self._parts(sample, found)
        if found is None:
            self.unmatched += weight
        else:
            self.matched += weight
            self.legs[Leg.BROKER].add(parts[Cause.TOKEN_WAIT] + parts[Cause.GATEWAY], weight)
        age = sum(parts.values())
        self.age.add(age, weight)
        for cause, duration in parts.items():
            self.causes[cause].add(duration, weight)
        self._late[0] += weight
        self._late[1] += weight if age > self._target_ns else 0

    def _parts(self, sample: _Sample, found: Arrival | None) -> dict[Cause, int]:
        parts = {Cause.BRIDGE: sample.bridge, Cause.PROCESSING: sample.processing}
        if found is None:
            return {**parts, Cause.QUEUE: max(0, sample.queue)}
        # The broker's host and the consumer's each differ from this one.
        differs = sample.clock.offset_ns - found.clock.offset_ns
        self.clock_error_ns = max(sample.clock.error_ns + found.clock.error_ns, 0)
        return {
            Cause.TOKEN_WAIT: max(0, found.token - found.arrived),
            Cause.GATEWAY: max(0, sample.received - found.token),
            **parts,
            Cause.QUEUE: max(0, sample.queue + differs),
        }


def _sample(row: Any, since: int, level: int, clock: Offset) -> _Sample:
    """Raises TypeError, ValueError."""
    received, checksum, bridge, queue, processing = map(nanoseconds, row)
    return _Sample(since, received, checksum, bridge, queue, processing, level, clock)


def _bins(document: Any) -> Bins:
    """Raises TypeError, ValueError."""
    rows = list(document.items())
    if len(rows) > _MOST_BINS:
        raise ValueError(f"{len(rows)} bins: {_MOST_BINS} at most")
    found: Bins = Counter({int(key): whole(count, 0, MOST_COUNT) for key, count in rows})
    if any(not (key == ZERO or _LEAST_BIN <= key <= _MOST_BIN) for key in found):
        raise ValueError("a bin of a duration that cannot be")
    return found
