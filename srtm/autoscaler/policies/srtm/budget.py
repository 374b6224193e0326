"""The error budget of the SLO: what a late event is worth, and which hand-overs can be paid."""

import math

from srtm.autoscaler.observation import Observation
from srtm.autoscaler.policies.srtm.tuning import TUNING, Tuning
from srtm.limits.slo import SLO


class Budget:
    """Late events against those that the SLO allows. What hand-overs are held against is forgotten
    little by little; what the price follows is exact, within limits."""

    def __init__(self, slo: SLO, tuning: Tuning = TUNING) -> None:
        self._tuning = tuning
        self._allowed = slo.allowed_late_share
        self._reserve = tuning.reserve * min(1.0, 0.01 / self._allowed) ** tuning.reserve_root
        # Half of what counts is then younger than half of the window.
        self._window = slo.window_seconds
        self._served = 0.0
        self._late = 0.0
        self._owed = 0.0
        self._seconds = 0.0
        self._elapsed = 0.0
        self._hand_over = 0.0
        self._handed_over = 0.0
        self.late = 0
        """Late events since the start."""
        self.usual = tuning.price * 0.01 / self._allowed
        """A late event's worth in the time of so many served ones, the budget being as planned."""
        self.price = 0.0
        self.discount = 1.0
        """The factor by which what is left unused of the budget lowers the price: 1 or less."""

    def see(self, seen: Observation, interval_seconds: float) -> None:
        """Take in what was seen, once an interval; sets `price`, in replica-seconds."""
        tuning = self._tuning
        self.late += seen.late
        self._elapsed += interval_seconds
        half = max(tuning.memory_seconds, tuning.halving_share * self._elapsed)
        if self._window is not None:
            half = min(half, self._window / 2)
        kept = 0.5 ** (interval_seconds / half)
        self._served = kept * self._served + seen.served
        self._late = kept * self._late + seen.late
        self._seconds = kept * self._seconds + interval_seconds
        self._handed_over *= kept
        window = max(tuning.halving_seconds, tuning.halving_share * self._elapsed)
        if self._window is not None:
            window = min(window, self._window / 2)
        settled = min(1.0, tuning.halving_seconds / window) ** tuning.settling
        aim = 1.0 - self._reserve * settled
        # A hand-over's late events come at once: one or two of them are no trend.
        scale = aim * self._per_second * window + 2 * self._hand_over + 1
        # Beyond what moves the price nothing is owed, or a bad start would be paid for to the end.
        most = tuning.owed * scale / tuning.steepness
        owed = self._owed + seen.late - aim * self._allowed * seen.served
        self._owed = min(tuning.dearest * most, max(tuning.cheapest * most, owed))
        in_debt = self._late > self._allowed * self._served
        exponent = tuning.steepness * self._owed / scale
        cheapest = tuning.in_debt if in_debt else tuning.cheapest
        exponent = min(tuning.dearest, max(cheapest, exponent))
        self.discount = math.exp(min(0.0, exponent))
        price = self.usual * math.exp(exponent)
        least = tuning.least / max(seen.new_mu, seen.rate)
        self.price = max(least, price / seen.new_mu)

    @property
    def _per_second(self) -> float:
        """Late events that the SLO has allowed, per second."""
        return self._allowed * self._served / max(self._seconds, 1.0)

    def affords(self, late: float) -> bool:
        """Would `late` more events still be within the SLO, or within what hand-overs may cost
        anyhow, or are they hardly any?"""
        allowed = self._allowed * self._served
        small = late <= self._per_second * self._tuning.small_seconds
        own = self._handed_over + late <= self._tuning.hand_overs * allowed
        return small or own or self._late + late <= allowed

    def expect(self, late: float) -> None:
        """A hand-over is on its way that is thought to cost so many."""
        kept = self._tuning.hand_over_memory
        self._hand_over = max(late, kept * self._hand_over + (1 - kept) * late)
        self._handed_over += late
