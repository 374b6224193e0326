"""The rows that the leaders of all shards share in one PostgreSQL.

Each method that writes is one transaction. Rates are whole messages/s, so that sums are exact.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from zlib import crc32

from distributor.model import Placement, Publisher
from srtm.limits.contract import Contract
from tb_adaptor.leases import Share


class Stale(Exception):
    """What a transaction was decided by does not hold any more: its leader decides again."""


class Fenced(Exception):
    """Another leader has the shard."""


@dataclass(frozen=True, slots=True)
class Checks:
    """What transactions look at; a control arm leaves one out.

    capacity: sum over shards at each broker, and whether it is drained
    leader:   the shard's row
    """

    capacity: bool = True
    leader: bool = True


BOTH = Checks()


@dataclass(frozen=True, slots=True)
class Registered:
    """A topic's row. version: of its publishers; tried: groups that had no room for all of it"""

    contract: Contract
    publishers: tuple[Publisher, ...]
    shard: int
    version: int = 0
    tried: frozenset[int] = frozenset()

    @property
    def rate(self) -> int:
        return round(sum(each.rate for each in self.publishers))


@dataclass(frozen=True, slots=True)
class Placed:
    """A placement's row. version: of the publishers that it is for; loads: broker -> messages/s"""

    version: int
    assignment: Mapping[str, str]
    loads: Mapping[str, int]
    targets: Mapping[str, Share]

    @classmethod
    def of(cls, placement: Placement, version: int) -> "Placed":
        return cls(
            version,
            placement.assignment,
            {each.name: round(each.rate) for each in placement.brokers},
            {each.name: Share(each.r, each.b) for each in placement.brokers},
        )


NOWHERE = Placed(-1, {}, {}, {})


@dataclass(slots=True)
class Rows:
    """All tables.

    capacities: broker -> messages/s
    owners:     broker -> shard, where a shard is a group of brokers; empty: brokers are shared
    terms:      of each shard: how often it got a leader
    epochs:     of each shard: the largest given out
    allocated:  broker -> messages/s of each shard's topics
    grants:     topic -> broker -> what it may hold, as `Holder.granted`
    writes:     placements written
    violations: by kind, of what must never be
    """

    shards: int
    capacities: Mapping[str, int]
    checks: Checks
    owners: Mapping[str, int] = field(default_factory=dict)
    draining: set[str] = field(default_factory=set)
    topics: dict[str, Registered] = field(default_factory=dict)
    placed: dict[str, Placed] = field(default_factory=dict)
    grants: dict[str, dict[str, tuple[tuple[int, Share], ...]]] = field(default_factory=dict)
    writes: int = 0
    violations: Counter[str] = field(default_factory=Counter)
    terms: list[int] = field(init=False)
    epochs: list[int] = field(init=False)
    allocated: dict[str, list[int]] = field(init=False)
    room: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.terms, self.epochs = [0] * self.shards, [0] * self.shards
        self.allocated = {name: [0] * self.shards for name in self.capacities}
        self.room = [0] * self.shards
        for name, shard in self.owners.items():
            self.room[shard] += self.capacities[name]

    # --- leaders ------------------------------------------------------------------------------

    def lead(self, shard: int) -> int:
        """The term of a new leader; whoever led before writes no more."""
        self.terms[shard] += 1
        return self.terms[shard]

    def confirm(self, shard: int, term: int) -> None:
        """Raises Fenced. Without the check, somebody who leads no more is counted."""
        if self.terms[shard] == term:
            return
        if self.checks.leader:
            raise Fenced
        self.violations["a write of who leads no more"] += 1

    # --- topics -------------------------------------------------------------------------------

    def register(self, contract: Contract, publishers: tuple[Publisher, ...]) -> int:
        """The shard that a new topic is in: by the hash of its name; with groups of brokers, the
        one that has the most room beside what was registered there."""
        shard = self._roomiest() if self.owners else crc32(contract.topic.encode()) % self.shards
        self._put(Registered(contract, publishers, shard))
        return shard

    def change(self, topic: str, publishers: tuple[Publisher, ...]) -> None:
        """The publishers of a topic register with other rates."""
        row = self.topics[topic]
        self._put(
            Registered(row.contract, publishers, row.shard, row.version + 1, row.tried), before=row
        )

    def pass_on(self, shard: int, term: int, topic: str) -> int | None:
        """Another group for a topic of which nothing is placed yet; None: all have been tried."""
        self.confirm(shard, term)
        row = self.topics[topic]
        tried = row.tried | {shard}
        if len(tried) == self.shards:
            return None
        after = self._roomiest(tried)
        self._put(Registered(row.contract, row.publishers, after, row.version, tried), before=row)
        return after

    def _roomiest(self, tried: frozenset[int] = frozenset()) -> int:
        return max(set(range(self.shards)) - tried, key=lambda shard: (self.room[shard], -shard))

    def _put(self, row: Registered, before: Registered | None = None) -> None:
        if before:
            self.room[before.shard] += before.rate
        self.room[row.shard] -= row.rate
        self.topics[row.contract.topic] = row

    # --- placements ---------------------------------------------------------------------------

    def place(self, shard: int, term: int, topic: str, after: Placed) -> None:
        """A placement, and what it changes at each broker: allowed where the sum over all shards
        stays within the broker's capacity, as the rows are now. (In PostgreSQL the transaction
        locks the broker's row first: two sums of snapshots would not see each other.) Raises
        Fenced, Stale."""
        self.confirm(shard, term)
        before = self.placed.get(topic, NOWHERE)
        changes = {
            name: after.loads.get(name, 0) - before.loads.get(name, 0)
            for name in after.loads.keys() | before.loads.keys()
        }
        for name, more in changes.items():
            if more > 0 and not self._has_room(name, more):
                if self.checks.capacity:
                    raise Stale
                self.violations["a broker over its capacity, or drained"] += 1
        for name, more in changes.items():
            self.allocated[name][shard] += more
        self.placed[topic] = after
        self.writes += 1

    def _has_room(self, broker: str, more: int) -> bool:
        is_full = sum(self.allocated[broker]) + more > self.capacities[broker]
        return not is_full and broker not in self.draining

    def grant(
        self, shard: int, term: int, topic: str, broker: str, held: tuple[tuple[int, Share], ...]
    ) -> None:
        """Raises Fenced."""
        self.confirm(shard, term)
        self.grants.setdefault(topic, {})[broker] = held

    def next_epoch(self, shard: int) -> int:
        self.epochs[shard] += 1
        return self.epochs[shard]

    def audit(self) -> None:
        """Count brokers that have more than they can take, or other rows than their topics say,
        by the placements themselves."""
        loads: Counter[str] = Counter()
        for row in self.placed.values():
            loads.update(row.loads)
        for name, capacity in self.capacities.items():
            if loads[name] > capacity or loads[name] != sum(self.allocated[name]):
                self.violations["a broker whose topics and rows differ, or are too much"] += 1
