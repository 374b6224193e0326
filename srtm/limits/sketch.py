"""Latency as mergeable sketches, fed in batches.

An add for each message to a sketch costs as much as the rest of the path, so the hot loop only
appends to lists; once a second numpy counts them by DDSketch bin, and a sketch is made when
somebody looks. Two sketches of equal accuracy merge by adding their bins.
"""

from collections import Counter
from dataclasses import asdict, dataclass

import numpy as np
from ddsketch import LogCollapsingLowestDenseDDSketch

from srtm.limits.bins import RELATIVE_ACCURACY, ZERO, Bins, above, bins_of, seconds_of

_BINS = 2048  # at 1 %, 2,048 bins span 17 decades: nothing that is a latency collapses
_SLICE_NS = 10_000_000_000
_SLICES = 6
WINDOW_SECONDS = _SLICES * _SLICE_NS // 1_000_000_000


def sketch_of(bins: Bins) -> LogCollapsingLowestDenseDDSketch:
    """The DDSketch (in seconds) of counts by bin."""
    sketch = LogCollapsingLowestDenseDDSketch(RELATIVE_ACCURACY, _BINS)
    for key, count in bins.items():
        sketch.add(seconds_of(key), count)
    return sketch


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Seconds; None where nothing was recorded."""

    count: int
    mean: float | None
    p50: float | None
    p95: float | None
    p99: float | None

    def document(self) -> dict[str, float | int | None]:
        return asdict(self)


class LatencySketch:
    """Durations in nanoseconds in, quantiles in seconds out: since start, and of the last minute.

    `now` is monotonic nanoseconds: slices of ten seconds are told apart by it.
    """

    __slots__ = ("_ramps", "_slices", "_sum_ns", "_total", "_values", "_weights", "_zeros")

    def __init__(self) -> None:
        self._sum_ns = 0.0
        self._total: Bins = Counter()
        self._slices: dict[int, Bins] = {}
        self._zeros = 0
        self._values: list[int] = []
        self._weights: list[int] = []
        self._ramps: list[tuple[int, float, int]] = []

    def add_zeros(self, count: int) -> None:
        self._zeros += count

    def add(self, value_ns: int, count: int) -> None:
        """`count` messages of one duration."""
        self._values.append(value_ns)
        self._weights.append(count)

    def add_many(self, values_ns: list[int], counts: list[int]) -> None:
        """`counts[i]` messages of duration `values_ns[i]`."""
        self._values += values_ns
        self._weights += counts

    def add_ramp(self, first_ns: int, step_ns: float, count: int) -> None:
        """`count` messages whose durations differ by `step_ns` each: a queue that gets its tokens
        one by one."""
        self._ramps.append((first_ns, step_ns, count))

    def fold(self, now: int) -> None:
        """Count what was appended."""
        if not (self._values or self._ramps or self._zeros):
            return
        values = np.array(self._values, dtype=np.float64)
        weights = np.array(self._weights, dtype=np.int64)
        if self._ramps:
            parts = [first + step * np.arange(count) for first, step, count in self._ramps]
            values = np.concatenate([values, *parts])
            weights = np.concatenate([weights, np.ones(sum(map(len, parts)), dtype=np.int64)])
        bins = bins_of(values, weights)
        if self._zeros:
            bins[ZERO] += self._zeros
        self._sum_ns += float(np.dot(values, weights))
        self._values, self._weights, self._ramps, self._zeros = [], [], [], 0
        self._count(bins, now)

    def merge(self, bins: Bins, now: int) -> None:
        """Add what another program has counted; each duration is taken for the middle of its
        bin."""
        self._sum_ns += sum(seconds_of(key) * 1e9 * count for key, count in bins.items())
        self._count(bins, now)

    def _count(self, bins: Bins, now: int) -> None:
        self._total.update(bins)
        number = now // _SLICE_NS
        if number not in self._slices:
            self._slices = {n: kept for n, kept in self._slices.items() if n > number - _SLICES}
            self._slices[number] = Counter()
        self._slices[number].update(bins)

    def total(self, now: int) -> LogCollapsingLowestDenseDDSketch:
        """The sketch of all latencies since start."""
        self.fold(now)
        return sketch_of(self._total)

    def counted(self, now: int) -> tuple[Bins, float]:
        """What was counted since start: messages by bin, and the sum of their durations in
        seconds."""
        self.fold(now)
        return Counter(self._total), self._sum_ns / 1e9

    def recent(self, now: int) -> LogCollapsingLowestDenseDDSketch:
        """The durations of the last minute (to a slice of ten seconds)."""
        return sketch_of(self.recent_bins(now))

    def recent_bins(self, now: int) -> Bins:
        """As `recent` has them."""
        self.fold(now)
        merged: Bins = Counter()
        for number, bins in self._slices.items():
            if number > now // _SLICE_NS - _SLICES:
                merged.update(bins)
        return merged

    def counts(self, target_seconds: float) -> tuple[int, int]:
        """Durations since start, folded ones: all, and those above the target (to the sketch's
        accuracy: one within 1 % of it may count as either)."""
        return self._total.total(), above(self._total, target_seconds)

    def quantiles(self, now: int) -> Quantiles:
        """The quantiles of the last minute."""
        return quantiles_of(self.recent(now))


def quantiles_of(sketch: LogCollapsingLowestDenseDDSketch) -> Quantiles:
    value = sketch.get_quantile_value
    count = round(sketch.count)
    mean = sketch.sum / count if count else None
    return Quantiles(count, mean, value(0.5), value(0.95), value(0.99))
