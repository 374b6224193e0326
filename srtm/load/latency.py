"""Latencies as an HdrHistogram: collected as integers, recorded in one go at the end."""

from pathlib import Path
from typing import Any

import numpy as np
from hdrh.histogram import HdrHistogram

from srtm.load.schedule import Ints

_HIGHEST_NS = 3600 * 10**9
_DIGITS = 3
_SUB_BUCKET_BITS = 11
"""Three digits: HdrHistogram keeps the leading 11 bits of a value."""

_MS = 1e6
PERCENTILES = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0, "p99.9": 99.9}


class Latencies:
    """A distribution of times, given in ns."""

    __slots__ = ("_histogram", "count")

    def __init__(self, values_ns: Ints) -> None:
        self.count = len(values_ns)
        self._histogram = HdrHistogram(1, _HIGHEST_NS, _DIGITS)
        for value, count in zip(*_bucketed(values_ns), strict=True):
            self._histogram.record_value(int(value), int(count))

    def percentile_ms(self, percentile: float) -> float:
        """`percentile` in 0..100."""
        return float(self._histogram.get_value_at_percentile(percentile)) / _MS

    def document(self) -> dict[str, Any] | None:
        """count, and in ms: p50, p90, p95, p99, p99.9, max, mean. None without samples."""
        if not self.count:
            return None
        figures = self._histogram.get_percentile_to_value_dict(list(PERCENTILES.values()))
        document: dict[str, Any] = {"count": self.count}
        for name, percentile in PERCENTILES.items():
            document[f"{name}_ms"] = figures[percentile] / _MS
        document["max_ms"] = float(self._histogram.get_max_value()) / _MS
        document["mean_ms"] = float(self._histogram.get_mean_value()) / _MS
        return document

    def write_distribution(self, path: Path) -> None:
        """HdrHistogram's percentile distribution, in ms, as its plotters read it."""
        with path.open("wb") as file:
            self._histogram.output_percentile_distribution(file, _MS)


def _bucketed(values_ns: Ints) -> tuple[Ints, Ints]:
    """One value for each histogram bucket that is used, and how many samples it stands for.

    record_value takes 1-2 us; a bucket is recorded once instead of each sample.
    """
    values = np.clip(values_ns, 1, _HIGHEST_NS)
    bits = np.frexp(values.astype(np.float64))[1]
    dropped = np.maximum(bits - _SUB_BUCKET_BITS, 0)
    return np.unique((values >> dropped) << dropped, return_counts=True)
