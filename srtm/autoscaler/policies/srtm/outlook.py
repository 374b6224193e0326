"""What the next seconds would be like under a group: late events, work left, and the hand-over."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from srtm.autoscaler.decision import Handover
from srtm.autoscaler.observation import Observation
from srtm.autoscaler.policies.srtm.groups import Group
from srtm.autoscaler.policies.srtm.queue import late_by_stop, late_events
from srtm.autoscaler.policies.srtm.tuning import TUNING

Floats = NDArray[np.float64]

_POINTS = (-math.sqrt(3.0), 0.0, math.sqrt(3.0))
WEIGHTS = np.array([1 / 6, 2 / 3, 1 / 6])
"""Points (in standard errors) that stand for a normal error (Gauss-Hermite): three futures, and how
likely each of them is."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """The future at one decision.

    shape:  arrivals for one event an interval, shape (paths, intervals * slots, partitions)
    rates:  forecast of each interval, events/s; errors: its standard error
    """

    seen: Observation
    shape: Floats
    rates: Floats
    errors: Floats
    interval_seconds: float
    target_seconds: float
    longest_poll_seconds: float = TUNING.longest_poll_seconds

    @property
    def _slots(self) -> int:
        return int(self.shape.shape[1]) // len(self.rates)

    @property
    def _slot_seconds(self) -> float:
        return self.interval_seconds / self._slots

    @property
    def futures(self) -> Floats:
        """Rates of each interval, were the forecast as wrong as it has been, events/s: shape
        (futures, intervals)."""
        errors = np.outer(_POINTS, self.errors)
        rates: Floats = np.maximum(0.0, self.rates + errors)
        return rates

    def mu(self, group: Group) -> Floats:
        """Of each consumer, events/s."""
        known = {c.id: c.mu for c in self.seen.consumers}
        new = self.seen.new_mu
        return np.array([new if c is None else known[c] for c, _ in group])

    def late(self, group: Group, queue: bool = False) -> tuple[Floats, Floats]:
        """Late events in each interval of each future, shape (futures, intervals), and the work
        left at the start of each and at the end of the last one: means over the paths.

        queue: with all that waits; or with no more than is served within the target, as what a
               group finds depends on when it takes over
        """
        mu = self.mu(group)
        lags = {p.id: p.lag for p in self.seen.partitions}
        waiting = np.array([math.fsum(lags.get(p, 0.0) for p in ps) for _, ps in group])
        if not queue:
            waiting = np.minimum(waiting, mu * self.target_seconds)
        late, left = late_events(
            self._arrivals(group), mu, self._slot_seconds, self.target_seconds, waiting
        )
        shape = (len(WEIGHTS), len(self.rates), self._slots)
        ends = left.sum(axis=-1).mean(axis=1).reshape(shape)[..., -1]
        start = np.full((len(WEIGHTS), 1), waiting.sum())
        return (
            late.sum(axis=-1).mean(axis=1).reshape(shape).sum(axis=-1),
            np.concatenate((start, ends), axis=1),
        )

    def hand_over(self, old: Group, new: Group, kind: Handover, stop_seconds: float) -> float:
        """Late events that going from `old` to `new` now would cause."""
        owners = {p: consumer for consumer, ps in old for p in ps}
        eager = kind is Handover.EAGER
        moved: Group = tuple(
            (c, tuple(p for p in ps if eager or c is None or owners.get(p) != c)) for c, ps in new
        )
        if not any(ps for _, ps in moved):
            return 0.0
        mu, arrivals = self.mu(new), self._arrivals(new)
        stop = stop_seconds + self._poll_seconds(old)
        slot = self._slot_seconds
        stopped = late_by_stop(arrivals, self._arrivals(moved), mu, slot, self.target_seconds, stop)
        free, _ = late_events(arrivals, mu, slot, self.target_seconds)
        extra = stopped - free.sum(axis=(-1, -2))
        return max(0.0, float(WEIGHTS @ extra.mean(axis=1)))

    def _poll_seconds(self, old: Group) -> float:
        """An owner ends its poll before a partition can move, so what waits is served first."""
        lags = {p.id: p.lag for p in self.seen.partitions}
        waits = [
            math.fsum(lags.get(p, 0.0) for p in ps) / mu
            for mu, (_, ps) in zip(self.mu(old), old, strict=True)
        ]
        return min(self.longest_poll_seconds, max(waits, default=0.0))

    def _arrivals(self, group: Group) -> Floats:
        """Events, shape (futures, paths, slots, consumers)."""
        index = {p.id: i for i, p in enumerate(self.seen.partitions)}
        owner = np.zeros((len(index), len(group)))
        for column, (_, partitions) in enumerate(group):
            owner[[index[p] for p in partitions if p in index], column] = 1.0
        counts = np.repeat(self.futures * self.interval_seconds, self._slots, axis=1)
        arrivals: Floats = (self.shape @ owner)[None] * counts[:, None, :, None]
        return arrivals
