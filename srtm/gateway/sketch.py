"""Latency as mergeable sketches, fed in batches.

An add for each message to a sketch costs as much as the rest of the path, so the hot loop only
appends to lists; once a second numpy bins them and the sketch gets one add for each bin.
"""

import math
from collections import deque
from dataclasses import asdict, dataclass

import numpy as np
from ddsketch import LogCollapsingLowestDenseDDSketch
from ddsketch.mapping import LogarithmicMapping

RELATIVE_ACCURACY = 0.01
_BINS = 2048  # at 1 %, 2,048 bins span 17 decades: nothing that is a latency collapses
_SLICE_SECONDS = 10
_SLICES = 6
WINDOW_SECONDS = _SLICE_SECONDS * _SLICES
_PENDING = 50_000  # values kept before they are folded without waiting for the second

_mapping = LogarithmicMapping(RELATIVE_ACCURACY)
_LOG_GAMMA = math.log(_mapping.gamma)


def new_sketch() -> LogCollapsingLowestDenseDDSketch:
    return LogCollapsingLowestDenseDDSketch(RELATIVE_ACCURACY, _BINS)


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
    """Durations in nanoseconds in, quantiles in seconds out: since start, and the last minute."""

    __slots__ = ("_age", "_ramps", "_values", "_weights", "_zeros", "slices", "total")

    def __init__(self) -> None:
        self.total = new_sketch()
        self.slices = deque([new_sketch()], _SLICES)
        self._age = 0
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
        if len(self._values) >= _PENDING:
            self.fold()

    def add_many(self, values_ns: list[int], counts: list[int]) -> None:
        """`counts[i]` messages of duration `values_ns[i]`."""
        self._values += values_ns
        self._weights += counts
        if len(self._values) >= _PENDING:
            self.fold()

    def add_ramp(self, first_ns: int, step_ns: float, count: int) -> None:
        """`count` messages whose durations differ by `step_ns` each: a queue that gets its tokens
        one by one."""
        self._ramps.append((first_ns, step_ns, count))
        if len(self._ramps) >= _PENDING:
            self.fold()

    def tick(self) -> None:
        """Once a second: fold, and begin a new slice when the present one is old enough."""
        self.fold()
        self._age += 1
        if self._age >= _SLICE_SECONDS:
            self._age = 0
            self.slices.append(new_sketch())

    def fold(self) -> None:
        """Move what was appended into the sketches."""
        if not (self._values or self._ramps or self._zeros):
            return
        values = np.array(self._values, dtype=np.float64)
        weights = np.array(self._weights, dtype=np.int64)
        if self._ramps:
            parts = [first + step * np.arange(count) for first, step, count in self._ramps]
            values = np.concatenate([values, *parts])
            weights = np.concatenate([weights, np.ones(sum(map(len, parts)), dtype=np.int64)])
        zeros = self._zeros + int(weights[values < 1].sum())
        weights, values = weights[values >= 1], values[values >= 1]
        self._values, self._weights, self._ramps, self._zeros = [], [], [], 0
        sketches = (self.total, self.slices[-1])
        if zeros:
            for sketch in sketches:
                sketch.add(0.0, zeros)
        if len(values):
            keys = np.ceil(np.log(values / 1e9) / _LOG_GAMMA).astype(np.int64)
            bins, index = np.unique(keys, return_inverse=True)
            counts = np.bincount(index, weights=weights)
            for key, count in zip(bins.tolist(), counts.tolist(), strict=True):
                value = _mapping.value(key)
                for sketch in sketches:
                    sketch.add(value, count)

    def recent(self) -> LogCollapsingLowestDenseDDSketch:
        """The last minute (to a slice of ten seconds), as one sketch."""
        self.fold()
        merged = new_sketch()
        for part in self.slices:
            merged.merge(part)
        return merged

    def quantiles(self) -> Quantiles:
        """Of the last minute."""
        return quantiles_of(self.recent())


def quantiles_of(sketch: LogCollapsingLowestDenseDDSketch) -> Quantiles:
    value = sketch.get_quantile_value
    count = round(sketch.count)
    mean = sketch.sum / count if count else None
    return Quantiles(count, mean, value(0.5), value(0.95), value(0.99))
