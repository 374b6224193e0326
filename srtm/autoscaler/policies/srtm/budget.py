"""The error budget of the SLO: what a late event is worth, and which hand-overs can be paid."""

import math

from srtm.autoscaler.observation import Observation
from srtm.slo import SLO

_PRICE = 28.0
"""A late event is worth the replica time of so many served ones where one in a hundred may be late
and the budget is as planned; where twice as many may be, each is worth half. Where hand-overs are
free, half of it uses up the budget of smooth waves; where they cost, half as much again does."""

_RESERVE, _RESERVE_ROOT = 0.2, 0.25
"""Of the allowed late share, kept back: what comes last cannot be made good. The first where one in
a hundred may be late, as a hand-over or two at the end is a good part of them all; less where more
may be late, by this power of their share."""

_HALVING_SECONDS = 120.0
_HALVING_SHARE = 0.25
"""A surplus or deficit counts against the budget of this long: of two minutes at first, of a
quarter of the time since the start later, so that a long run settles."""

_SETTLING = 0.08
"""The reserve shrinks by this power as that grows: the end of two hours is surer than of ten
minutes."""

_STEEPNESS = 2.0
_CHEAPEST, _DEAREST = -1.5, 4.0
"""The price is _PRICE * exp(steepness * deficit), the exponent within these. Unused budget makes
late events little cheaper (near μ the queue's cliff is steep), a deficit makes them much dearer."""

_LEAST = 1.2
"""What comes in a second is worth at least so many replica-seconds. With less than one, a group is
let fall behind: all is late, one consumer is saved, and what is spent so has to be made good later,
at a high price."""

_SMALL_SECONDS = 10.0
"""A hand-over that costs less than the budget of so long is always affordable."""


class Budget:
    """Late events since the start against those that the SLO allows."""

    def __init__(self, slo: SLO) -> None:
        self._allowed = slo.allowed_late_share
        self._reserve = _RESERVE * min(1.0, 0.01 / self._allowed) ** _RESERVE_ROOT
        self._served = 0
        self._seconds = 0.0
        self._hand_over = 0.0
        self.late = 0
        self.price = 0.0

    def see(self, seen: Observation, interval_seconds: float) -> None:
        """Once an interval; sets `price`, in replica-seconds."""
        self._served += seen.served
        self.late += seen.late
        self._seconds += interval_seconds
        window = max(_HALVING_SECONDS, _HALVING_SHARE * self._seconds)
        aim = 1.0 - self._reserve * (_HALVING_SECONDS / window) ** _SETTLING
        deficit = self.late - aim * self._allowed * self._served
        # A hand-over's late events come at once: one or two of them are no trend.
        scale = aim * self._per_second * window + 2 * self._hand_over + 1
        exponent = min(_DEAREST, max(_CHEAPEST, _STEEPNESS * deficit / scale))
        price = _PRICE * 0.01 / self._allowed * math.exp(exponent)
        least = _LEAST / max(seen.new_mu, seen.rate)
        self.price = max(least, price / seen.new_mu)

    @property
    def _per_second(self) -> float:
        """Late events that the SLO has allowed, per second."""
        return self._allowed * self._served / max(self._seconds, 1.0)

    def affords(self, late: float) -> bool:
        """Would `late` more events still be within the SLO, or are they hardly any?"""
        small = late <= self._per_second * _SMALL_SECONDS
        return small or self.late + late <= self._allowed * self._served

    def expect(self, late: float) -> None:
        """A hand-over is on its way that is thought to cost so many."""
        self._hand_over = max(late, 0.7 * self._hand_over + 0.3 * late)
