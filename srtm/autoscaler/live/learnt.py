"""How long what changes a group takes, by phase: start-up, and the stop of a partition. Pure."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

_NEW = 0.3
"""weight of the newest: the last three or so count"""


@dataclass(slots=True)
class Learnt:
    """startup: from a launch to joining; rebalance: of a partition that moves. Seconds; the values
    here stand until one has been seen.
    stopped: the longest of the last hand-over; stops: of the last 1,000 partitions that moved
    """

    startup: float = 2.0
    rebalance: float = 0.05
    stopped: float | None = None
    stops: deque[float] = field(default_factory=lambda: deque(maxlen=1000))

    def launched(self, seconds: float) -> None:
        self.startup += _NEW * (seconds - self.startup)

    def moved(self, seconds: Sequence[float]) -> None:
        """A hand-over is complete; seconds: of each partition that moved"""
        if not seconds:
            return
        self.stops.extend(seconds)
        self.rebalance += _NEW * (sum(seconds) / len(seconds) - self.rebalance)
        self.stopped = max(seconds)
