"""/metrics, in Prometheus' text format, from tables: one row for a metric, whatever it hangs on."""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from prometheus_client import generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from srtm.limits.bins import Bins, key_of

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BOUNDS = (1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Upper bounds of a latency's buckets in seconds: the same everywhere, so that the histograms of
many brokers can be added up."""
_KEYS = [key_of(bound) for bound in BOUNDS]
_T = TypeVar("_T")
_FAMILIES: dict[str, Callable[..., Any]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}

Labels = dict[str, str]


class Histogram(NamedTuple):
    """buckets: pairs of an upper bound and how many were at most that; sum: of all, in seconds."""

    buckets: list[tuple[str, int]]
    sum: float


class Row(NamedTuple, Generic[_T]):
    """A metric of a kind of thing. value: what one of them has now; None where it has none."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    value: Callable[[_T], float | Histogram | None]


def latencies(bins: Bins, seconds: float) -> Histogram:
    """The histogram of durations that were counted in bins; seconds: their sum.

    A duration within 2 % above a bound may count as one that is at most the bound.
    """
    counts = [0] * (len(BOUNDS) + 1)
    for key, count in bins.items():
        counts[bisect_left(_KEYS, key)] += count
    buckets, so_far = [], 0
    for bound, count in zip([*map(str, BOUNDS), "+Inf"], counts, strict=True):
        so_far += count
        buckets.append((bound, so_far))
    return Histogram(buckets, seconds)


class Text:
    """The text of /metrics. It is made piece by piece, as a program with ten thousand topics has
    other things to do in between."""

    def __init__(self) -> None:
        self._families: dict[str, list[bytes]] = {}

    def add(self, rows: Iterable[Row[_T]], things: Iterable[tuple[Labels, _T]]) -> None:
        """Add what the things have now. All things of a row have the same labels."""
        things = list(things)
        names = list(things[0][0]) if things else []
        for row in rows:
            family = _FAMILIES[row.kind](row.name, row.help, labels=names)
            for labels, thing in things:
                value = row.value(thing)
                if value is not None:
                    told = value if isinstance(value, Histogram) else (value,)
                    family.add_metric(list(labels.values()), *told)
            text = generate_latest(_One(family))
            if row.name in self._families:  # its head is there
                text = text.split(b"\n", 2)[2]
            self._families.setdefault(row.name, []).append(text)

    def encode(self) -> bytes:
        return b"".join(piece for pieces in self._families.values() for piece in pieces)


class _One:
    """What generate_latest takes for a registry: of one family."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        return (self._family,)
