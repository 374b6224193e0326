"""Which brokers are in trouble by their reports, and which moves were decided for it.

Brokers are asked who sends to them only while they are in trouble.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum, inf

from distributor.api import MigrationShown, MoveShown
from distributor.control.state import FORMER, ControlState
from distributor.fitting import MOST_ALLOWED
from distributor.gateway_api import Report
from distributor.migration import Memory, Pulse, Slot, Trouble
from distributor.migration.settings import CHANGED, RETURN_SECONDS, WINDOW_SECONDS
from srtm.limits.contract import MIN_RATE

log = logging.getLogger("srtm.distributor")

POLICY = "migrate"
"""as placements of a migration are named in the history"""
_LOOK_SECONDS = 1.0
_MOST_ASKED = 200
"""topics of a broker whose publishers are asked for: 100 of one are 2 to 4 kB of a report"""


@dataclass(slots=True)
class _Placed:
    """A placement as it was last seen. unsettled: brokers that publishers still leave or come to"""

    epoch: int
    brokers: frozenset[str]
    unsettled: frozenset[str] = frozenset()


class Troubles:
    """now: monotonic seconds; wall: seconds since 1970.

    ill:       brokers in trouble
    proposals: (broker, topic) -> moves that are proposed
    blocked:   (broker, topic) -> why nobody is
    moved:     publishers since this distributor leads
    """

    def __init__(
        self,
        state: ControlState,
        lease_seconds: float,
        now: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._state = state
        self._lease_seconds = lease_seconds
        self._now = now
        self.ill: dict[str, Trouble] = {}
        self.proposals: dict[tuple[str, str], MigrationShown] = {}
        self.blocked: dict[tuple[str, str], tuple[str, ...]] = {}
        self.moved = 0
        self.memory = _remembered(state, now(), wall())
        self._pulses: dict[str, Pulse] = {}
        self._asked: dict[str, frozenset[str]] = {}
        self._answered: dict[str, int | None] = {}
        self._placed: dict[str, _Placed] = {}
        self._allocated: dict[str, float] = {}
        self._decided_at: dict[str, float] = {}
        self._looked_at = -inf

    # --- reports ------------------------------------------------------------------------------

    def wants_publishers(self, broker: str) -> frozenset[str]:
        """Topics of which the broker is to report who sends most."""
        return self._asked.get(broker, frozenset())

    def receive(self, broker: str, report: Report, now: float) -> None:
        before, self._answered[broker] = self._answered.get(broker), report.answered
        if report.answered is not None and report.answered == before:
            return  # a report whose answer was lost is made again: its time is counted already
        pulse = self._pulse(broker)
        watched = pulse.watched
        late = {
            each.topic: (each.served, min(each.late_at_broker, each.served))
            for each in report.topics
            if each.served and (each.late_at_broker or each.topic in watched)
        }
        slot = Slot(
            now - report.seconds,
            now,
            {each.topic: each.offered * report.seconds for each in report.topics if each.offered},
            late,
            {each.topic: _counts(each.publishers) for each in report.topics if each.publishers},
        )
        pulse.receive(slot, self._allowed(late.keys() | watched))

    def _pulse(self, broker: str) -> Pulse:
        if broker not in self._pulses:
            self._pulses[broker] = Pulse(self._now())
        return self._pulses[broker]

    def _allowed(self, names: Iterable[str]) -> dict[str, float]:
        """The late share that each of them may have, of those whose publishers may move."""
        found = {}
        for name in names:
            topic = self._state.topics.get(name)
            slo = topic.contract.slo if topic else None
            if slo is not None and slo.allowed_late_share < MOST_ALLOWED and self.may_move(name):
                found[name] = slo.allowed_late_share
        return found

    def may_move(self, name: str) -> bool:
        """Are publishers of the topic placed, and may they be moved?"""
        topic = self._state.topics[name]
        return topic.in_force is not None and topic.migration.mode != "off" and not topic.is_fitted

    # --- once a second ------------------------------------------------------------------------

    def is_due(self, now: float) -> bool:
        return now >= self._looked_at + _LOOK_SECONDS

    def look(self, now: float) -> None:
        """Under the lock of changes: who is in trouble, and who is to be asked for what."""
        self._looked_at = now
        self.memory.forget_old(now)
        self._follow(now)
        for name in self._pulses.keys() - self._state.gateways.keys():
            self._forget_broker(name)
        carried: dict[str, float] | None = None
        for name, pulse in self._pulses.items():
            trouble, capacity = None, self._state.gateways[name].row.capacity
            if FORMER not in name and pulse.is_fresh(now) and pulse.may_be_in_trouble(capacity):
                carried = self.carried() if carried is None else carried
                trouble = pulse.trouble(capacity, carried, self._allowed(pulse.watched))
            self._diagnose(name, trouble, now)
        for key in self.proposals.keys() | self.blocked.keys():
            if key[0] not in self.ill:
                self.proposals.pop(key, None)
                self.blocked.pop(key, None)

    def _diagnose(self, broker: str, trouble: Trouble | None, now: float) -> None:
        if trouble is None:
            if self.ill.pop(broker, None):
                log.info("broker %s is out of trouble, or its publishers have changed", broker)
            self._asked.pop(broker, None)
            self._decided_at.pop(broker, None)
            return
        if broker not in self.ill:
            log.warning("broker %s is in trouble: %s", broker, trouble.reason)
        self.ill[broker] = trouble
        self.memory.in_trouble(broker, trouble.holds, now)
        loads = self._pulses[broker].loads()
        there = [name for name in self.topics_at(broker) if self.may_move(name)]
        there.sort(key=lambda name: -loads.get(name, 0.0))
        self._asked[broker] = frozenset(there[:_MOST_ASKED])

    def _follow(self, now: float) -> None:
        """What was measured before publishers came or went is of no use, nor is what is measured
        while they do."""
        for name in self._placed.keys() - self._state.topics.keys():
            del self._placed[name]
        new = {}
        for name, topic in self._state.topics.items():
            before = self._placed.get(name)
            if topic.in_force is None or (before and before.epoch == topic.in_force.epoch):
                continue
            brokers = frozenset(each.name for each in topic.in_force.brokers)
            new[name] = brokers | (before.brokers if before else frozenset())
            self._placed[name] = _Placed(topic.in_force.epoch, brokers)
        changed = self._changed(frozenset().union(*new.values()))
        for name, brokers in new.items():
            moves = self._moves(name)
            moved = {each.source for each in moves} | {each.target for each in moves}
            self._placed[name].unsettled = (brokers & changed) | moved
        for name, placed in self._placed.items():
            if placed.unsettled:
                self.restart(placed.unsettled, now)
                if not any(self._state.topics[name].waiting.values()):
                    placed.unsettled = frozenset()

    def _moves(self, name: str) -> Sequence[MoveShown]:
        in_force = self._state.topics[name].in_force
        return in_force.moves if in_force else ()

    def _changed(self, brokers: Collection[str]) -> frozenset[str]:
        """Those of `brokers` whose declared rates have changed by much."""
        changed, loads = set(), self._state.allocated() if brokers else {}
        for broker in brokers:
            gateway = self._state.gateways.get(broker)
            allocated = loads.get(broker, 0.0)
            if gateway is None:
                continue
            if abs(allocated - self._allocated.get(broker, inf)) > CHANGED * gateway.row.capacity:
                self._allocated[broker] = allocated
                changed.add(broker)
        return frozenset(changed)

    def restart(self, brokers: Iterable[str], now: float) -> None:
        for broker in brokers:
            self._pulse(broker).restart(now)

    def _forget_broker(self, name: str) -> None:
        for kept in (self._pulses, self._asked, self._answered, self.ill, self._decided_at):
            kept.pop(name, None)
        self._allocated.pop(name, None)

    def forget(self, topic: str) -> None:
        """Its settings have changed, or it is gone."""
        for key in self.proposals.keys() | self.blocked.keys():
            if key[1] == topic:
                self.proposals.pop(key, None)
                self.blocked.pop(key, None)
        self._decided_at.clear()

    # --- what is known ------------------------------------------------------------------------

    def topics_at(self, broker: str) -> list[str]:
        """The topics that the broker serves by their placements."""
        found = self._state.gateways[broker].topics
        leases = self._state.leases
        return sorted(
            name for name in found if name in self._state.topics and broker in leases[name].targets
        )

    def carried(self) -> dict[str, float]:
        """The part of each topic's messages that its contract lets through, under the best split:
        the rest is no load of any broker."""
        came: dict[str, list[float]] = {}
        now = self._now()
        for pulse in self._pulses.values():
            if not pulse.is_heard(now):
                continue
            for name, rate in pulse.loads().items():
                came.setdefault(name, []).append(rate)
        topics = self._state.topics
        return {
            name: min(1.0, topics[name].contract.rate / max(fsum(rates), MIN_RATE))
            for name, rates in came.items()
            if name in topics
        }

    def loads(self, broker: str) -> Mapping[str, float]:
        """messages/s by topic that came to it."""
        return self._pulse(broker).loads()

    def is_fresh(self, broker: str, now: float) -> bool:
        return self._pulse(broker).is_fresh(now)

    def senders(self, broker: str) -> Mapping[str, Mapping[str, float]] | None:
        """messages/s by topic and publisher; None: they are not known yet."""
        return self._pulse(broker).senders()

    def decision_due(self, broker: str, now: float) -> bool:
        """Is a decision about the broker due? Once in a window one is, so that what is proposed
        stands long enough to be read."""
        return now >= self._decided_at.get(broker, -inf) + WINDOW_SECONDS

    def decided(self, broker: str, now: float) -> None:
        self._decided_at[broker] = now

    def reserved(self, target: str, source: str) -> float:
        """messages/s that proposals would bring to it, from others than `source`."""
        moves = (move for each in self.proposals.values() for move in each.moves)
        return fsum(each.rate for each in moves if each.target == target and each.source != source)


def _counts(pairs: Iterable[tuple[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, count in pairs:
        found[name] = found.get(name, 0.0) + count
    return found


def _remembered(state: ControlState, now: float, wall: float) -> Memory:
    """The moves of the last half hour, by the placements that are kept: a restart forgets neither
    cool-downs nor the budget."""
    memory = Memory(now - RETURN_SECONDS)
    moves = [
        (now - max(0.0, wall - each.at), name, move)
        for name, topic in state.topics.items()
        for each in topic.history
        for move in each.moves
    ]
    for at, name, move in sorted(moves, key=lambda each: each[0]):
        if at > now - RETURN_SECONDS:
            memory.moved(name, move.publisher, move.source, at)
    return memory
