"""Landau, sections 4.4.3 to 4.4.8: the controller's state machine over a packing by rate.

The sentinel watches; a trigger leads to reassign, which packs, and to group management, which
creates consumers, moves partitions (stop, acknowledge, start) and deletes; then the sentinel again.
Lag and latency play no part. CONSUMER_CAPACITY is mu and ALGORITHM_CAPACITY, the size of a bin,
0.75 mu (section 4.3.5.1: 2 and 1.5 MB/s). MAX_S1_TIME is not printed; 30 s is what the monitor
needs to follow a step in section 5.1. In group management (consumers start, or partitions move) the
controller does not decide. Each observation is synchronized by itself: it says who has what.
"""

from enum import StrEnum
from typing import Final

from srtm.autoscaler.decision import Decision, Handover
from srtm.autoscaler.observation import Observation
from srtm.autoscaler.packing import Algorithm
from srtm.autoscaler.policies.group import (
    bins_of,
    consumers,
    items_of,
    members_of,
    nothing,
    wanted,
)
from srtm.autoscaler.policies.paper import PaperPolicy
from srtm.autoscaler.policies.settings import Settings

ALGORITHM_SHARE: Final = 0.75
MAX_S1_SECONDS: Final = 30.0


class State(StrEnum):
    SYNCHRONIZE = "synchronize"
    SENTINEL = "sentinel"
    REASSIGN = "reassign"
    MANAGE = "group management"


class Event(StrEnum):
    SYNCHRONIZED = "synchronized"
    TRIGGERED = "triggered"
    ASSIGNED = "assigned"
    UNCHANGED = "unchanged"
    DONE = "done"


STEPS: Final[dict[State, dict[Event, State]]] = {
    State.SYNCHRONIZE: {Event.SYNCHRONIZED: State.SENTINEL},
    State.SENTINEL: {Event.TRIGGERED: State.REASSIGN},
    State.REASSIGN: {Event.ASSIGNED: State.MANAGE, Event.UNCHANGED: State.SENTINEL},
    State.MANAGE: {Event.DONE: State.SENTINEL},
}
"""Fig. 4.6."""


class Landau(PaperPolicy):
    """The controller with `algorithm`."""

    def __init__(self, name: str, settings: Settings, algorithm: Algorithm) -> None:
        super().__init__(name, settings)
        self._algorithm = algorithm
        self._since = 0.0
        self.state = State.SYNCHRONIZE

    def _decide(self, seen: Observation) -> Decision:
        if self._timeline.went_back:
            self.state = State.SYNCHRONIZE
        if self.state is State.SYNCHRONIZE:
            self._step(Event.SYNCHRONIZED, seen.at)
        if self.state is State.MANAGE:
            if seen.changing:
                return nothing("group management: consumers start or partitions move")
            self._step(Event.DONE, seen.at)
        trigger = self._trigger(seen)
        if trigger is None:
            return nothing(f"sentinel: {consumers(len(seen.consumers))} hold {seen.rate:g}/s")
        self._step(Event.TRIGGERED, seen.at)
        packing = self._algorithm(items_of(seen), bins_of(seen, ALGORITHM_SHARE))
        notes = [
            f"partition {p} exceeds ALGORITHM_CAPACITY ({ALGORITHM_SHARE:g} of mu): it gets a "
            "consumer of its own"
            for p in packing.oversized
        ]
        reason = f"{trigger}: {seen.rate:g}/s packed into {consumers(packing.count)}"
        decision = wanted(seen, members_of(packing), reason, notes)
        self._step(Event.ASSIGNED if decision.members else Event.UNCHANGED, seen.at)
        return Decision(
            decision.action, decision.members, decision.reason, decision.notes, Handover.DIRECT
        )

    def _trigger(self, seen: Observation) -> str | None:
        """Section 4.4.4; None while the sentinel has nothing to report."""
        rates = {p.id: p.rate for p in seen.partitions}
        for consumer in seen.consumers:
            rate = sum(rates.get(p, 0.0) for p in consumer.partitions)
            if rate > consumer.mu:
                return (
                    f"consumer {consumer.id} is over its capacity ({rate:g} of {consumer.mu:g}/s)"
                )
        if orphans := seen.orphans:
            return f"{len(orphans)} of {len(seen.partitions)} partitions are not assigned"
        waited = seen.at - self._since
        if waited >= MAX_S1_SECONDS:
            return f"{waited:g} s without a trigger (MAX_S1_TIME): fewer may do"
        return None

    def _step(self, event: Event, at: float) -> None:
        self.state = STEPS[self.state][event]
        if self.state is State.SENTINEL:
            self._since = at
