"""What the next seconds would be like under a group: late events, work left, and the hand-over."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

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
likely each of them is, but for surges."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """The future at one decision.

    shape:  arrivals for one event an interval, shape (paths, intervals * slots, partitions)
    rates:  forecast of each interval, events/s; errors: its standard error
    surges: rises that no forecast sees, events/s, shape (surges,); surge_weights: how likely each
    lead:   intervals within which such a rise is there
    """

    seen: Observation
    shape: Floats
    rates: Floats
    errors: Floats
    interval_seconds: float
    target_seconds: float
    surges: Floats = field(default_factory=lambda: np.zeros(0))
    surge_weights: Floats = field(default_factory=lambda: np.zeros(0))
    lead: int = 1
    longest_poll_seconds: float = TUNING.longest_poll_seconds
    usual: dict[int, float] = field(init=False)
    """Events/s of each partition, of the last minute's shares."""
    hot: frozenset[int] = field(init=False)
    """Partitions that bring more than the fastest consumer serves, now and as a mean of the last
    minute. Such a backlog grows whoever has it: it is no reason for a larger group."""

    def __post_init__(self) -> None:
        partitions, fastest = self.seen.partitions, self._fastest
        shares = self.shape.sum(axis=1).mean(axis=0) / len(self.rates)
        each = (shares * float(self.rates[0])).tolist()
        usual = {p.id: rate for p, rate in zip(partitions, each, strict=True)}
        hot = (p.id for p in partitions if min(p.rate, usual[p.id]) > fastest)
        object.__setattr__(self, "usual", usual)
        object.__setattr__(self, "hot", frozenset(hot))

    @property
    def _fastest(self) -> float:
        return max((self.seen.new_mu, *(c.mu for c in self.seen.consumers)))

    @property
    def _slots(self) -> int:
        return int(self.shape.shape[1]) // len(self.rates)

    @property
    def _slot_seconds(self) -> float:
        return self.interval_seconds / self._slots

    @property
    def weights(self) -> Floats:
        """How likely each future is."""
        usual = WEIGHTS * (1.0 - self.surge_weights.sum())
        return np.concatenate((usual, self.surge_weights))

    @property
    def futures(self) -> Floats:
        """Rates of each interval, were the forecast as wrong as it has been, events/s: shape
        (futures, intervals). Errors of a usual kind first, then surges."""
        errors = np.outer(_POINTS, self.errors)
        risen = np.minimum(1.0, np.arange(1.0, len(self.rates) + 1) / self.lead)
        rises = np.outer(self.surges, risen)
        rates: Floats = np.maximum(0.0, self.rates + np.concatenate((errors, rises)))
        return rates

    def mu(self, group: Group) -> Floats:
        """Of each consumer, events/s."""
        known = {c.id: c.mu for c in self.seen.consumers}
        new = self.seen.new_mu
        return np.array([new if c is None else known[c] for c, _ in group])

    def serves(self, group: Group) -> float:
        """Events/s of all that have something to do. Who has a hot partition serves what comes
        there: others can neither help it nor be helped by it."""
        return math.fsum(
            max(mu, math.fsum(self.usual.get(p, 0.0) for p in partitions))
            if self.hot & set(partitions)
            else mu
            for (_, partitions), mu in zip(group, self.mu(group).tolist(), strict=True)
            if partitions
        )

    def late(self, group: Group, queue: bool = False) -> tuple[Floats, Floats]:
        """Late events in each interval of each future, shape (futures, intervals), and the work
        left at the start of each and at the end of the last one: means over the paths.

        queue: with all that waits; or with no more than is served within the target, as what a
               group finds depends on when it takes over
        """
        late, left = self.late_of([group], [queue])
        return late[:, 0], left[:, 0]

    def late_of(self, groups: Sequence[Group], queues: Sequence[bool]) -> tuple[Floats, Floats]:
        """`late` of several groups at once, shapes (futures, groups, intervals) and (futures,
        groups, intervals + 1). What groups have in common is computed once."""
        lags = {p.id: p.lag for p in self.seen.partitions}
        for p in self.hot:
            lags[p] = min(lags[p], self._fastest * self.target_seconds)
        columns: dict[tuple[tuple[int, ...], float, bool], int] = {}
        members = np.zeros((len(groups), sum(map(len, groups))))
        for row, (group, queue) in enumerate(zip(groups, queues, strict=True)):
            for (_, partitions), mu in zip(group, self.mu(group), strict=True):
                column = columns.setdefault((partitions, float(mu), queue), len(columns))
                members[row, column] += 1.0
        members = members[:, : len(columns)]
        mu = np.array([each for _, each, _ in columns])
        waiting = np.array([math.fsum(lags.get(p, 0.0) for p in ps) for ps, _, _ in columns])
        behind = np.array([queue for _, _, queue in columns])
        waiting = np.where(behind, waiting, np.minimum(waiting, mu * self.target_seconds))
        arrivals = self._arrivals([partitions for partitions, _, _ in columns])
        late, left = late_events(arrivals, mu, self._slot_seconds, self.target_seconds, waiting)
        shape = (len(self.rates), self._slots)
        ends = left.mean(axis=1)[:, self._slots - 1 :: self._slots]
        sums = late.mean(axis=1).reshape(len(late), *shape, len(columns)).sum(axis=2)
        starts = np.broadcast_to(waiting, (len(late), 1, len(columns)))
        works = np.concatenate((starts, ends), axis=1)
        return (sums @ members.T).swapaxes(1, 2), (works @ members.T).swapaxes(1, 2)

    def hand_over(self, old: Group, new: Group, kind: Handover, stop_seconds: float) -> float:
        """Late events that going from `old` to `new` now would cause."""
        return self.hand_overs(old, [new], kind, [stop_seconds])[0]

    def hand_overs(
        self, old: Group, groups: Sequence[Group], kind: Handover, stops: Sequence[float]
    ) -> list[float]:
        """`hand_over` to each of several groups, of which each has its own stop."""
        owners = {p: consumer for consumer, ps in old for p in ps}
        polls = self._poll_seconds(old)
        whole, moved, mu, still, rows = [], [], [], [], []
        for row, (group, stop) in enumerate(zip(groups, stops, strict=True)):
            for (consumer, partitions), each in zip(group, self.mu(group), strict=True):
                moves = tuple(
                    p
                    for p in partitions
                    if kind is Handover.EAGER or consumer is None or owners.get(p) != consumer
                )
                givers = polls if kind is not Handover.DIRECT else map(owners.get, moves)
                poll = max((polls.get(giver, 0.0) for giver in givers), default=0.0)
                if moves:  # what nothing is moved to goes on as it would
                    whole.append(partitions)
                    moved.append(moves)
                    mu.append(each)
                    still.append(stop + poll)
                    rows.append(row)
        if not rows:
            return [0.0] * len(groups)
        arrivals, speed, slot = self._arrivals(whole), np.array(mu), self._slot_seconds
        held, stopped = self._arrivals(moved), np.array(still)
        late = late_by_stop(arrivals, held, speed, slot, self.target_seconds, stopped)
        free, _ = late_events(arrivals, speed, slot, self.target_seconds)
        extra = self.weights @ (late - free.sum(axis=-2)).mean(axis=1)
        sums = np.bincount(rows, weights=extra, minlength=len(groups))
        return [max(0.0, float(each)) for each in sums]

    def _poll_seconds(self, old: Group) -> dict[str | None, float]:
        """Of each owner: it ends its poll before it gives anything up, so what waits there is
        served first."""
        lags = {p.id: p.lag for p in self.seen.partitions}
        return {
            consumer: min(self.longest_poll_seconds, math.fsum(lags.get(p, 0.0) for p in ps) / mu)
            for mu, (consumer, ps) in zip(self.mu(old).tolist(), old, strict=True)
        }

    def _arrivals(self, parts: Sequence[tuple[int, ...]]) -> Floats:
        """Events of sets of partitions, shape (futures, paths, slots, sets)."""
        index = {p.id: i for i, p in enumerate(self.seen.partitions)}
        owner = np.zeros((len(index), len(parts)))
        for column, partitions in enumerate(parts):
            owner[[index[p] for p in partitions if p in index], column] = 1.0
        counts = np.repeat(self.futures * self.interval_seconds, self._slots, axis=1)
        arrivals: Floats = (self.shape @ owner)[None] * counts[:, None, :, None]
        return arrivals
