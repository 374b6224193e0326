"""Hand-over by the group's own leader: the controller writes a plan, members join again for it, and
the controller reads back what they got. Pure.

Members subscribe, and the assignor (srtm/consumer/assignor.py) shares partitions out by the plan.
What members report is held against it; where that is not what is wanted, the plan is written once
more with a later version, which is a rebalance more. Members beat, hold leases and are fenced as in
direct hand-over.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from srtm.autoscaler.live.direct import Direct
from srtm.consumer.wire import Command, PartitionPlan
from srtm.host.clock import NS

_SAY_AGAIN_NS = NS
_REPAIR_NS = 3 * NS
_MOST_REPAIR_NS = 60 * NS


@dataclass(slots=True)
class Planned(Direct):
    """loads: partition -> events/s, as last seen; repairs: how often a plan was not carried out"""

    loads: dict[int, float] = field(default_factory=dict)
    repairs: int = 0
    _said: PartitionPlan | None = None
    _said_ns: int = 0
    _wait_ns: int = _REPAIR_NS

    def told(self) -> dict[str, frozenset[int]]:
        plan = self._newest()
        parts = plan.parts if plan else {}
        return {
            name: frozenset(parts.get(name, report.holds)) for name, report in self.live().items()
        }

    def settled(self) -> bool:
        """Has everybody what is wanted, and has everybody left who was to?"""
        return self._is_carried_out() and not self.leaving

    def _is_carried_out(self) -> bool:
        members = self.ledger.members
        right = all(
            frozenset(report.holds) == self.wanted.get(name, frozenset())
            for name, report in members.items()
        )
        return right and self.wanted.keys() <= members.keys()

    def _newest(self) -> PartitionPlan | None:
        """Written, read back or not."""
        known = self.ledger.plan
        if self._said is None or (known is not None and known.version >= self._said.version):
            return known
        return self._said

    def _plan(self, now_ns: int) -> PartitionPlan | None:
        parts = {
            name: tuple(sorted(part))
            for name, part in sorted(self.wanted.items())
            if name in self.live() and name not in self.leaving
        }
        last = self._newest()
        if last is None and not parts:
            return None
        if last is not None and last.parts == parts and self._stands(last, now_ns):
            return None
        if last is not None and last.parts == parts:
            self.repairs += 1
            self._wait_ns = min(2 * self._wait_ns, _MOST_REPAIR_NS)
        else:
            self._wait_ns = _REPAIR_NS
        self._said_ns = now_ns
        self._said = PartitionPlan(
            name=self.name,
            epoch=self.epoch,
            version=self._next_version(),
            parts=parts,
            loads=self.loads,
        )
        return self._said

    def _stands(self, last: PartitionPlan, now_ns: int) -> bool:
        """Is nothing to be said, as the plan is carried out, or may still be?"""
        self._said_ns = self._said_ns or now_ns
        if self.ledger.plan is not last:  # lost, or Kafka is away
            return now_ns - self._said_ns <= _SAY_AGAIN_NS
        if self._is_carried_out():
            self._wait_ns = _REPAIR_NS
            self._said_ns = now_ns
            return True
        return now_ns - self._said_ns <= self._wait_ns

    def _command(self, member: str, holders: Mapping[int, set[str]], now_ns: int) -> Command | None:
        return self._only_leave(member, now_ns)
