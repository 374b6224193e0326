"""What a broker is expected to get: what it got lately, since its traffic last shifted."""

from dataclasses import dataclass

import numpy as np

from srtm.limits.queueing import Floats
from tb_adaptor.window import Seen

_STEP_SECONDS = 0.25
_SURE = 5.0
"""standard errors between the rates before and after, for a shift"""
_MOST_POINTS = 2_000
"""The most points of a forecast. More arrivals are gathered in as many steps: a decision takes
milliseconds."""


@dataclass(frozen=True)
class Forecast:
    """waiting: messages that have no token now; times: seconds from now, sorted; counts: messages
    that come then."""

    waiting: float
    times: Floats
    counts: Floats


def has_shifted(seen: Seen, back: float) -> bool:
    """Has its rate changed within so many seconds?"""
    return shifted_at(seen, back) > seen.until - back


def forecast(seen: Seen, back: float, seconds: float) -> Forecast:
    """The forecast for so many seconds: the arrivals since the last shift, over and over. back: how
    far to look for one, in seconds."""
    began = shifted_at(seen, back)
    span = seen.until - began
    recent = seen.times > began
    times, counts = seen.times[recent] - began, seen.counts[recent]
    if not times.size or span <= 0:
        return Forecast(seen.waiting, np.empty(0), np.empty(0))
    repeats = max(1, int(np.ceil(seconds / span - 1e-9)))
    offsets = np.repeat(np.arange(repeats) * span, times.size)
    times, counts = np.tile(times, repeats) + offsets, np.tile(counts, repeats)
    within = times <= seconds
    return Forecast(seen.waiting, *_gathered(times[within], counts[within], seconds))


def shifted_at(seen: Seen, seconds: float) -> float:
    """When the rate last changed by more than its own noise explains; the window's beginning where
    it did not."""
    steps = max(2, round(seconds / _STEP_SECONDS))
    began = seen.until - steps * _STEP_SECONDS
    edges = began + np.arange(steps + 1) * _STEP_SECONDS
    counts = np.histogram(seen.times, edges, weights=seen.counts)[0]
    before = np.arange(1, steps)
    after = steps - before
    total, squares = np.cumsum(counts)[:-1], np.cumsum(counts**2)[:-1]
    mean_before = total / before
    mean_after = (counts.sum() - total) / after
    within = squares - total * mean_before
    within += (counts**2).sum() - squares - (counts.sum() - total) * mean_after
    # The noise is at least that of Poisson arrivals of the mean rate.
    variance = np.maximum(within / max(1, steps - 2), max(1.0, counts.mean()))
    error = np.sqrt(variance * (1 / before + 1 / after))
    surprise = np.abs(mean_after - mean_before) / error
    best = int(np.argmax(surprise))
    return float(edges[best + 1]) if surprise[best] > _SURE else float(began)


def _gathered(times: Floats, counts: Floats, seconds: float) -> tuple[Floats, Floats]:
    if times.size <= _MOST_POINTS:
        return times, counts
    step = seconds / _MOST_POINTS
    places = np.minimum((times / step).astype(int), _MOST_POINTS - 1)
    sums = np.bincount(places, weights=counts, minlength=_MOST_POINTS).astype(np.float64)
    there = np.flatnonzero(sums)
    # One by one over its step, they are met at its end.
    ends = np.asarray((there + 1.0) * step, dtype=np.float64)
    return ends, sums[there]
