"""What the next seconds would be like under a group: late events, work left, and the hand-over."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from srtm.autoscaler.decision import Handover
from srtm.autoscaler.fluid import late_by_stop, late_events
from srtm.autoscaler.observation import Observation
from srtm.autoscaler.policies.srtm.groups import Group
from srtm.autoscaler.policies.srtm.plan import Stages
from srtm.autoscaler.policies.srtm.tuning import TUNING
from srtm.limits.ceiling import Ceiling

Floats = NDArray[np.float64]
_Row = tuple[tuple[tuple[int, ...], float], ...]
"""The consumers of a group, each as its partitions and its mu in events/s."""

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
    most:   consumers that there may be (None: one for each partition)
    ceiling: what bounds the arrivals (None: nothing); level: events of its burst that can come now
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
    most: int | None = None
    uneven: float = TUNING.uneven
    ceiling: Ceiling | None = None
    level: float = 0.0
    heavy: tuple[int, ...] = field(init=False)
    """Partitions that keep a consumer busy, or more than busy, for a while (more waits than the
    fastest serves within the target, or more may come than it serves), with more work than each of
    the most consumers would have of an even one. A larger group cannot divide this: only one
    consumer reads a partition."""
    _lags: dict[int, float] = field(init=False)

    def __post_init__(self) -> None:
        shares = self.shape.sum(axis=1).mean(axis=0) / len(self.rates)
        lags = np.array([p.lag for p in self.seen.partitions])
        seconds, fastest = len(self.rates) * self.interval_seconds, self._fastest
        busy = (lags > fastest * self.target_seconds) | (
            shares * float(self.futures.max()) > fastest
        )
        work = lags + shares * float(self.rates.mean()) * seconds
        even = work.sum() / min(self.most or len(lags), len(lags))
        busy &= work > self.uneven * even
        heavy = [p.id for p, each in zip(self.seen.partitions, busy, strict=True) if each]
        object.__setattr__(self, "heavy", tuple(heavy))
        object.__setattr__(self, "_lags", {p.id: p.lag for p in self.seen.partitions})

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
        return rates if self.ceiling is None else self._within(rates, self.ceiling)

    @property
    def at_the_end(self) -> str:
        """The forecast of the last interval, events/s, and what the largest surge would make of
        it, for people to read."""
        text = f"{self.rates[-1]:.0f}"
        if self.surges.size:
            largest = int(self.surges.argmax())
            risen = self.futures[len(WEIGHTS) + largest, -1]
            text += f" ({risen:.0f} with a probability of {self.surge_weights[largest]:.1%})"
        return text

    def _within(self, rates: Floats, ceiling: Ceiling) -> Floats:
        """The rates, but for what the contract's bucket has no token for."""
        counts, brought = rates * self.interval_seconds, ceiling.rate * self.interval_seconds
        level = np.full(len(rates), self.level)
        for interval in range(counts.shape[1]):
            level = level + brought
            counts[:, interval] = np.minimum(counts[:, interval], level)
            level = np.minimum(ceiling.burst, level - counts[:, interval])
        within: Floats = counts / self.interval_seconds
        return within

    def mu(self, group: Group) -> Floats:
        """The mu of each consumer of the group, events/s."""
        known = {c.id: c.mu for c in self.seen.consumers}
        new = self.seen.new_mu
        return np.array([new if c is None else known[c] for c, _ in group])

    def stages(self, groups: Sequence[Group]) -> Stages:
        """The stages of `groups`, of which the first is the group as it is, with its queue.

        What a heavy partition would leave, and make late, with the fastest consumer to itself is
        taken off them all, and so is what it takes of its consumer: no group can help it.
        """
        rows = [self._rows(group) for group in groups]
        alone = [(((p,), self._fastest),) for p in self.heavy]
        first = len(groups)
        queues = [True] + [False] * (first - 1) + [True] * len(alone)
        late, left = self._queues([*rows, *alone], queues)
        came = self._arrivals([(p,) for p in self.heavy]).mean(axis=1)
        came = came.reshape(len(came), len(self.rates), self._slots, len(alone)).sum(axis=2)
        came = came.swapaxes(1, 2)  # (futures, heavy partitions, intervals)
        served = (came - np.diff(left[:, first:])) / self.interval_seconds
        return Stages(
            weights=self.weights,
            sizes=np.array([float(len(group)) for group in groups]),
            mu=np.array([math.fsum(mu for ps, mu in row if ps) for row in rows]),
            taken=served.sum(axis=1),
            late=_beyond(late, first),
            left=_beyond(left, first),
            hand=np.zeros(first),
            rates=np.maximum(0.0, self.futures - came.sum(axis=1) / self.interval_seconds),
            target_seconds=self.target_seconds,
        )

    def late(self, group: Group, queue: bool = False) -> tuple[Floats, Floats]:
        """Late events in each interval of each future, shape (futures, intervals), and the work
        left at the start of each and at the end of the last one: means over the paths.

        queue: with all that waits; or with no more than is served within the target, but at heavy
               partitions, as what a group finds depends on when it takes over
        """
        late, left = self._queues([self._rows(group)], [queue])
        return late[:, 0], left[:, 0]

    def _rows(self, group: Group) -> _Row:
        mu = self.mu(group).tolist()
        return tuple((partitions, each) for (_, partitions), each in zip(group, mu, strict=True))

    def _queues(self, rows: Sequence[_Row], queues: Sequence[bool]) -> tuple[Floats, Floats]:
        """`late` of several groups at once, shapes (futures, groups, intervals) and (futures,
        groups, intervals + 1). What groups have in common is computed once."""
        columns: dict[tuple[tuple[int, ...], float, bool], int] = {}
        members = np.zeros((len(rows), sum(map(len, rows))))
        for place, (row, queue) in enumerate(zip(rows, queues, strict=True)):
            for partitions, each in row:
                column = columns.setdefault((partitions, each, queue), len(columns))
                members[place, column] += 1.0
        members = members[:, : len(columns)]
        mu = np.array([each for _, each, _ in columns])
        waiting = np.array([self._waiting(*column) for column in columns])
        arrivals = self._arrivals([partitions for partitions, _, _ in columns])
        late, left = late_events(arrivals, mu, self._slot_seconds, self.target_seconds, waiting)
        shape = (len(self.rates), self._slots)
        ends = left.mean(axis=1)[:, self._slots - 1 :: self._slots]
        sums = late.mean(axis=1).reshape(len(late), *shape, len(columns)).sum(axis=2)
        starts = np.broadcast_to(waiting, (len(late), 1, len(columns)))
        works = np.concatenate((starts, ends), axis=1)
        return (sums @ members.T).swapaxes(1, 2), (works @ members.T).swapaxes(1, 2)

    def _waiting(self, partitions: tuple[int, ...], mu: float, queue: bool) -> float:
        """Events at the start of a consumer's queue. What waits at a heavy partition is there
        whenever a group takes over."""
        light = math.fsum(self._lags.get(p, 0.0) for p in partitions if p not in self.heavy)
        if not queue:
            light = min(light, mu * self.target_seconds)
        return light + math.fsum(self._lags[p] for p in self.heavy if p in partitions)

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
        """Seconds that the poll of each owner still takes: it ends its poll before it gives
        anything up, so what waits there is served first."""
        return {
            consumer: min(
                self.longest_poll_seconds, math.fsum(self._lags.get(p, 0.0) for p in ps) / mu
            )
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


def _beyond(found: Floats, groups: int) -> Floats:
    """What each of the first `groups` has beyond the sum of all others, each of which is a
    partition alone."""
    beyond: Floats = np.maximum(0.0, found[:, :groups] - found[:, groups:].sum(axis=1)[:, None])
    return beyond
