"""How arrivals lie within the seconds: the last ones, kept as they came."""

from collections import deque

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_LEVEL_SECONDS = 5.0
"""Over which a rate is averaged before an interval's slots are divided by it: their noise stays in
the shape, a ramp does not."""


class Shape:
    """The slots of the last intervals, each divided by the rate of its time."""

    def __init__(self, horizon: int, paths: int, interval_seconds: float) -> None:
        self._horizon = horizon
        self._seen: deque[Floats] = deque(maxlen=horizon * paths)
        self._rates: deque[float] = deque(maxlen=max(1, round(_LEVEL_SECONDS / interval_seconds)))

    def see(self, slots: Floats) -> None:
        """slots: events of the interval that has just ended, shape (slots, partitions)."""
        if self._seen and self._seen[-1].shape != slots.shape:
            self._seen.clear()  # a partition came or went
        self._rates.append(float(slots.sum()))
        level = sum(self._rates) / len(self._rates)
        self._seen.append(slots / level if level > 0 else np.full(slots.shape, 1 / slots.size))

    def paths(self) -> Floats:
        """Futures for one event an interval: the last intervals again, shape (paths, horizon *
        slots, partitions). A short history is repeated."""
        seen = list(self._seen)
        paths = max(1, len(seen) // self._horizon)
        while len(seen) < paths * self._horizon:
            seen = seen + seen
        block = np.stack(seen[-paths * self._horizon :])
        return block.reshape(paths, self._horizon * block.shape[1], block.shape[2])
