"""The broker's own assignment (KIP-848): a policy only chooses how many consumers there are.

Members beat and are told to leave as in direct hand-over, and report what the broker gave them. No
lease is needed: the broker refuses commits of whom it has put out, whose sink it cannot stop. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from srtm.autoscaler.live.direct import Direct
from srtm.consumer.wire import Command


@dataclass(slots=True)
class Brokered(Direct):
    """partitions: of the topic, as last seen"""

    assigns: ClassVar[bool] = False
    partitions: frozenset[int] = frozenset()

    def settled(self) -> bool:
        """Has every partition one consumer, and has everybody left who was to?"""
        held = [partition for report in self.live().values() for partition in report.holds]
        whole = sorted(held) == sorted(self.partitions)
        return whole and not self.leaving and self.wanted.keys() <= self.ledger.members.keys()

    def _command(self, member: str, holders: Mapping[int, set[str]], now_ns: int) -> Command | None:
        return self._only_leave(member, now_ns)
