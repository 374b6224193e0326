"""How arrivals lie within the seconds: the last ones, kept as they came."""

from collections import deque

import numpy as np
from numpy.typing import NDArray

from srtm.autoscaler.policies.srtm.tuning import TUNING

Floats = NDArray[np.float64]


def beside(interval_seconds: float, level_seconds: float = TUNING.level_seconds) -> int:
    """Intervals to either side of one over which its level is averaged."""
    return max(0, round((level_seconds / interval_seconds - 1) / 2))


class Shape:
    """The slots of the last intervals, each divided by the rate of its time."""

    def __init__(
        self,
        horizon: int,
        paths: int,
        interval_seconds: float,
        level_seconds: float = TUNING.level_seconds,
    ) -> None:
        self._horizon = horizon
        self._seen: deque[Floats] = deque(maxlen=horizon * paths)
        self._beside = beside(interval_seconds, level_seconds)
        self._since = 0  # intervals since the rate came to a new level

    def see(self, slots: Floats, jumped: bool = False) -> None:
        """slots: events of the interval that has just ended, shape (slots, partitions); jumped: is
        it the first one at a new level?"""
        if self._seen and self._seen[-1].shape != slots.shape:
            self._seen.clear()  # a partition came or went
        self._seen.append(slots)
        self._since = 1 if jumped else self._since + 1

    def paths(self, horizon: int | None = None) -> Floats:
        """Futures for one event an interval: the last intervals again, shape (paths, horizon *
        slots, partitions). A short history is repeated.

        horizon: intervals, where it is not the usual one
        """
        horizon = horizon or self._horizon
        seen = np.array(self._seen)
        shares = self._shares(seen)
        levels = self._levels(seen.sum(axis=(1, 2)))[:, None, None]
        even = np.broadcast_to(shares / seen.shape[1], seen.shape).copy()
        before = seen[: -self._since]
        before[:] = before.sum(axis=2, keepdims=True) * shares
        shapes = list(np.divide(seen, levels, out=even, where=levels > 0))
        paths = max(1, len(shapes) // horizon)
        while len(shapes) < paths * horizon:
            shapes = shapes + shapes
        block = np.stack(shapes[-paths * horizon :])
        return block.reshape(paths, horizon * block.shape[1], block.shape[2])

    def _shares(self, seen: Floats) -> Floats:
        """The share of each partition. Counts from before a new level say little of it, as it may
        be of one partition alone: all of them together count as one interval."""
        before, since = seen[: -self._since], seen[-self._since :]
        counts = since.sum(axis=(0, 1)) + before.sum(axis=(0, 1)) / max(1, len(before))
        if not counts.any():
            counts = np.ones_like(counts)
        shares: Floats = counts / counts.sum()
        return shares

    def _levels(self, counts: Floats) -> Floats:
        """The mean about each interval, as far to either side: a mean of what came before would
        lag behind a ramp, and the shape of a rising rate hold more than an event an interval."""
        places = np.arange(len(counts))
        beside = np.minimum(self._beside, np.minimum(places, places[::-1]))
        sums = np.concatenate(([0.0], np.cumsum(counts)))
        levels: Floats = (sums[places + beside + 1] - sums[places - beside]) / (2 * beside + 1)
        return levels
