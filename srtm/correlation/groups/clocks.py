"""Clocks of brokers' hosts against each other, as the arrivals themselves show them.

Groups are spread over brokers, so that their bursts come to all of them at once. If one host's
clock is ahead by a constant, all arrivals of its broker are, and the cross-correlogram of arrivals
at two brokers of one topic has its peak there. It is believed only where it stands out from chance
and from every other lag: phases of unrelated periodic publishers make many peaks, not one.
Offsets within the narrowest windows need no correction, and none is made.
"""

import logging
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from srtm.correlation.arrow import by_partition, numbers
from srtm.correlation.groups.instants import Floats, Integers, split
from srtm.correlation.schema import columns

_log = logging.getLogger(__name__)

FARTHEST_US = 1_000_000
"""The farthest offset that is looked for; a host without any clock discipline may be farther
off."""
LAGS = columns("broker int, lag bigint, n bigint")
"""n: pairs of an arrival at the reference and one at `broker`, numbered, that is `lag` bins later
"""

_BIN_US = 2_000
_REACH = FARTHEST_US // _BIN_US
_SLAB_US = 10_000_000
_SAMPLE = 2_000_000
"""arrivals that are looked at, in whole slabs of time"""
_MOST_BROKERS = 1_000
_SIGMAS = 8.0
_TIMES = 3.0
"""that the peak stands above every other"""
_JITTER_BINS = 8
"""bins around a peak that are its own: 16 ms"""


def corrected(came: DataFrame) -> DataFrame:
    """ARRIVALS in the time of the busiest broker's host, as far as the trace tells."""
    counts = came.groupBy("broker").agg(f.count("*").alias("n")).orderBy(f.desc("n"), "broker")
    brokers = counts.limit(_MOST_BROKERS + 1).collect()
    if not 2 <= len(brokers) <= _MOST_BROKERS:
        return came
    names = [row.broker for row in brokers]
    share = min(1.0, _SAMPLE / sum(row.n for row in brokers))
    offsets = {
        names[number]: offset_us(lags) for number, lags in _correlograms(came, names, share).items()
    }
    found = {name: offset for name, offset in offsets.items() if offset}
    if not found:
        return came
    for name, offset in found.items():
        _log.info("broker %s: clock %+.0f ms against %s", name, offset / 1e3, names[0])
    ahead = f.create_map(*(f.lit(each) for pair in found.items() for each in pair))
    time = f.col("time_us") - f.coalesce(ahead[f.col("broker")], f.lit(0))
    return came.withColumn("time_us", time.cast("long"))


def _correlograms(came: DataFrame, names: list[str], share: float) -> dict[int, Integers]:
    number = f.create_map(*(f.lit(each) for pair in enumerate(names) for each in pair[::-1]))
    slab = f.expr(f"time_us div {_SLAB_US}")
    some = f.pmod(f.xxhash64(slab), f.lit(1_000_000)) < int(share * 1_000_000)
    rows = came.where(some).select(
        f.xxhash64("topic", slab).alias("slab"),
        "time_us",
        number[f.col("broker")].cast("int").alias("broker"),
    )
    lags = by_partition(rows.repartition("slab"), _lags, LAGS)
    found = {each: np.zeros(2 * _REACH + 1, np.int64) for each in range(1, len(names))}
    for row in lags.groupBy("broker", "lag").agg(f.sum("n").alias("n")).collect():
        found[row.broker][row.lag + _REACH] = row.n
    return found


def _lags(table: pa.Table) -> Iterator[pa.Table]:
    slab, time, broker = (numbers(table, name) for name in ("slab", "time_us", "broker"))
    order = np.lexsort((broker, slab))
    slab, broker, place = slab[order], broker[order], (time[order] % _SLAB_US) // _BIN_US
    total: dict[int, Floats] = {}
    for rows in split(slab, np.arange(slab.size)):
        total_of_slab(place[rows], broker[rows], total)
    for number, counts in total.items():
        kept = np.flatnonzero(counts > 0)
        yield pa.table(
            {
                "broker": np.full(kept.size, number, np.int32),
                "lag": kept - _REACH,
                "n": counts[kept].astype(np.int64),
            }
        )


def total_of_slab(place: Integers, broker: Integers, total: dict[int, Floats]) -> None:
    """Adds the correlogram of each broker with broker 0; place: bin within the slab."""
    length = 2 * (_SLAB_US // _BIN_US)
    series = {
        each: np.fft.rfft(np.bincount(place[broker == each], minlength=length).astype(np.float64))
        for each in np.unique(broker)
    }
    reference = series.pop(0, None)
    if reference is None:
        return
    for each, other in series.items():
        cyclic = np.fft.irfft(np.conj(reference) * other, length)
        counts = np.rint(np.concatenate([cyclic[-_REACH:], cyclic[: _REACH + 1]]))
        total[int(each)] = total.get(int(each), np.zeros(counts.size)) + counts


def offset_us(counts: Integers) -> int:
    """By how much the other clock is ahead, us; 0: nothing stands out, or too little to matter."""
    width = 2 * _JITTER_BINS + 1
    smooth = np.convolve(counts, np.ones(width), "same")[_JITTER_BINS:-_JITTER_BINS]
    base = np.median(smooth)
    noise = max(1.4826 * float(np.median(np.abs(smooth - base))), float(np.sqrt(base)), 1.0)
    excess = smooth - base
    peak = int(excess.argmax())
    others = np.abs(np.arange(smooth.size) - peak) > 2 * width
    if excess[peak] < _SIGMAS * noise or excess[peak] < _TIMES * excess[others].max():
        return 0
    around = np.arange(peak, peak + width)
    weight = np.maximum(counts[around] - base / width, 0.0)
    offset = (float((weight * around).sum() / weight.sum()) - _REACH) * _BIN_US
    return round(offset) if abs(offset) > _BIN_US else 0
