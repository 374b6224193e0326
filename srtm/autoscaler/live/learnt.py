"""How long changes of a group take: start-up of a consumer, and stop of a partition. Pure."""

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from srtm.limits.bins import Bins, bins_of

_NEW = 0.3
"""weight of the newest: the last three or so count"""


@dataclass(slots=True)
class Learnt:
    """startup: from a launch to joining; rebalance: of a partition that moves. Seconds; the values
    here stand until one has been seen.
    stopped: the longest stop of the last hand-over; stops: those of the last 1,000 partitions that
    moved; stood: those of all, counted in bins, and their sum.
    """

    startup: float = 2.0
    rebalance: float = 0.05
    stopped: float | None = None
    stops: deque[float] = field(default_factory=lambda: deque(maxlen=1000))
    stood: tuple[Bins, float] = (Counter(), 0.0)

    def launched(self, seconds: float) -> None:
        self.startup += _NEW * (seconds - self.startup)

    def moved(self, seconds: Sequence[float]) -> None:
        """A hand-over is complete; seconds: of each partition that moved"""
        if not seconds:
            return
        self.stops.extend(seconds)
        bins, sum_ = self.stood
        more = bins_of(np.array(seconds) * 1e9, np.ones(len(seconds), dtype=np.int64))
        self.stood = bins + more, sum_ + sum(seconds)  # anew: another thread may be reading it
        self.rebalance += _NEW * (sum(seconds) / len(seconds) - self.rebalance)
        self.stopped = max(seconds)
