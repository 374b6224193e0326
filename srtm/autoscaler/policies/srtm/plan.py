"""The cheapest path over the horizon, and its first step: a small dynamic programme."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Stages:
    """What each group would cost. Group 0 is the group as it is.

    sizes:   consumers, shape (groups,)
    late:    late events of each interval, shape (groups, intervals)
    left:    work left at the end of it, the same shape
    hand:    late events of going over to the group, shape (groups,)
    rates:   events/s forecast, shape (intervals,)
    room:    events that the group serves within the SLO's target, shape (groups,)
    mu:      events/s that the group serves, shape (groups,)
    """

    sizes: Floats
    late: Floats
    left: Floats
    hand: Floats
    rates: Floats
    room: Floats
    mu: Floats


def first_step(
    stages: Stages, price: float, interval_seconds: float, lead: int, persist: int
) -> tuple[int, float]:
    """The group to go over to now (0: stay), and what that saves over waiting an interval more,
    replica-seconds.

    price:   replica-seconds that one late event is worth
    lead:    intervals from a launch to serving, 1 or more
    persist: intervals for which the end of the horizon is taken to last
    """
    sizes = stages.sizes
    cost = sizes[:, None] * interval_seconds + price * stages.late
    groups, horizon = cost.shape
    move = np.tile(price * np.maximum(stages.hand, 0.0), (groups, 1))
    move[:, 0] = np.inf  # the group as it is now cannot be gone back to
    up = np.maximum(sizes[None, :] - sizes[:, None], 0.0)
    launch = up * lead * interval_seconds

    # Each event that waits too long at the end holds up at least one that comes after it: where as
    # many are late whatever is done, the group that falls behind less is still the better one.
    behind = np.maximum(0.0, stages.left[:, -1] - stages.room)
    lasting = cost[:, -1] * persist + price * behind
    value = np.zeros((horizon + 1, groups))
    # Without its backlog a launch at the end would be the cheapest, and always put off to there.
    backlog = np.where(up > 0, price * _late_in_backlog(stages, horizon - 1), 0.0)
    value[horizon] = np.minimum(lasting, (lasting[None, :] + move + launch + backlog).min(axis=1))
    summed = np.concatenate((np.zeros((groups, 1)), np.cumsum(cost, axis=1)), axis=1)
    step, saved = 0, 0.0
    for at in range(horizon - 1, -1, -1):
        stay = cost[:, at] + value[at + 1]
        fall = move + cost[None, :, at] + value[at + 1][None, :]
        land = min(horizon, at + lead)
        wait = (summed[:, land] - summed[:, at])[:, None] + up * (land - at) * interval_seconds
        backlog = price * _late_in_backlog(stages, min(land, horizon - 1))
        rise = wait + move + backlog + value[land][None, :]
        change = np.where(up > 0, rise, fall)
        best = change.argmin(axis=1)
        least = change[np.arange(groups), best]
        value[at] = np.minimum(stay, least)
        if at == 0 and least[0] < stay[0] - 1e-9:
            step, saved = int(best[0]), float(stay[0] - least[0])
    return step, saved


def _late_in_backlog(stages: Stages, at: int) -> Floats:
    """Late events while a group that takes over, column, serves what the one before it, row, has
    left behind: what waits, and what comes until the queue is back within the target."""
    behind = stages.left[:, at][:, None]
    spare = np.maximum(stages.mu - stages.rates[at], 0.05 * stages.mu)
    over = np.maximum(0.0, behind - stages.room)
    late: Floats = behind * np.minimum(1.0, behind / stages.room) + over / spare * stages.rates[at]
    return late
