"""What brokers report of one topic, kept for a while: arrivals, and the messages that waited."""

from dataclasses import dataclass, field

import numpy as np

from srtm.limits.queueing import Floats
from tb_adaptor.share import Part

MOST_ARRIVALS = 200_000
"""of one broker; the oldest go first"""


@dataclass(frozen=True)
class Seen:
    """One broker over the window. Times are seconds, counts are messages.

    until:       when it reported last
    part:        its share then
    times, counts: arrivals, sorted; shape (n,)
    step_waiting: for each step, the oldest first, the most messages that had no token
    waiting:     those that have none now
    """

    until: float
    part: Part
    times: Floats
    counts: Floats
    step_waiting: Floats
    waiting: float

    @property
    def messages(self) -> float:
        return float(self.counts.sum())


def nothing_of(part: Part, now: float) -> Seen:
    """A broker that has not reported: nothing is taken to have come to it."""
    return Seen(now, part, np.empty(0), np.empty(0), np.zeros(1), 0.0)


@dataclass(frozen=True, slots=True)
class WindowReport:
    """One report. at: when it came; times: of arrivals since the report before."""

    at: float
    part: Part
    times: Floats
    counts: Floats
    waiting: float
    most_waiting: float


def levels_after(level: float, part: Part, began: float, times: Floats, counts: Floats) -> Floats:
    """The bucket's level just after each batch: tokens, less the messages that wait. level: at
    `began`; times: sorted, shape (n,); counts: messages, shape (n,). Shape (n,)."""
    free = level + part.rate * np.maximum(times - began, 0.0) - (np.cumsum(counts) - counts)
    lost = np.maximum.accumulate(np.maximum(free - part.burst, 0.0))
    after: Floats = free - lost - counts
    return after


def unfinished(
    level: float, part: Part, began: float, times: Floats, counts: Floats, now: float
) -> tuple[float, float]:
    """The most messages that have waited for tokens meanwhile, and the level at `now`. level: at
    `began`."""
    if not times.size:
        return max(0.0, -level), min(part.burst, level + part.rate * (now - began))
    after = levels_after(level, part, began, times, counts)
    level = float(after[-1]) + part.rate * max(0.0, now - float(times[-1]))
    return max(0.0, -float(after.min())), min(part.burst, level)


@dataclass
class Window:
    """seconds: how far back; step_seconds: over which maxima are taken"""

    seconds: float = 10.0
    step_seconds: float = 1.0
    _told: dict[str, list[WindowReport]] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)  # of arrivals

    def add(self, broker: str, told: WindowReport) -> None:
        kept = self._told.setdefault(broker, [])
        kept.append(told)
        count = self._counts.get(broker, 0) + told.times.size
        since = told.at - self.seconds - self.step_seconds
        while kept[0].at <= since or (count > MOST_ARRIVALS and len(kept) > 1):
            count -= kept.pop(0).times.size
        self._counts[broker] = count

    def forget(self, broker: str) -> None:
        self._told.pop(broker, None)
        self._counts.pop(broker, None)

    @property
    def brokers(self) -> list[str]:
        return list(self._told)

    def covers(self, now: float) -> bool:
        """Has each broker reported for a whole step?"""
        return all(each and each[-1].at - each[0].at > 0 for each in self._told.values())

    def seen(self, now: float) -> dict[str, Seen]:
        return {broker: self._seen(told, now) for broker, told in self._told.items() if told}

    def _seen(self, told: list[WindowReport], now: float) -> Seen:
        since = now - self.seconds
        times = np.concatenate([each.times for each in told])
        counts = np.concatenate([each.counts for each in told])
        recent = times > since
        steps = max(1, round(self.seconds / self.step_seconds))
        waiting = np.zeros(steps)
        for each in told:
            step = steps - 1 - int((now - each.at) / self.step_seconds)
            if 0 <= step < steps:
                waiting[step] = max(waiting[step], each.most_waiting)
        last = told[-1]
        return Seen(
            last.at,
            last.part,
            times[recent][-MOST_ARRIVALS:],
            counts[recent][-MOST_ARRIVALS:],
            waiting,
            last.waiting,
        )
