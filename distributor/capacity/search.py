"""The search for mcap: messages/s that a broker holds within an SLO (SRTM section 4.1), by rounds.

Pure: what was measured so far in, the next rate to measure out. The rate is doubled until it does
not hold, then the bracket is halved until it is narrow.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil, sqrt

NARROW = 1.05
"""The rate that did not hold over the one that did, when the search ends."""
_AGREEING = 2
"""Rounds out of three that decide on a rate: one may meet a stall that is not the broker's."""
_LATE_MESSAGES = 10
"""Late messages that a round at the least rate may have: with fewer it says nothing of the
percentile."""
_LEAST = 100
"""messages/s; rates are whole numbers, and below it they are too coarse for NARROW"""


class Outcome(StrEnum):
    """What came of one round. HELD: within the SLO; LATE: not; BEHIND: not, and the generator may
    be to blame."""

    HELD = "held"
    LATE = "late"
    BEHIND = "generator behind"


@dataclass(frozen=True, slots=True)
class Found:
    """rate: the highest that held, messages/s; 0 where none did. limit: why it is not more: LATE of
    the broker; BEHIND of the generator; HELD where no more was asked for. Only LATE is a limit of
    the broker, with another the rate is a lower bound."""

    rate: int
    limit: Outcome

    @property
    def at_least(self) -> bool:
        return self.limit is not Outcome.LATE


def least_rate(allowed_late_share: float, round_seconds: float) -> int:
    """messages/s below which a round of this length cannot tell whether the SLO holds."""
    needed = _LATE_MESSAGES / (allowed_late_share * round_seconds)
    return max(_LEAST, ceil(round(needed, 6)))  # 1 - 0.9 is less than 0.1


@dataclass(frozen=True, slots=True)
class Search:
    """start, least, most: messages/s, with least <= start <= most."""

    start: int
    least: int
    most: int

    def next_rate(self, rounds: Sequence[tuple[int, Outcome]]) -> int | None:
        """What to measure after these rounds, (rate, outcome) in their order; None: it is found."""
        if rounds and _decided(rounds, rounds[-1][0]) is None:
            return rounds[-1][0]
        low, failed = self._bracket(rounds)
        if failed is None:
            if not low:
                return self.start
            return min(2 * low, self.most) if low < self.most else None
        high, _ = failed
        if not low:
            return None if high == self.least else max(high // 2, self.least)
        return round(sqrt(low * high)) if high > low * NARROW else None

    def found(self, rounds: Sequence[tuple[int, Outcome]]) -> Found:
        """What these rounds show, once `next_rate` gives None."""
        low, failed = self._bracket(rounds)
        return Found(low, failed[1] if failed else Outcome.HELD)

    def _bracket(
        self, rounds: Sequence[tuple[int, Outcome]]
    ) -> tuple[int, tuple[int, Outcome] | None]:
        """The highest rate that holds (0: none yet), the lowest that does not, and why."""
        decided = {rate: _decided(rounds, rate) for rate, _ in rounds}
        held = [rate for rate, outcome in decided.items() if outcome is Outcome.HELD]
        failed = [
            (rate, outcome)
            for rate, outcome in decided.items()
            if outcome in (Outcome.LATE, Outcome.BEHIND)
        ]
        return max(held, default=0), min(failed, default=None)


def _decided(rounds: Sequence[tuple[int, Outcome]], rate: int) -> Outcome | None:
    """What all rounds at one rate decide together; None: they do not yet. Where any that failed may
    be the generator's fault, it is taken to be: a lower bound then claims no more than was seen."""
    outcomes = [outcome for each, outcome in rounds if each == rate]
    failed = [outcome for outcome in outcomes if outcome is not Outcome.HELD]
    if len(outcomes) - len(failed) >= _AGREEING:
        return Outcome.HELD
    if len(failed) >= _AGREEING:
        return Outcome.BEHIND if Outcome.BEHIND in failed else Outcome.LATE
    return None
