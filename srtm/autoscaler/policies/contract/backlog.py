"""How long what waits has waited: of the events of a partition the last that came wait."""

from collections import deque

import numpy as np
from numpy.typing import NDArray

from srtm.autoscaler.observation import Observation
from srtm.autoscaler.policies.contract.curves import Waiting

Floats = NDArray[np.float64]

_MOST_SLOTS = 600
"""Slots that are kept; where the target spans more, whole intervals are kept instead."""
_MOST_INTERVALS = 3600


def slots_of(seen: Observation, seconds: float) -> Floats:
    """Events of the last `seconds` in equal parts of them, shape (slots, partitions); where slots
    are not known, in one."""
    if len({len(p.slots) for p in seen.partitions}) == 1 and seen.partitions[0].slots:
        return np.array([p.slots for p in seen.partitions], dtype=np.float64).T
    return np.array([[p.rate * seconds for p in seen.partitions]])


class Backlog:
    """Arrivals of the time in which an event can wait and still be in time."""

    def __init__(self, target_seconds: float, interval_seconds: float) -> None:
        self._target = target_seconds
        self._interval = interval_seconds
        self._ids: tuple[int, ...] = ()
        self._slots: deque[tuple[float, Floats]] = deque(maxlen=_MOST_INTERVALS)
        """(when it began, events of each partition)"""
        self._lags = np.zeros(0)
        self._at = 0.0

    def see(self, seen: Observation, seconds: float) -> None:
        """seconds: since the last observation; 0 for the first"""
        ids = tuple(p.id for p in seen.partitions)
        if ids != self._ids:
            self._slots.clear()
        self._ids, self._at = ids, seen.at
        self._lags = np.array([p.lag for p in seen.partitions], dtype=np.float64)
        if not seconds:
            return
        slots = slots_of(seen, seconds)
        if self._target / seconds * len(slots) > _MOST_SLOTS:
            slots = slots.sum(axis=0, keepdims=True)
        width = seconds / len(slots)
        for place, events in enumerate(slots):
            self._slots.append((seen.at - seconds + place * width, events))
        while self._slots and self._slots[0][0] < seen.at - self._target - self._interval:
            self._slots.popleft()

    def waiting(self, partitions: tuple[int, ...]) -> Waiting:
        """What waits in these, each event as old as its slot. What came before the slots that are
        kept is as old as they are, or an interval where there are none."""
        columns = [place for place, each in enumerate(self._ids) if each in set(partitions)]
        left = self._lags[columns]
        found: list[tuple[float, float]] = []
        for began, events in reversed(self._slots):
            if not left.any():
                break
            waits = np.minimum(left, events[columns])
            left = left - waits
            if waits.any():
                found.append((self._at - began, float(waits.sum())))
        if left.any():
            oldest = self._at - self._slots[0][0] if self._slots else self._interval
            found.append((oldest, float(left.sum())))
        return tuple(reversed(found))
