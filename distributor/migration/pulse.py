"""What one broker's reports say of it: its load by topic, and whether it is in trouble."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import fsum

import numpy as np

from distributor.fitting.late_share import Counts, Side, leaning, side
from distributor.migration.settings import (
    LATE_CAPACITY,
    MAX_TOLD,
    MEASURED_SECONDS,
    MOST_SLOTS,
    SILENT_SECONDS,
    TESTS,
    WINDOW_SECONDS,
)
from distributor.migration.values import Trouble
from srtm.text.words import counted, rate


@dataclass(frozen=True, slots=True)
class Slot:
    """One report.

    came:    messages by topic; total: of all topics
    late:    topic -> (measured, late without their token wait), of those late or `watched`
    senders: topic -> publisher -> messages, of the topics that were asked for
    """

    began_at: float
    ended_at: float
    came: Mapping[str, float]
    late: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    senders: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    total: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", fsum(self.came.values()))

    @property
    def seconds(self) -> float:
        return self.ended_at - self.began_at


class Pulse:
    """What one broker's reports say of it. Times are seconds of one clock.

    Nothing from before `since` counts: publishers were elsewhere then.
    """

    def __init__(self, since: float) -> None:
        self._since = since
        self._slots: deque[Slot] = deque()
        self._late: dict[str, deque[tuple[float, float, float]]] = {}

    def restart(self, now: float) -> None:
        """Publishers have come or gone."""
        self._since = now
        self._slots.clear()
        self._late.clear()

    @property
    def watched(self) -> frozenset[str]:
        """Topics whose late messages are counted."""
        return frozenset(self._late)

    def receive(self, slot: Slot, allowed: Mapping[str, float]) -> None:
        """allowed: the late share that each of these topics, and of `slot.late`, may have"""
        if slot.began_at < self._since or slot.seconds <= 0:
            return
        self._slots.append(slot)
        while self._slots and self._slots[0].ended_at <= slot.ended_at - WINDOW_SECONDS:
            self._slots.popleft()
        for topic, share in allowed.items():
            if topic in slot.late:
                self._receive_late(topic, slot, share)
        for topic in self._late.keys() - allowed.keys():
            del self._late[topic]

    def _receive_late(self, topic: str, slot: Slot, allowed: float) -> None:
        """A cumulative sum of the likelihood of being late too often: it begins with the first late
        message, and is forgotten where it falls to nothing."""
        measured, late = slot.late[topic]
        rows = self._late.get(topic)
        if rows is None:
            if not late:
                return
            rows = self._late[topic] = deque(maxlen=MOST_SLOTS)
        rows.append((slot.began_at, measured, late))
        if leaning(_column(rows, 1), _column(rows, 2), allowed) <= 0:
            del self._late[topic]

    # --- what it tells ------------------------------------------------------------------------

    def is_heard(self, now: float) -> bool:
        """Does it report, and of now?"""
        return bool(self._slots) and now - self._slots[-1].ended_at <= SILENT_SECONDS

    def is_fresh(self, now: float) -> bool:
        """Has it reported for a whole window, up to now?"""
        return self.is_heard(now) and self._is_whole()

    def _is_whole(self) -> bool:
        return self._heard(self._slots) >= WINDOW_SECONDS - max(s.seconds for s in self._slots)

    def loads(self) -> dict[str, float]:
        """messages/s by topic, over the window."""
        return _rates(self._slots)

    def senders(self) -> dict[str, dict[str, float]] | None:
        """messages/s by topic and publisher, of what was asked for; None: not for long enough."""
        slots = [slot for slot in self._slots if slot.senders]
        seconds = self._heard(slots)
        if seconds < MEASURED_SECONDS:
            return None
        found: dict[str, dict[str, float]] = {}
        for slot in slots:
            for topic, its in slot.senders.items():
                rates = found.setdefault(topic, {})
                for name, count in its.items():
                    rates[name] = rates.get(name, 0.0) + count / seconds
        return {topic: _first(rates) for topic, rates in found.items()}

    def may_be_in_trouble(self, capacity: float) -> bool:
        """Quick, and True for every broker in trouble: contracts only lower what is counted."""
        if self._late:
            return True
        over = (
            fsum(slot.total for slot in half) > capacity * self._heard(half)
            for half in self._halves()
        )
        return bool(capacity) and all(over)

    def trouble(
        self, capacity: float, carried: Mapping[str, float], allowed: Mapping[str, float]
    ) -> Trouble | None:
        """The trouble that a broker is in, or None; for one that is fresh. capacity: messages/s
        that it holds, 0: not known; carried: the part of what comes of a topic that its contract
        lets through; allowed: as in `receive`."""
        load = _sum(self.loads(), carried)
        halves = self._halves()
        if capacity and all(_sum(_rates(half), carried) > capacity for half in halves):
            reason = f"{rate(load)} come to it, and it holds {rate(capacity)} within its SLO"
            return Trouble(load, capacity, reason)
        for topic in sorted(self._late.keys() & allowed.keys()):
            reason = self._is_late(topic, allowed[topic], halves)
            if reason:
                return Trouble(load, LATE_CAPACITY * load, reason)
        return None

    def _is_late(self, topic: str, allowed: float, halves: Iterable[list[Slot]]) -> str:
        """Why; empty where it is not."""
        rows = self._late[topic]
        seconds = self._slots[-1].ended_at - rows[0][0]
        measured, late = _column(rows, 1), _column(rows, 2)
        if seconds < WINDOW_SECONDS or side(measured, late, allowed, tests=TESTS) is not Side.ABOVE:
            return ""
        for half in halves:
            told = [slot.late[topic] for slot in half if topic in slot.late]
            if fsum(each[1] for each in told) <= allowed * fsum(each[0] for each in told):
                return ""  # it is over
        share = float(late.sum() / measured.sum())
        return (
            f"topic {topic}: {share:.2%} of {counted(round(float(measured.sum())), 'message')} "
            f"late there even without their token wait (allowed {allowed:.2%}), for {seconds:.0f} s"
        )

    def _halves(self) -> tuple[list[Slot], list[Slot]]:
        middle = self._slots[-1].ended_at - WINDOW_SECONDS / 2
        first = [slot for slot in self._slots if slot.ended_at <= middle]
        return first, [slot for slot in self._slots if slot.ended_at > middle]

    def _heard(self, slots: Iterable[Slot]) -> float:
        return fsum(slot.seconds for slot in slots)


def _rates(slots: Iterable[Slot]) -> dict[str, float]:
    seconds, found = 0.0, dict[str, float]()
    for slot in slots:
        seconds += slot.seconds
        for topic, count in slot.came.items():
            found[topic] = found.get(topic, 0.0) + count
    return {topic: count / seconds for topic, count in found.items()}


def _sum(rates: Mapping[str, float], carried: Mapping[str, float]) -> float:
    return fsum(value * carried.get(topic, 1.0) for topic, value in rates.items())


def _column(rows: Iterable[tuple[float, float, float]], at: int) -> Counts:
    return np.array([row[at] for row in rows])


def _first(rates: dict[str, float]) -> dict[str, float]:
    heaviest = sorted(rates, key=lambda name: (-rates[name], name))
    return {name: rates[name] for name in heaviest[:MAX_TOLD]}
