"""The longest delay of what an arrival curve lets come at what a service curve serves.

Network calculus (Le Boudec and Thiran, Network Calculus, 2001). Arrivals of a token bucket are
bounded over every interval (s, a] by the burst that may come at its start and r (a - s) more, and
consumers that never rest while there is work serve C(t) - C(s) from the moment s at which the
queue was last empty. So what comes by `a` is served by the first t with

    C(t) - C(s) >= burst(s) + r (a - s)

and the longest delay is the largest t - a over all s and a: the horizontal deviation of section
1.4, of curves that begin now. It is exact: the arrivals that begin at that s with the burst, and go
on at r, meet it (theorem 1.4.2 and its remark on tightness). Both curves are straight between their
corners, so the largest is at one of these.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

_ROUNDING = 1e-9

Waiting = Sequence[tuple[float, float]]
"""(seconds since they came, events) of what waits now, the oldest first."""


@dataclass(frozen=True, slots=True)
class Flow:
    """What can still come, from now on.

    rate:   events/s in the long run
    burst:  events that can come at once at most
    level:  of these, now
    refill: events/s by which the level grows while nothing comes
    """

    rate: float
    burst: float
    level: float
    refill: float

    @classmethod
    def full(cls, rate: float, burst: float) -> "Flow":
        return cls(rate, burst, burst, rate)

    def burst_at(self, seconds: float) -> float:
        """Events that can come at once then, if nothing comes before."""
        return min(self.burst, self.level + self.refill * seconds)

    @property
    def full_at(self) -> float:
        """Seconds from now."""
        return max(0.0, self.burst - self.level) / self.refill


@dataclass(frozen=True, slots=True)
class Supply:
    """What consumers can serve. steps: (seconds from now, events/s from then on), the first at 0,
    none slower than the one before it."""

    steps: tuple[tuple[float, float], ...]

    @property
    def lasting(self) -> float:
        """events/s at the end."""
        return self.steps[-1][1]

    def served(self, until: float) -> float:
        """C: events that can be served from now on."""
        ends = [*(at for at, _ in self.steps[1:]), math.inf]
        return math.fsum(
            each * (min(end, until) - at)
            for (at, each), end in zip(self.steps, ends, strict=True)
            if at < until
        )

    def when(self, events: float) -> float:
        """The first moment by which so many can be served, seconds from now."""
        if events <= 0:
            return 0.0
        for (at, each), (end, _) in pairwise((*self.steps, (math.inf, 0.0))):
            room = each * (end - at) if each else 0.0
            if events <= room:
                return at + events / each
            events -= room
        return math.inf

    def corners(self) -> list[tuple[float, float]]:
        """(seconds, events served by then) where the speed changes."""
        return [(at, self.served(at)) for at, _ in self.steps]


def longest_delay(
    flow: Flow, supply: Supply, waiting: Waiting = (), until: float = math.inf
) -> float:
    """Seconds from arrival to the end of service, of the event for which it is longest: of those
    that wait, and of all that can come before `until`. math.inf where there is no longest."""
    if until == math.inf and flow.rate > supply.lasting * (1 + _ROUNDING):
        return math.inf
    ahead, longest = 0.0, 0.0
    for age, events in waiting:
        ahead += events
        longest = max(longest, age + supply.when(ahead))
    longest = max(longest, _from(flow, supply, 0.0, ahead, until))
    for start in _starts(flow, supply, until):
        longest = max(longest, _from(flow, supply, start, 0.0, until))
    return longest


def _from(flow: Flow, supply: Supply, start: float, ahead: float, until: float) -> float:
    """The longest delay if the queue has `ahead` at `start`, and the most comes from then on."""
    burst = flow.burst_at(start)
    begun = supply.served(start) + ahead + burst
    ends = [start]
    if flow.rate:
        ends += [start + (done - begun) / flow.rate for _, done in supply.corners()]
        ends.append(until)
    return max(
        supply.when(begun + flow.rate * (end - start)) - end
        for end in ends
        if start <= end <= until and end < math.inf
    )


def _starts(flow: Flow, supply: Supply, until: float) -> list[float]:
    """When a queue that is empty may be met worst: as soon as the burst is whole again, and before
    that where the speed changes, or changes just as the burst is served. Later ones meet no less
    speed."""
    last = min(flow.full_at, until)
    found = [last]
    for (at, each), (end, _) in pairwise((*supply.steps, (math.inf, 0.0))):
        found.append(at)
        for _, done in supply.corners():  # served(s) + level + refill s = done
            start = (done - supply.served(at) + each * at - flow.level) / (each + flow.refill)
            if at <= start <= end:
                found.append(start)
    return [each for each in found if 0 <= each <= last]
