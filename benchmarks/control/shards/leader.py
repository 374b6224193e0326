"""The leader of one shard: it places its topics by what it has read, and leases their shares."""

from collections import Counter
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from math import inf
from random import Random

from benchmarks.control.shards.gateways import LEASE_SECONDS, Gateways
from benchmarks.control.shards.rows import NOWHERE, Placed, Rows, Stale
from distributor.model import Broker
from distributor.placement.policies import POLICIES
from distributor.placement.srtm import extend
from tb_adaptor.leases import NOTHING, Holder, TopicLeases

_REPORT_SECONDS = 1.0
PLACE, SHARE = "place", "share"
"""what is to be done for a topic: place its publishers, or bring shares to its brokers"""


@dataclass
class Leader:
    """One process. A step is one transaction, or one round of reports of a topic's brokers; what
    others wrote between two of its steps it has not seen.

    term:    by which each write is allowed
    jobs:    (when due, order, what, topic)
    in_hand: a placement that was decided and not written: topic, and its row
    lost:    brokers of which it knows that they are lost
    passed:  topics that went on to another group, and the group
    counts:  of placements, decisions that were stale, ...
    """

    shard: int
    rows: Rows
    gateways: Gateways
    random: Random
    counts: Counter[str]
    lost: set[str]
    term: int = field(init=False)
    jobs: list[tuple[float, int, str, str]] = field(default_factory=list)
    in_hand: tuple[str, Placed] | None = None
    leases: dict[str, TopicLeases] = field(default_factory=dict)
    told: set[tuple[str, str]] = field(default_factory=set)
    passed: list[tuple[str, int]] = field(default_factory=list)
    _order: int = 0
    _retries: int = 0

    def __post_init__(self) -> None:
        self.term = self.rows.lead(self.shard)

    def restore(self, now: float) -> None:
        """Begin with what the store has: what brokers may hold, as if each had just been told."""
        assumed_until = now + LEASE_SECONDS * 4 / 3
        for topic, row in self.rows.topics.items():
            if row.shard != self.shard:
                continue
            leases = self.leases[topic] = TopicLeases()
            for broker, granted in self.rows.grants.get(topic, {}).items():
                leases.holders[broker] = Holder(granted, assumed_until)
            leases.agree(row.contract)
            leases.targets = self.rows.placed.get(topic, NOWHERE).targets
            having = {name for name, held in leases.holders.items() if held.last != NOTHING}
            leases.claims = having - leases.targets.keys()
            self.add(PLACE, topic, now)
            self.add(SHARE, topic, now)

    def add(self, what: str, topic: str, due: float) -> None:
        self._order += 1
        heappush(self.jobs, (due, self._order, what, topic))

    def due(self, now: float) -> float:
        """The time of its next step; infinite where it has nothing to do."""
        if self.in_hand:
            return now
        return self.jobs[0][0] if self.jobs else inf

    def step(self, now: float) -> None:
        """Raises Fenced where another one leads."""
        if self.in_hand:
            self._write(now)
            return
        _, _, what, topic = heappop(self.jobs)
        if what == PLACE:
            self._decide(topic)
        else:
            self._share(topic, now)

    def is_needed(self, topic: str) -> bool:
        """Is the topic to be placed: for the first time, with other rates, or off some brokers?"""
        row, placed = self.rows.topics[topic], self.rows.placed.get(topic, NOWHERE)
        away = self.lost | self.rows.draining
        is_all = row.version == placed.version and sum(placed.loads.values()) == row.rate
        return row.shard == self.shard and (not is_all or not away.isdisjoint(placed.loads))

    # --- placements ---------------------------------------------------------------------------

    def _decide(self, topic: str) -> None:
        """Read the brokers' rows, and decide; others may write until `_write`."""
        if not self.is_needed(topic):
            return
        row, before = self.rows.topics[topic], self.rows.placed.get(topic, NOWHERE)
        brokers = [
            Broker(name, capacity, sum(self.rows.allocated[name]) - before.loads.get(name, 0))
            for name, capacity in self.rows.capacities.items()
            if self._takes(name)
        ]
        if row.version != before.version:
            placement = POLICIES["srtm"](row.contract, brokers, row.publishers)
        else:
            takes = {each.name for each in brokers}
            stay = {who: name for who, name in before.assignment.items() if name in takes}
            placement = extend(row.contract, brokers, row.publishers, stay, {})
        if placement.unplaced and before is NOWHERE and self.rows.owners:
            group = self.rows.pass_on(self.shard, self.term, topic)
            if group is not None:
                self.passed.append((topic, group))
                return
        after = Placed.of(placement, row.version)
        if after.loads and after.loads != before.loads:
            self.in_hand = topic, after

    def _takes(self, broker: str) -> bool:
        is_away = broker in self.lost or broker in self.rows.draining
        return not is_away and self.rows.owners.get(broker, self.shard) == self.shard

    def _write(self, now: float) -> None:
        assert self.in_hand is not None
        (topic, after), self.in_hand = self.in_hand, None
        try:
            if not self.lost.isdisjoint(after.loads):
                raise Stale
            self.rows.place(self.shard, self.term, topic, after)
        except Stale:
            self.counts["stale"] += 1
            self._retries += 1
            self.counts["most retries"] = max(self.counts["most retries"], self._retries)
            self.add(PLACE, topic, -inf)  # before all others
            return
        self._retries = 0
        self.counts["placements"] += 1
        self._leases(topic, now).place(after.targets)
        self.add(SHARE, topic, now)

    # --- shares -------------------------------------------------------------------------------

    def _leases(self, topic: str, now: float) -> TopicLeases:
        """The topic's leases, those of brokers in contact renewed by their last report."""
        leases = self.leases.get(topic)
        if leases is None:
            leases = self.leases[topic] = TopicLeases()
            leases.agree(self.rows.topics[topic].contract)
        for broker, held in leases.holders.items():
            ends_at = self.gateways.contact_at(broker, now) + LEASE_SECONDS
            leases.holders[broker] = replace(held, ends_at=max(held.ends_at, ends_at))
        return leases

    def _share(self, topic: str, now: float) -> None:
        """Each of the topic's brokers in contact reports once, in any order."""
        if topic not in self.leases:
            return
        self.rows.confirm(self.shard, self.term)
        leases = self._leases(topic, now)
        brokers = sorted(leases.targets.keys() | leases.holders.keys())
        there = [each for each in brokers if each not in self.gateways.lost_at]
        self.random.shuffle(there)
        for broker in there:
            self._report(topic, leases, broker, now)
        if not all(self._is_done(topic, leases, each, now) for each in there):
            self.add(SHARE, topic, now + _REPORT_SECONDS)

    def _report(self, topic: str, leases: TopicLeases, broker: str, now: float) -> None:
        holder = leases.holders.get(broker, Holder())
        holder = holder.heard(now, self.gateways.applied(topic, broker))
        leases.holders[broker] = holder
        if all(
            name in leases.holders and leases.holders[name].acknowledged != NOTHING
            for name in leases.targets
        ):
            leases.claims.discard(broker)  # nobody is still to leave it
        share = leases.share(broker, now, keep_floor=broker in leases.claims)
        if share != holder.last or (topic, broker) not in self.told or not holder.settled:
            epoch = self.rows.next_epoch(self.shard)
            holder = holder.told(epoch, share, now + LEASE_SECONDS)
            self.rows.grant(self.shard, self.term, topic, broker, holder.granted)
            self.told.add((topic, broker))
            leases.holders[broker] = holder
            self.gateways.answer(topic, broker, epoch, share, now)
            contract = self.rows.topics[topic].contract
            self.gateways.judge(contract, now, self.rows.violations)

    def _is_done(self, topic: str, leases: TopicLeases, broker: str, now: float) -> bool:
        holder = leases.holders[broker]
        if self.gateways.applied(topic, broker) < holder.granted[-1][0]:
            return False
        wanted = leases.target(broker, now) if broker in leases.targets else NOTHING
        return holder.last == wanted
