"""The cheapest path over the horizon, and its first step: a small dynamic programme."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Stages:
    """What each group would cost in each of several futures, beyond what no group can help: what
    one partition brings more than a consumer serves. Group 0 is the group as it is, with the queue
    that there is; the others begin with no more of it than they serve within the target. The last
    one is the group as it is too, without the queue: what it will be like once that is served.
    Nothing goes over to these two.

    weights: of the futures, shape (futures,); they sum to 1
    sizes:   consumers, shape (groups,)
    mu:      events/s that the group serves, shape (groups,)
    taken:   events/s that go to partitions whose work a larger group would not divide, each for
             itself, shape (futures, intervals)
    late:    late events of each interval, shape (futures, groups, intervals)
    left:    work left at the start of each interval and at the end of the last one, shape
             (futures, groups, intervals + 1)
    hand:    late events of going over to the group, shape (groups,)
    rates:   events/s, shape (futures, intervals)
    target_seconds: of the SLO
    """

    weights: Floats
    sizes: Floats
    mu: Floats
    taken: Floats
    late: Floats
    left: Floats
    hand: Floats
    rates: Floats
    target_seconds: float

    def relief(self) -> Floats:
        """Late events over the horizon that each group would make fewer than the group as it is,
        its queue apart, shape (groups,)."""
        late = self.weights @ self.late.sum(axis=2)
        relief: Floats = late[-1] - late
        return relief


def first_step(
    stages: Stages,
    price: float,
    interval_seconds: float,
    lead: int,
    persist: int,
    held: float = 0.0,
) -> tuple[int, float]:
    """The group to go over to now (0: stay), and what that saves over waiting, replica-seconds.

    Which future it is shows within a lead, or so: until then whatever is done is done in all of
    them, and each has its own cheapest path from there on. So a hand-over that only one of the
    futures asks for can wait to be asked for, and one that it would come too late for cannot. A
    change that needs no launch is there at once, and so could be undone before the future shows:
    it is charged with `held` of what it costs that the new group is kept until then.

    price:   replica-seconds that one late event is worth
    lead:    intervals from a launch to serving, 1 or more
    persist: intervals for which the end of the horizon is taken to last
    held:    share, 0 to 1
    """
    sizes = stages.sizes
    paths = _Paths(stages, price, interval_seconds, persist)
    horizon, known = paths.horizon, min(lead, paths.horizon)
    move = price * np.maximum(stages.hand, 0.0)
    move[[0, -1]] = np.inf
    up = np.maximum(sizes[None, :] - sizes[:, None], 0.0)
    same = []  # what it comes to where all futures go the same way until `known`
    over = {}  # of each interval, from when it was last the one looked at
    for at in range(horizon, -1, -1):
        land = min(horizon, at + lead)
        # At the end a launch costs what it always does, or it would be put off to there.
        billed = up * (land - at if at < horizon else lead) * interval_seconds
        over[at] = paths.taking_over(at)
        launch = billed + paths.cost(at, land)[..., None] + over[land]
        change = move + np.where(up > 0, launch, over[at])
        paths.set(at, change.min(axis=2))
        if at == horizon:
            over[at] = paths.taking_over(at)
        before = paths.cost(0, at)[:, 0]
        if at == known:
            same.append(float(stages.weights @ (before + paths.value[:, 0, at])))
        elif 0 < at < known:
            same.append(float((stages.weights @ (before[:, None] + change[:, 0])).min()))
    waiting = min(same)
    going = stages.weights @ change[:, 0]
    kept = paths.cost(0, known) + paths.value[..., known] - paths.value[..., 0]
    going += held * np.where(sizes > sizes[0], 0.0, stages.weights @ kept)
    best = int(going.argmin())
    if going[best] < waiting - 1e-9:
        return best, waiting - float(going[best])
    return 0, 0.0


class _Paths:
    """Replica-seconds of each group in each future, filled in from the end of the horizon.

    value: of the cheapest path from the start of an interval on, shape (futures, groups,
           intervals + 1)
    """

    def __init__(self, stages: Stages, price: float, interval_seconds: float, persist: int) -> None:
        self._stages = stages
        self._price = price
        self._seconds = interval_seconds
        self._persist = persist * interval_seconds
        self._mu = stages.mu[:, None] - stages.taken[:, None]  # for all others
        cost = stages.sizes[:, None] * interval_seconds + price * stages.late
        futures, groups, self.horizon = cost.shape
        self._summed = np.zeros((futures, groups, self.horizon + 1))
        self._summed[..., 1:] = np.cumsum(cost, axis=2)
        self._late = np.zeros_like(self._summed)
        self._late[..., 1:] = np.cumsum(stages.late, axis=2)
        self.value = np.zeros_like(self._summed)
        self._late_after = stages.late[..., -1] / interval_seconds * self._persist
        self.value[..., -1] = self._lasting()
        self.value[:, 0, -1] = self.taking_over(self.horizon)[:, 0, -1]

    def cost(self, start: int, end: int) -> Floats:
        """Replica-seconds of keeping the group from interval `start` to interval `end`, shape
        (futures, groups)."""
        kept: Floats = self._summed[..., end] - self._summed[..., start]
        return kept

    def set(self, at: int, change: Floats) -> None:
        """change: of the cheapest path that leaves the group at `at`"""
        stay = self.value[..., at]
        if at < self.horizon:
            stay = self.cost(at, at + 1) + self.value[..., at + 1]
        self.value[..., at] = np.minimum(stay, change)

    def taking_over(self, at: int) -> Floats:
        """The cost of each group from `at` on, in replica-seconds, with what it finds of the queue
        of the group before it: that is served first, and the group is kept until then. Columns are
        groups, rows the groups before them: shape (futures, groups, groups).

        A queue of Q events that come at λ has waited for up to Q / λ. Those that have waited, and
        will, for longer than the target T are (Q - λT) μ / (μ - λ), which are Q - λT and all that
        come until it is served. Of Q counts what is more than the group's own queue would be.
        """
        stages = self._stages
        left = stages.left[..., at : at + 2]  # it goes up and down within an interval
        now = min(at, self.horizon - 1)
        rates = stages.rates[:, now][:, None, None]
        own = np.maximum(rates * stages.target_seconds, left.max(axis=2)[:, None, :])
        over = np.maximum(0.0, left.min(axis=2)[..., None] - own)
        spare = np.maximum(self._mu[..., now][:, None, :] - rates, 1e-9)
        end = (self.horizon - at) * self._seconds + self._persist
        busy = np.minimum(over / spare, end)
        until = at + np.maximum(1, np.ceil(busy / self._seconds)).astype(int)
        until = np.minimum(self.horizon, until)
        future, group = np.ogrid[: len(left), : len(stages.sizes)]
        column = (future[..., None], group[:, None, :])
        beyond = np.maximum(0.0, busy - (self.horizon - at) * self._seconds) / self._persist
        anyhow = self._late[(*column, until)] - self._late[..., at][:, None, :]
        anyhow += beyond * self._late_after[:, None, :]
        late = over + np.maximum(0.0, rates * busy - anyhow)
        path = (self._summed + self.value)[(*column, until)] - self._summed[..., at][:, None, :]
        cost: Floats = path + self._price * late + self._behind(over - spare * busy)
        return cost

    def _lasting(self) -> Floats:
        """Replica-seconds of a group that is kept on and on as in the horizon's last interval, and
        of the queue that grows, shape (futures, groups)."""
        stages = self._stages
        mu = self._mu[..., -1]
        own = np.maximum(0.0, mu) * stages.target_seconds
        over = np.maximum(0.0, stages.left[..., -1] - own)
        grown = over + (stages.rates[:, -1:] - mu) * self._persist
        behind = np.where(over > 0, np.maximum(0.0, grown), 0.0)
        cost: Floats = stages.sizes * self._persist + self._price * self._late_after
        return cost + self._behind(behind)

    def _behind(self, events: Floats) -> Floats:
        """Replica-seconds of events that wait when all is over: they have still to be served, and
        each holds up at least one that comes after it."""
        work: Floats = (self._price + self._stages.sizes / self._stages.mu) * events
        return work
