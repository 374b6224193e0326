"""When a child that died is started again. Time is passed in."""

from srtm.host.clock import NS

KEEPS_DYING = 5
"""deaths in a row from which on it is said to keep dying: the next restart waits for the longest"""
CURED_SECONDS = 60.0
"""a child that was ready for so long has a clean record: as long as the longest delay, so one that
dies again and again spends most of its time waiting"""
FIRST_DELAY_SECONDS = 0.1
DELAY_FACTOR = 5.0
LONGEST_DELAY_SECONDS = 60.0
"""0.1, 0.5, 2.5, 12.5, then 60 s for ever: a crash costs its publishers little, a cause that lasts
(a full disk, a port that is taken) costs the others little, and once it is gone the child is back
within a minute"""


class Restarts:
    """The deaths of one child."""

    __slots__ = ("_ready_at_ns", "in_a_row", "total")

    def __init__(self) -> None:
        self._ready_at_ns: int | None = None
        self.in_a_row = 0  # without CURED_SECONDS of being ready between two of them
        self.total = 0

    def ready(self, now_ns: int) -> None:
        """The child serves, from now on until it dies."""
        self._ready_at_ns = now_ns

    def died(self, now_ns: int) -> float:
        """Seconds until its restart. A start that failed is a death too."""
        since_ns, self._ready_at_ns = self._ready_at_ns, None
        if since_ns is not None and now_ns - since_ns >= int(CURED_SECONDS * NS):
            self.in_a_row = 0
        self.total += 1
        self.in_a_row += 1
        longer = min(self.in_a_row, KEEPS_DYING) - 1  # no overflow after a year of deaths
        return float(min(FIRST_DELAY_SECONDS * DELAY_FACTOR**longer, LONGEST_DELAY_SECONDS))
