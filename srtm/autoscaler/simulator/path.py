"""The cheapest schedule by a model of costs: dynamic programming over ticks and groups."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from srtm.autoscaler.simulator.arrivals import Arrivals
from srtm.autoscaler.simulator.grouping import Parts, handover_late, late_by_tick
from srtm.autoscaler.simulator.setting import Setting

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the group that is wanted: at decision `tick` (0, 1, ...) it becomes number
    `group`."""

    tick: int
    group: int


Schedule = tuple[Change, ...]


class Costs:
    """What is known before any run. The group at the start is number 0."""

    def __init__(self, arrivals: Arrivals, setting: Setting, groups: tuple[Parts, ...]) -> None:
        self.size = np.array([len(parts) for parts in groups], dtype=np.float64)
        self.late = late_by_tick(arrivals, setting, groups)
        self.handover = handover_late(arrivals, setting, groups)
        self.tick_seconds = setting.decision_seconds
        self.startup_seconds = setting.startup_seconds
        self.startup_ticks = int(np.ceil(setting.startup_seconds / setting.decision_seconds - 1e-9))


def cheapest(costs: Costs, price: float, handover_factor: float) -> Schedule:
    """The schedule of least replica-seconds + price x late events.

    price: replica-seconds for a late event. handover_factor: how much to make of the guess of the
    late events of a hand-over. A launch is decided, and billed, start-up ticks before it takes
    effect, and nothing else changes in between.
    """
    groups, count = costs.late.shape
    lead = costs.startup_ticks
    upward = costs.size[None, :] > costs.size[:, None]
    steady = costs.size[:, None] * costs.tick_seconds + price * costs.late
    total = np.concatenate((np.zeros((groups, 1)), np.cumsum(steady, axis=1)), axis=1)
    loss = price * handover_factor * costs.handover
    ahead = np.where(upward, (costs.size[None, :] - costs.size[:, None]) * costs.startup_seconds, 0)
    everyone = np.arange(groups)
    came_from = np.zeros((count, groups), dtype=np.int64)
    before = np.full((count + 1, groups), np.inf)  # cost until a tick, none of its changes made
    before[0, 0] = 0.0
    for tick in range(count):
        change = np.where(upward, np.inf, before[tick][:, None] + loss[tick])
        if tick >= lead:
            launched = before[tick - lead] + total[:, tick] - total[:, tick - lead]
            change = np.where(upward, launched[:, None] + loss[tick] + ahead, change)
        change[everyone, everyone] = before[tick]
        came_from[tick] = change.argmin(axis=0)
        before[tick + 1] = change[came_from[tick], everyone] + steady[:, tick]
    group = int(before[count].argmin())
    changes: list[Change] = []
    tick = count - 1
    while tick >= 0:
        previous = int(came_from[tick, group])
        if previous != group:
            tick -= lead if upward[previous, group] else 0
            changes.append(Change(tick, group))
            group = previous
        tick -= 1
    return tuple(reversed(changes))
