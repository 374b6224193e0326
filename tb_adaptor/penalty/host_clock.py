"""The clock of a gateway's host beside the distributor's, by the exchanges of reports."""

from dataclasses import dataclass
from math import inf

SLOT_SECONDS = 1e-3
"""A gateway tells times in whole ones."""
_DRIFT = 1e-3
"""of a second, between two monotonic clocks: NTP slews each by half of it at most"""


@dataclass
class HostClock:
    """The offset of the two clocks, distributor's minus gateway's, is from `low` to `high` seconds.

    A report that was made at `made` and came at `came` was under way for 0 to `round_trip`, so the
    offset was from came - made - round_trip to came - made. All exchanges together leave what their
    intervals have in common, each widened by how far the clocks may have drifted apart since: one
    quick exchange bounds the slow ones of the seconds around it.
    """

    low: float = -inf
    high: float = inf
    _at: float = -inf

    def exchanged(self, made: float, came: float, round_trip: float) -> bool:
        """made: a whole slot. False where that cannot be: a clock stood still or jumped."""
        drift = _DRIFT * max(0.0, came - self._at) if self._at > -inf else 0.0
        self.low = max(self.low - drift, came - made - SLOT_SECONDS - round_trip)
        self.high = min(self.high + drift, came - made)
        self._at = came
        return self.low <= self.high

    @property
    def offset(self) -> float:
        return (self.low + self.high) / 2

    def error(self, seconds: float) -> float:
        """By how many seconds the time of an arrival that was so long before the report may be
        wrong."""
        return (self.high - self.low) / 2 + SLOT_SECONDS / 2 + _DRIFT * seconds
