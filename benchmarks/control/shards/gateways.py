"""What the gateways of all brokers hold, whatever leaders believe."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import fsum
from random import Random

from srtm.limits.contract import Contract
from tb_adaptor.leases import NOTHING, Share

LEASE_SECONDS = 10.0
_LOST, _LATE = 0.05, 0.05
"""of answers: those that never arrive, and those that come when the next ones may have"""


@dataclass(slots=True)
class Gateways:
    """A gateway in contact keeps what it was told; its lease is taken to go on also while a shard
    has no leader, so that it holds more than a real one. One that is lost falls to its floor.

    held:    topic -> broker -> the epoch that it has, and its share
    lost_at: broker -> when it was cut off for good
    late:    (when, order, topic, broker, epoch, share) of answers that are on their way
    """

    random: Random
    held: dict[str, dict[str, tuple[int, Share]]] = field(default_factory=dict)
    lost_at: dict[str, float] = field(default_factory=dict)
    late: list[tuple[float, int, str, str, int, Share]] = field(default_factory=list)
    answers: int = 0

    def applied(self, topic: str, broker: str) -> int:
        return self.held.get(topic, {}).get(broker, (0, NOTHING))[0]

    def contact_at(self, broker: str, now: float) -> float:
        """When its last report came."""
        return self.lost_at.get(broker, now)

    def answer(self, topic: str, broker: str, epoch: int, share: Share, now: float) -> None:
        """An answer is sent to a report."""
        drawn = self.random.random()
        self.answers += 1
        if drawn < _LATE:
            due = now + self.random.uniform(0, 2 * LEASE_SECONDS)
            heappush(self.late, (due, self.answers, topic, broker, epoch, share))
        elif drawn > _LATE + _LOST:
            self._take(topic, broker, epoch, share)

    def arrive(self, now: float) -> Iterator[str]:
        """Take the late answers that arrive by now; yields their topics."""
        while self.late and self.late[0][0] <= now:
            _, _, topic, broker, epoch, share = heappop(self.late)
            if broker not in self.lost_at:
                self._take(topic, broker, epoch, share)
                yield topic

    def _take(self, topic: str, broker: str, epoch: int, share: Share) -> None:
        if epoch > self.applied(topic, broker):
            self.held.setdefault(topic, {})[broker] = (epoch, share)

    def judge(self, contract: Contract, now: float, violations: Counter[str]) -> None:
        """Count shares that are more than their contract."""
        shares = [
            share.floor if now >= self.contact_at(broker, now) + LEASE_SECONDS else share
            for broker, (_, share) in self.held.get(contract.topic, {}).items()
        ]
        over_rate = fsum([*(each.rate for each in shares), -contract.rate]) > 0
        over_burst = fsum([*(each.burst for each in shares), -contract.burst]) > 0
        if over_rate or over_burst:
            violations["shares of a topic over its contract"] += 1
