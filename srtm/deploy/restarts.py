"""When a child that died is started again, and when that is given up. Time is passed in."""

from collections import deque

from srtm.clock import NS

MAX_DEATHS = 5
WINDOW_SECONDS = 60.0
FIRST_DELAY_SECONDS = 0.1
DELAY_FACTOR = 5.0
"""0.1, 0.5, 2.5, 12.5 s: a crash costs its publishers little, and a cause that lasts 15 s
(a disk or a port that comes back) does not end the deployment"""


class Restarts:
    """The deaths of one child."""

    __slots__ = ("_recent_ns", "total")

    def __init__(self) -> None:
        self._recent_ns: deque[int] = deque()
        self.total = 0

    def died(self, now_ns: int) -> float | None:
        """Seconds until its restart; None after MAX_DEATHS within the window."""
        self.total += 1
        self._recent_ns.append(now_ns)
        while self._recent_ns[0] < now_ns - int(WINDOW_SECONDS * NS):
            self._recent_ns.popleft()
        deaths = len(self._recent_ns)
        if deaths >= MAX_DEATHS:
            return None
        return FIRST_DELAY_SECONDS * DELAY_FACTOR ** (deaths - 1)
