"""The error budget of the SLO: what a late event is worth, and which hand-overs can be paid."""

import math

from srtm.autoscaler.observation import Observation
from srtm.autoscaler.policies.srtm.tuning import TUNING, Tuning
from srtm.slo import SLO


class Budget:
    """Late events since the start against those that the SLO allows."""

    def __init__(self, slo: SLO, tuning: Tuning = TUNING) -> None:
        self._tuning = tuning
        self._allowed = slo.allowed_late_share
        self._reserve = tuning.reserve * min(1.0, 0.01 / self._allowed) ** tuning.reserve_root
        self._served = 0
        self._seconds = 0.0
        self._hand_over = 0.0
        self.late = 0
        self.price = 0.0

    def see(self, seen: Observation, interval_seconds: float) -> None:
        """Once an interval; sets `price`, in replica-seconds."""
        tuning = self._tuning
        self._served += seen.served
        self.late += seen.late
        self._seconds += interval_seconds
        window = max(tuning.halving_seconds, tuning.halving_share * self._seconds)
        aim = 1.0 - self._reserve * (tuning.halving_seconds / window) ** tuning.settling
        deficit = self.late - aim * self._allowed * self._served
        # A hand-over's late events come at once: one or two of them are no trend.
        scale = aim * self._per_second * window + 2 * self._hand_over + 1
        exponent = min(tuning.dearest, max(tuning.cheapest, tuning.steepness * deficit / scale))
        price = tuning.price * 0.01 / self._allowed * math.exp(exponent)
        least = tuning.least / max(seen.new_mu, seen.rate)
        self.price = max(least, price / seen.new_mu)

    @property
    def _per_second(self) -> float:
        """Late events that the SLO has allowed, per second."""
        return self._allowed * self._served / max(self._seconds, 1.0)

    def affords(self, late: float) -> bool:
        """Would `late` more events still be within the SLO, or are they hardly any?"""
        small = late <= self._per_second * self._tuning.small_seconds
        return small or self.late + late <= self._allowed * self._served

    def expect(self, late: float) -> None:
        """A hand-over is on its way that is thought to cost so many."""
        kept = self._tuning.hand_over_memory
        self._hand_over = max(late, kept * self._hand_over + (1 - kept) * late)
