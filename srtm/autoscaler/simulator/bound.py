"""A lower bound on the replica-minutes of every schedule that keeps an SLO's share.

Time is cut into windows of W = ceil(w) whole seconds, w being the SLO's target. n_k is the number
of different consumers that run at some time in window k. What is relaxed:

- hand-over costs nothing, each window's or the whole group's queue starts empty (see below), and
  an event that will be late is never served;
- billing: a consumer that joins in a window was launched S seconds before (S: the start-up) and is
  billed from then until it leaves. So a level that n_k reaches in windows k1..k2 is billed for at
  least (k2 - k1) W + S - g, where g is how far into a window a join can fall;
- serving, in one of two ways:
  pooled    any consumer serves any event. n consumers end at most n W mu services in a window, and
            of the events before it at most n (w mu + 1) are in time.
  by owner  for arrivals at full seconds only, with all of a second at once. A poll takes all that
            waits, and a partition changes hands only between polls: so those of its events that
            are in time have one owner, and each owner serves w mu in time. Every second begins
            with empty queues and the best split of the partitions over n_k consumers.

The error budget is relaxed with a price (Lagrange): the cheapest n_k is found by dynamic
programming, and its cost + price x (late - allowed) is a bound, whatever the price. The best of
some prices is taken; by owner where that holds, as it is the sharper one.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from srtm.autoscaler.simulator.arrivals import Arrivals
from srtm.autoscaler.simulator.setting import Setting

Floats = NDArray[np.float64]

_MOST_SPLIT = 10
"""`by owner` looks at all splits of the partitions, 3^P steps; with more it is left out."""
_PRICES = (1e-4, 10.0)
"""replica-seconds for a late event: one replica, for a second, against 10,000 events to 0.1."""
_STEPS = 12
"""The steps of golden section: the price is then known to 4 %, and the bound is flat near its best
price."""
_CERTAIN = 1e9
"""A price at which replicas count for nothing: what is late then is late in every schedule."""


def lower_bound(arrivals: Arrivals, setting: Setting) -> float:
    """Replica-minutes that no schedule undercuts which serves the SLO's percentile of the events
    within its target. math.inf when it is certain that none does."""
    allowed = arrivals.events * setting.slo.allowed_late_share + 1e-6
    windows = _Windows.of(arrivals, setting)
    if _late_alone(arrivals, setting, windows) > allowed:
        return math.inf
    late = late_by_owner(arrivals, setting)
    dual = _pooled(arrivals, setting, windows) if late is None else _by_owner(late, windows)
    free = windows.seconds * windows.levels * (1 + max(0.0, windows.ramp))  # no replicas cost more
    if (dual(_CERTAIN) - free) / _CERTAIN > allowed:
        return math.inf
    seconds = _work(arrivals, setting, allowed)
    if windows.ramp >= 0:  # else a level could be had for nothing, one window at a time
        seconds = max(seconds, _highest(lambda price: dual(price) - price * allowed))
    return seconds / 60


def _late_alone(arrivals: Arrivals, setting: Setting, windows: "_Windows") -> int:
    """Late events with a consumer for each partition: in every window, what it cannot end and
    cannot carry into the next one in time."""
    ended = math.ceil(windows.width * setting.mu - 1e-6)
    carried = math.floor(setting.slo.target_seconds * setting.mu + 1e-6) + 1
    starts = np.arange(0, arrivals.seconds, windows.width)
    late = 0
    for row in np.add.reduceat(arrivals.per_second(), starts, axis=1).tolist():
        waiting = 0
        for events in row:
            waiting = max(0, waiting + events - ended)
            late += max(0, waiting - carried)
            waiting = min(waiting, carried)
    return late


def _work(arrivals: Arrivals, setting: Setting, allowed: float) -> float:
    """Seconds: the group is never empty, and whoever serves is billed, but for what is served after
    the workload, in time: at most w mu + 1 in each partition."""
    unbilled = len(arrivals.times) * (setting.slo.target_seconds * setting.mu + 1)
    return max(float(arrivals.seconds), (arrivals.events - allowed - unbilled) / setting.mu)


@dataclass(frozen=True, slots=True)
class _Windows:
    """width: W in seconds. ramp: what a rise by one level costs beside its windows, seconds.
    alone: the first windows, in which nobody can have joined yet."""

    width: int
    count: int
    seconds: int
    levels: int
    ramp: float
    initial: int
    alone: int

    @classmethod
    def of(cls, arrivals: Arrivals, setting: Setting) -> "_Windows":
        width = math.ceil(setting.slo.target_seconds)
        latest = float(width)  # into a window that a join can fall
        if setting.decision_seconds == 1:
            latest += (setting.lag_phase + setting.startup_seconds) % 1 - 1
        return cls(
            width=width,
            count=-(-arrivals.seconds // width),
            seconds=arrivals.seconds,
            levels=len(arrivals.times),
            ramp=setting.startup_seconds - latest - width,
            initial=min(setting.initial, len(arrivals.times)),
            alone=int((setting.startup_seconds + setting.lag_phase) // width),
        )

    def start(self) -> Floats:
        """Cost of each level before the first window: those who are there from the start are
        billed until the last window that they are needed in begins."""
        cost = np.full(self.levels, math.inf)
        cost[: self.initial] = -self.width * np.arange(self.initial)
        return cost

    def rises(self, window: int) -> Floats:
        """[n, n']: cost of n' consumers in `window` after n in the one before, and of its width."""
        level = np.arange(1.0, self.levels + 1)
        rise = np.maximum(0, level[None, :] - level[:, None])
        cost = self.ramp * rise + self.width * (level[None, :] - 1.0)
        if window < self.alone:
            cost[:, level > self.initial] = math.inf
        return cost


Dual = Callable[[float], float]
"""price -> least cost + price x late events, replica-seconds"""


def _by_owner(late: Floats, windows: _Windows) -> Dual:
    def dual(price: float) -> float:
        value = windows.start()
        for k, events in enumerate(late):
            rises = windows.rises(k)
            value = (value[:, None] + rises).min(axis=0) + price * events
        return float(value.min()) + windows.seconds

    return dual


def late_by_owner(arrivals: Arrivals, setting: Setting) -> Floats | None:
    """[second, n - 1]: fewest late events of those that come in that second, with n consumers.
    None where the argument does not hold: arrivals within a second, w of more than one, short
    polls, or too many partitions."""
    partitions = len(arrivals.times)
    target = setting.slo.target_seconds
    if (
        partitions > _MOST_SPLIT
        or target > 1
        or setting.max_poll < target * setting.mu
        or any((times % 1 != 0).any() for times in arrivals.times)
    ):
        return None
    counts = arrivals.per_second()
    events = counts.sum(axis=0)
    sets = 1 << partitions
    load = np.zeros((sets, arrivals.seconds))
    for members in range(1, sets):
        lowest = (members & -members).bit_length() - 1
        load[members] = load[members & (members - 1)] + counts[lowest]
    alone = np.minimum(load, math.floor(target * setting.mu + 1e-6))
    best = alone.copy()
    late = [events - best[-1]]
    for _ in range(1, partitions):
        more = best.copy()
        for members in range(1, sets):
            lowest = members & -members
            rest = members ^ lowest
            part = rest  # one consumer has the lowest and `part`, the others the rest
            while part:
                part = (part - 1) & rest
                np.maximum(
                    more[members], alone[part | lowest] + best[rest ^ part], out=more[members]
                )
        best = more
        late.append(events - best[-1])
    return np.stack(late, axis=1).astype(np.float64)


def _pooled(arrivals: Arrivals, setting: Setting, windows: _Windows) -> Dual:
    """State: the level, and how many events wait at the end of a window and can be in time."""
    service = setting.slo.target_seconds * setting.mu
    ended = [math.ceil(windows.width * setting.mu - 1e-6) * (n + 1) for n in range(windows.levels)]
    carried = [(math.floor(service + 1e-6) + 1) * (n + 1) for n in range(windows.levels)]
    most = carried[-1]
    per_second = arrivals.per_second().sum(axis=0)
    comes = np.add.reduceat(per_second, np.arange(0, arrivals.seconds, windows.width)).tolist()

    def dual(price: float) -> float:
        value = np.full((windows.levels, most + 1), math.inf)
        value[:, 0] = windows.start()
        for k, events in enumerate(comes):
            reached = (value[:, None, :] + windows.rises(k)[:, :, None]).min(axis=0)
            value = np.full((windows.levels, most + 1), math.inf)
            for n, before in enumerate(reached):
                waiting = _drop(before, carried[n], price)
                more = events - ended[n]
                if more >= 0:
                    after = np.concatenate((np.full(more, math.inf), waiting))
                else:
                    idle = waiting[: 1 - more].min()
                    after = np.concatenate(([idle], waiting[1 - more :]))
                after = _drop(after, most, price)
                value[n, : len(after)] = after
        return float(value.min()) + windows.seconds

    return dual


def _drop(value: Floats, most: int, price: float) -> Floats:
    """value[x] of x waiting events; those past `most` are late."""
    if len(value) <= most + 1:
        return value
    kept = value[: most + 1].copy()
    over = value[most + 1 :] + price * np.arange(1, len(value) - most)
    kept[most] = min(kept[most], over.min())
    return kept


def _highest(dual: Dual) -> float:
    """Golden section over the logarithm of the price: the dual is concave in the price."""
    low, high = math.log(_PRICES[0]), math.log(_PRICES[1])
    ratio = (math.sqrt(5) - 1) / 2
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = dual(math.exp(left)), dual(math.exp(right))
    best = max(at_left, at_right)
    for _ in range(_STEPS):
        if at_left < at_right:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = dual(math.exp(right))
        else:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = dual(math.exp(left))
        best = max(best, at_left, at_right)
    return best
