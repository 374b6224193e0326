"""Groups of a fixed size as rivals of the plan: how they would have done with what has come.

A load that rises and falls quicker than consumers start is served best by a group that stands. So
groups of each size are played beside the plan, as fluid queues over the arrivals of the last
minutes; each costs its consumers, and at the SLO's usual price the late events beyond those that
the SLO allows. Where one of them costs clearly less than the plan did, its size is the least that
the plan may choose for a while: for twice as long if it has to come back soon after.
"""

import heapq
import math

import numpy as np
from numpy.typing import NDArray

from srtm.autoscaler.fluid import late_events
from srtm.autoscaler.policies.srtm.tuning import TUNING, Tuning
from srtm.limits.slo import SLO

Floats = NDArray[np.float64]
Places = NDArray[np.int64]


class Standing:
    """The plan, and groups that stand, each with what it cost."""

    def __init__(self, slo: SLO, interval_seconds: float, tuning: Tuning = TUNING) -> None:
        self._target = slo.target_seconds
        self._share = slo.allowed_late_share
        self._seconds = interval_seconds
        self._tuning = tuning
        self._keep = 0.5 ** (interval_seconds / tuning.standing_memory_seconds)
        self._hold_seconds = 0.0
        self._until = -math.inf
        self.least = 0
        """The size below which the plan is not to go; 0: it is free."""
        self._begin(0, 0)

    def _begin(self, partitions: int, most: int) -> None:
        count = min(most, self._tuning.standing_sizes)
        self.least = min(self.least, most)
        self._sizes = np.unique(np.linspace(1, most, count).round()).astype(int)
        self._most = most
        self._groups = np.repeat(np.arange(len(self._sizes)), self._sizes)  # of each consumer
        self._firsts = np.concatenate(([0], np.cumsum(self._sizes)))
        self._owners: Places = np.zeros((len(self._sizes), partitions), dtype=np.int64)
        self._waiting = np.zeros(len(self._groups))
        self._late = np.zeros(len(self._sizes))
        self._loads = np.zeros(partitions)
        self._allowed = 0.0
        self._plan_late = self._plan_sizes = self._intervals = self._seen = 0.0
        self._dealt = -math.inf

    def see(self, slots: Floats, mu: float, most: int, size: int, late: int) -> None:
        """Take in what was seen, once an interval.

        slots: events of the interval that has ended, shape (slots, partitions)
        mu:    events/s of a consumer; most: consumers that there may be
        size:  consumers that are billed; late: late events of the group as it is
        """
        if (slots.shape[1], most) != (len(self._loads), self._most):
            self._begin(slots.shape[1], most)
        self._seen += self._seconds
        self._loads = self._keep * self._loads + slots.sum(axis=0)
        if self._seen - self._dealt >= self._tuning.standing_deal_seconds:
            self._deal()
        count = len(self._groups)
        came = np.array(
            [
                np.bincount(
                    self._owners.ravel(),
                    weights=np.broadcast_to(slot, self._owners.shape).ravel(),
                    minlength=count,
                )
                for slot in slots
            ]
        )
        slot_seconds = self._seconds / len(slots)
        found, left = late_events(
            came, np.full(count, mu), slot_seconds, self._target, self._waiting
        )
        self._waiting = left[-1]
        sums = np.bincount(self._groups, weights=found.sum(axis=0), minlength=len(self._sizes))
        if self._seen <= self._tuning.standing_begin_seconds:
            sums, late = np.zeros_like(sums), 0  # a start is nobody's choice
        self._allowed = self._keep * self._allowed + self._share * float(slots.sum())
        self._late = self._keep * self._late + sums
        self._plan_late = self._keep * self._plan_late + late
        self._plan_sizes = self._keep * self._plan_sizes + size
        self._intervals = self._keep * self._intervals + 1.0

    def _deal(self) -> None:
        """Deal the partitions out, the fullest first, each to the consumer that has least. What
        waits at a group is divided by what its consumers have then."""
        self._dealt = self._seen
        order = np.argsort(-self._loads, kind="stable").tolist()
        loads = np.maximum(self._loads, 1e-9).tolist()
        for place, size in enumerate(self._sizes.tolist()):
            first = int(self._firsts[place])
            heap = [(0.0, consumer) for consumer in range(size)]
            has = [0.0] * size
            for partition in order:
                load, consumer = heap[0]
                has[consumer] = load + loads[partition]
                heapq.heapreplace(heap, (has[consumer], consumer))
                self._owners[place, partition] = first + consumer
            waits = self._waiting[first : first + size]
            waits[:] = waits.sum() * np.array(has) / math.fsum(has)

    def look(self, at: float, price: float) -> None:
        """Set `least` anew. price: replica-seconds that a late event is worth"""
        tuning = self._tuning
        if self._seen < tuning.standing_seconds:
            return
        seconds = self._intervals * self._seconds
        beyond = np.maximum(0.0, self._late - self._allowed)
        costs = self._sizes + price * beyond / seconds
        plan_beyond = max(0.0, self._plan_late - self._allowed)
        plan = self._plan_sizes / self._intervals + price * plan_beyond / seconds
        best = int(costs.argmin())
        if costs[best] < (1.0 - tuning.standing_margin) * plan:
            if not self.least:
                again = at - self._until < self._hold_seconds
                longer = 2 * self._hold_seconds if again else 0.0
                self._hold_seconds = max(
                    tuning.standing_hold_seconds, min(longer, tuning.standing_longest_seconds)
                )
            if self.least != self._sizes[best]:
                self.least, self._until = int(self._sizes[best]), at + self._hold_seconds
        elif self.least and at > self._until:
            self.least = 0
