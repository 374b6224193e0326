"""Pools: any consumer that is free serves the next event, and nothing is handed over.

n consumers end n mu events/s while n events or more are there. An event that finds all of them at
work waits for what is ahead of it at that speed, and then takes 1/mu itself: n - 1 of the others'
services may go on meanwhile, so its delay is at most (1 - 1/n)/mu longer than that of one consumer
of n mu. That is exact: of n events that come at once each takes 1/mu.
"""

import math

from srtm.autoscaler.decision import Member
from srtm.autoscaler.observation import ConsumerSeen, ConsumerState
from srtm.autoscaler.policies.contract.curves import Flow, Supply, longest_delay
from srtm.autoscaler.policies.contract.view import Sized, View, shown

_MOST = 1000
"""Consumers; `max` of a file is no more."""


def fewest_for_ever(view: View) -> int | None:
    """The fewest new consumers that keep the target for every arrival, for ever. None: no number
    does."""
    rate, burst, mu = view.ceiling.rate, view.ceiling.burst, view.seen.new_mu
    for count in range(max(1, math.ceil(rate / mu * (1 - 1e-9))), _MOST + 1):
        flow, supply = Flow.full(rate, burst), Supply(((0.0, count * mu),))
        if longest_delay(flow, supply) + _own(count, mu) <= view.target:
            return count
    return None


def _own(count: int, mu: float) -> float:
    return (1 - 1 / count) / mu


class Pool:
    """A pool at one moment. joins: seconds until each consumer that starts has joined."""

    def __init__(self, view: View, joins: dict[str, float]) -> None:
        self._view = view
        self._joins = joins
        consumers = sorted(
            view.seen.consumers,
            key=lambda c: (c.state is not ConsumerState.RUNNING, joins.get(c.id, 0.0), -c.mu),
        )
        self._consumers: list[ConsumerSeen] = consumers
        self._waiting = view.backlog.waiting(tuple(p.id for p in view.seen.partitions))
        self._most = fewest_for_ever(view)

    def plan(self) -> Sized:
        """The fewest consumers now with which all is in time, if more are launched as late as at
        the next decision."""
        view, there = self._view, len(self._consumers)
        most = max(self._most or self._enough(), 1)
        for count in range(1, max(most, there) + 1):
            calm = count >= there or self._serves(count) >= view.peak
            if calm and (delay := self.delay(count, max(most, count))) <= view.target:
                then = "for ever" if count >= most else f"with {most} when more comes"
                return self._planned(count, delay, then)
        notes = self._remedy() if self._most is None else ()
        delay = self.delay(max(most, there), max(most, there))
        then = "for ever, and some are late until then"
        return self._planned(max(most, there), delay, then, notes)

    def delay(self, count: int, most: int) -> float:
        """The longest delay with `count` consumers from now on, and `most` launched at the next
        decision."""
        view = self._view
        supply = self._supply(count, most)
        slowest = min([view.seen.new_mu, *(c.mu for c in self._consumers[:count])])
        delay = longest_delay(view.flow(1.0), supply, self._waiting)
        return delay + _own(most, slowest)

    def _supply(self, count: int, most: int) -> Supply:
        """Consumers join one by one."""
        view, mu = self._view, self._view.seen.new_mu
        joining = [(self._joins.get(c.id, 0.0), c.mu) for c in self._consumers[:count]]
        joining += [(view.seen.startup_seconds, mu)] * (count - len(joining))
        joining += [(view.notice, mu)] * (most - len(joining))
        speed, steps = 0.0, {0.0: 0.0}
        for at, each in sorted(joining):
            speed += each
            steps[at] = speed
        return Supply(tuple(sorted(steps.items())))

    def _serves(self, count: int) -> float:
        return math.fsum(c.mu for c in self._consumers[:count])

    def _enough(self) -> int:
        """Consumers that at least keep up."""
        return min(_MOST, math.ceil(self._view.ceiling.rate / self._view.seen.new_mu))

    def _planned(self, count: int, delay: float, then: str, notes: tuple[str, ...] = ()) -> Sized:
        names: list[str | None] = [c.id for c in self._consumers[:count]]
        names += [None] * (count - len(names))
        ids = [p.id for p in self._view.seen.partitions]
        members = tuple(Member(name, tuple(ids[n::count])) for n, name in enumerate(names))
        return Sized(members, delay, then, notes)

    def _remedy(self) -> tuple[str, ...]:
        mu, target = self._view.seen.new_mu, self._view.target
        if 1 / mu >= target:
            return (
                f"an event takes {shown(1 / mu)} of a consumer and the target is {shown(target)}: "
                f"allow a longer latency, or make consumers faster than {1 / target:g}/s",
            )
        return (
            f"the contract {self._view.ceiling} needs more than {_MOST} consumers of {mu:g}/s: "
            "make consumers faster or allow a longer latency",
        )
