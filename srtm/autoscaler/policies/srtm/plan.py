"""The cheapest path over the horizon, and its first step: a small dynamic programme."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Stages:
    """What each group would cost in each of several futures. Group 0 is the group as it is.

    weights: of the futures, shape (futures,); they sum to 1
    sizes:   consumers, shape (groups,)
    late:    late events of each interval, shape (futures, groups, intervals)
    left:    work left at the end of it, the same shape
    hand:    late events of going over to the group, shape (groups,)
    rates:   events/s, shape (futures, intervals)
    room:    events that the group serves within the SLO's target, shape (groups,)
    mu:      events/s that the group serves, shape (groups,)
    """

    weights: Floats
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
    """The group to go over to now (0: stay), and what that saves over waiting, replica-seconds.

    Which future it is shows within a lead, or so: until then whatever is done is done in all of
    them, and each has its own cheapest path from there on. So a hand-over that only one of the
    futures asks for can wait to be asked for, and one that it would come too late for cannot.

    price:   replica-seconds that one late event is worth
    lead:    intervals from a launch to serving, 1 or more
    persist: intervals for which the end of the horizon is taken to last
    """
    sizes = stages.sizes
    cost = sizes[:, None] * interval_seconds + price * stages.late
    futures, groups, horizon = cost.shape
    move = price * np.maximum(stages.hand, 0.0)
    move[0] = np.inf  # the group as it is now cannot be gone back to
    up = np.maximum(sizes[None, :] - sizes[:, None], 0.0)
    launch = up * lead * interval_seconds

    # Each event that waits too long at the end has still to be served, and holds up at least one
    # that comes after it: where as many are late whatever is done, the group that falls behind
    # less is still the better one.
    behind = np.maximum(0.0, stages.left[..., -1] - stages.room)
    lasting = cost[..., -1] * persist + (price + sizes / stages.mu) * behind
    value = np.zeros((horizon + 1, futures, groups))
    # Without its backlog a launch at the end would be the cheapest, and always put off to there.
    backlog = np.where(up > 0, _backlog(stages, price, horizon - 1), 0.0)
    change = lasting[:, None, :] + move + launch + backlog
    value[horizon] = np.minimum(lasting, change.min(axis=2))
    summed = np.concatenate((np.zeros((futures, groups, 1)), np.cumsum(cost, axis=2)), axis=2)
    known = min(lead, horizon)
    same = []  # what it comes to where all futures go the same way until `known`
    for at in range(horizon, -1, -1):
        if at < horizon:
            stay = cost[..., at] + value[at + 1]
            fall = stay[:, None, :] + move
            land = min(horizon, at + lead)
            wait = (summed[..., land] - summed[..., at])[..., None]
            wait = wait + up * (land - at) * interval_seconds
            backlog = _backlog(stages, price, min(land, horizon - 1))
            change = np.where(up > 0, wait + move + backlog + value[land][:, None, :], fall)
            value[at] = np.minimum(stay, change.min(axis=2))
        before = summed[:, 0, at]
        if at == known:
            same.append(float(stages.weights @ (before + value[at, :, 0])))
        elif 0 < at < known:
            same.append(float((stages.weights @ (before[:, None] + change[:, 0])).min()))
    waiting = min(same)
    going = stages.weights @ change[:, 0]
    best = int(going.argmin())
    if going[best] < waiting - 1e-9:
        return best, waiting - float(going[best])
    return 0, 0.0


def _backlog(stages: Stages, price: float, at: int) -> Floats:
    """Replica-seconds, while a group that takes over, column, serves what the one before it, row,
    has left behind: of that work, and of late events, those that wait and those that come until
    the queue is back within the target. By future."""
    behind = stages.left[..., at][..., None]
    rates = stages.rates[:, at][:, None, None]
    spare = np.maximum(stages.mu - rates, 0.05 * stages.mu)
    over = np.maximum(0.0, behind - stages.room)
    late = behind * np.minimum(1.0, behind / stages.room) + over / spare * rates
    cost: Floats = price * late + over * stages.sizes / stages.mu
    return cost
