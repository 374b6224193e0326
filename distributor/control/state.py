"""What the distributor knows, in memory: brokers, and topics with their publishers and leases.

`ControlState` is the whole of it, and answers every request. It begins as what the store has
(`restored.py`) when this distributor becomes the leader; from then on only `Distributor` and its
parts change it, and write to the store what a restart has to know. Brokers and topics meet in the
leases: of each topic, what each broker may hold.

    ControlState
     ├─ gateways  name  -> Gateway           what a broker was told, has, and when it was heard
     ├─ topics    topic -> RegisteredTopic   contract, publishers, and where they are
     │                      └─ history         placements (InForce), the last is in force
     └─ leases    topic -> TopicLeases       targets by the placement; what brokers may hold

A publisher waits for its broker: its place by the placement counts at once, and clients are shown
it once the broker has acknowledged a share of the topic.

    registered ──place──▶ waiting for the broker ──acknowledge──▶ shown there
                             ▲                                        │
                             └──────────── place elsewhere ───────────┘
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import fsum, inf
from typing import Any

from distributor.api import AdaptationAsked, FittingShown, MigrationAsked, MoveShown, ShareShown
from distributor.control.lineage import Lineage
from distributor.errors import NotFound
from distributor.fitting import CapacityModel
from distributor.gateway_api import DesiredTopic, TopicKeys
from distributor.grouping.keys import Use, merged
from distributor.grouping.proposals import Kept
from distributor.store import BrokerRow, LineageRow, PlacementRow, PublisherRow, TopicRow
from srtm.limits.contract import Contract
from tb_adaptor.leases import Share, Term, TopicLeases

FORMER = "~"
"""in the name of a broker whose name another gateway has taken over; no gateway's own has it"""
UNHEARD = FORMER + "unheard"
"""holds what gateways that were not heard after a store was lost may hold"""


@dataclass(slots=True)
class Gateway:
    """A broker as the service sees it. Times are monotonic seconds.

    epoch:    of `document`, the desired state that it was told last
    applied:  the largest epoch that it reported to have
    busy_at:  topic -> when it last reported messages of it
    process:  that registered with this leader; None: none has yet
    replaced: processes that others with the same state file have replaced
    has:      topic -> share that it said to hold, or was told since
    named_until: the name is its instance's, as one before this leader may have heard it
    suspended: topics of it that it was told to hold up
    written:  epoch, document and topics held up of the last desired state that is on disk
    resting:  topics, some of `topics`, whose shares rest (`quiet.py`)
    term:     until when their leases go on
    keyed:    topics of `document` of which it has to know the keys of publishers
    asked:    topics of which `document` asks for the publishers
    is_still: all of its shares rested at the last report
    look_at:  when the shares that rest are looked at all the same
    """

    row: BrokerRow
    epoch: int = 0
    applied: int = 0
    saved: int = 0
    document: list[DesiredTopic] | None = None
    contact_at: float = -inf
    lease_ends_at: float = -inf
    topics: set[str] = field(default_factory=set)
    busy_at: dict[str, float] = field(default_factory=dict)
    process: str | None = None
    replaced: set[str] = field(default_factory=set)
    has: dict[str, Share] = field(default_factory=dict)
    named_until: float = -inf
    suspended: list[str] = field(default_factory=list)
    written: tuple[int, list[DesiredTopic], list[str]] = (0, [], [])
    resting: set[str] = field(default_factory=set)
    term: Term = field(default_factory=Term)
    keyed: tuple[str, ...] = ()
    asked: frozenset[str] = frozenset()
    is_still: bool = False
    look_at: float = -inf

    def silent_until(self, lease_seconds: float) -> float:
        """The time until which the broker may have been in contact with us, or with a leader
        before."""
        return max(self.named_until, self.contact_at + lease_seconds)

    def state(self, now: float, lease_seconds: float) -> str:
        if now >= self.contact_at + lease_seconds:
            return "lost"
        return "draining" if self.row.draining else "up"


@dataclass(frozen=True, slots=True)
class InForce:
    """A placement that was applied. moves: of a migration, each publisher that it moved"""

    epoch: int
    at: float
    policy: str
    brokers: tuple[ShareShown, ...]
    unplaced: int
    unplaced_rate: float
    reasons: tuple[str, ...]
    moves: tuple[MoveShown, ...] = ()

    @classmethod
    def of(cls, row: PlacementRow) -> "InForce":
        values = json.loads(row.document)
        return cls(
            row.epoch,
            row.at,
            row.policy,
            tuple(ShareShown(**each) for each in values["brokers"]),
            values["unplaced"],
            values["unplaced_rate"],
            tuple(values["reasons"]),
            tuple(MoveShown(**each) for each in values.get("moves", ())),
        )

    def row(self, topic: str) -> PlacementRow:
        document: dict[str, Any] = {
            "brokers": [each.model_dump() for each in self.brokers],
            "unplaced": self.unplaced,
            "unplaced_rate": self.unplaced_rate,
            "reasons": self.reasons,
        }
        if self.moves:
            document["moves"] = [each.model_dump() for each in self.moves]
        return PlacementRow(topic, self.epoch, self.at, self.policy, json.dumps(document))

    @property
    def targets(self) -> dict[str, Share]:
        return {each.name: Share(each.r, each.b) for each in self.brokers}


@dataclass(slots=True)
class RegisteredTopic:
    """A contract, its publishers, and where they are.

    publishers: id -> (key, rate)
    places:     id -> broker, by the placement in force
    shown:      id -> (broker, epoch) that clients are told: a publisher is sent to a broker only
                when that has acknowledged a share of the topic
    waiting:    broker -> ids that are sent there once it has
    ready:      brokers that have acknowledged one
    fitting:    the last online fitting, which may go on
    adaptation: how shares follow the traffic
    migration:  what becomes of publishers at a broker in trouble
    grouping:   groups of publishers that were inferred from a trace
    emptied:    epoch at which its buckets were to be emptied last; 0: never
    told_keys:  broker -> keys of its publishers, where they are asked for; None: not counted yet
    """

    contract: Contract
    keys: frozenset[str] | None
    publishers: dict[str, tuple[str | None, float]] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    shown: dict[str, tuple[str | None, int]] = field(default_factory=dict)
    waiting: dict[str, set[str]] = field(default_factory=dict)
    ready: set[str] = field(default_factory=set)
    history: list[InForce] = field(default_factory=list)
    fitting: FittingShown | None = None
    emptied: int = 0
    adaptation: AdaptationAsked = field(default_factory=lambda: AdaptationAsked.model_validate({}))
    migration: MigrationAsked = field(default_factory=lambda: MigrationAsked.model_validate({}))
    grouping: Kept = field(default_factory=Kept)
    told_keys: dict[str, TopicKeys] | None = None
    _loads: dict[str, float] | None = None
    _keys: dict[str, str | None] | None = None

    @property
    def is_fitted(self) -> bool:
        """Does a fitting go on?"""
        return self.fitting is not None and self.fitting.state == "running"

    @property
    def in_force(self) -> InForce | None:
        return self.history[-1] if self.history else None

    def row(self) -> TopicRow:
        keys = None if self.keys is None else json.dumps(sorted(self.keys))
        return TopicRow(self.contract.topic, self.contract.model_dump_json(), keys)

    def register(self, rows: Iterable[PublisherRow]) -> None:
        for row in rows:
            self.publishers[row.id] = (row.key, row.rate)
        self._loads = self._keys = self.told_keys = None

    def forget(self, publisher: str) -> None:
        del self.publishers[publisher]
        place = self.places.pop(publisher, None)
        self.shown.pop(publisher, None)
        if place is not None:
            self.waiting.get(place, set()).discard(publisher)
        self._loads = self._keys = self.told_keys = None

    @property
    def user_keys(self) -> dict[str, str | None]:
        return {each: key for each, (key, _) in self.publishers.items()}

    def keys_of(self, use: Use) -> dict[str, str | None]:
        """The keys by which publishers are placed: publisher id -> key. To be read only."""
        accepted = self.grouping.accepted
        groups = accepted.members if accepted else {}
        if use != "both":
            return merged(self.user_keys, groups, use)
        if self._keys is None:
            self._keys = merged(self.user_keys, groups, use)
        return self._keys

    def group_by(self, grouping: Kept) -> None:
        self.grouping, self._keys = grouping, None

    def place(self, moved: dict[str, str | None], epoch: int) -> list[str]:
        """Publishers by their new brokers; the ids whose shown place changes at once."""
        changed = []
        for publisher, broker in moved.items():
            before = self.places.pop(publisher, None)
            if before is not None:
                self.waiting.get(before, set()).discard(publisher)
            if broker is None:
                self.shown[publisher] = (None, epoch)
                changed.append(publisher)
                continue
            self.places[publisher] = broker
            if broker in self.ready:
                if self.shown.get(publisher, (None, 0))[0] != broker:
                    self.shown[publisher] = (broker, epoch)
                    changed.append(publisher)
            else:
                self.waiting.setdefault(broker, set()).add(publisher)
        self._loads = self.told_keys = None
        return changed

    def acknowledge(self, broker: str) -> list[str]:
        """The broker has a share now: the ids of the publishers that are sent there from now on."""
        self.ready.add(broker)
        changed = []
        epoch = self.in_force.epoch if self.in_force else 0
        for publisher in self.waiting.pop(broker, ()):
            if self.shown.get(publisher, (None, 0))[0] != broker:
                self.shown[publisher] = (broker, epoch)
                changed.append(publisher)
        return changed

    def loads(self) -> dict[str, float]:
        """Declared rates by broker."""
        if self._loads is None:
            rates: dict[str, list[float]] = {}
            for publisher, broker in self.places.items():
                rates.setdefault(broker, []).append(self.publishers[publisher][1])
            self._loads = {broker: fsum(each) for broker, each in rates.items()}
        return self._loads


@dataclass(slots=True)
class ControlState:
    """What is known, and how well.

    epoch:   the largest handed out
    kept_epoch: the largest on disk; whoever is told of a larger one would know more than a restart
    leases:  also of deleted topics, until brokers let go
    model:   what online fittings have taught
    lineage: which store this is
    copied:  the store was restored from a copy: until `sure_at` gateways may know more
    unsure:  gateways know more than the store, and not all of them have been heard
    opened:  epoch of the store as it was read
    former:  which store this was before gateways showed that it is an older copy
    sure_at: when all that were led by another store have been heard, or their leases have ended
    lost:    topics of a store before this one, of which only the name is known
    since:   epoch at which it became unsure; placements after it are meant
    learnt:  topic -> store and epoch of the gateway from which its contract is
    refused_epochs:  how often somebody showed an epoch that nobody gave out
    is_replica: it is what another distributor has written: who is in contact is not known
    """

    epoch: int = 0
    kept_epoch: int = 0
    gateways: dict[str, Gateway] = field(default_factory=dict)
    topics: dict[str, RegisteredTopic] = field(default_factory=dict)
    leases: dict[str, TopicLeases] = field(default_factory=dict)
    model: CapacityModel = field(default_factory=CapacityModel)
    lineage: Lineage = field(default_factory=Lineage.new)
    opened: int = 0
    former: Lineage | None = None
    copied: bool = False
    unsure: bool = False
    unheard: set[str] = field(default_factory=set)
    sure_at: float = -inf
    lost: set[str] = field(default_factory=set)
    since: int = 0
    learnt: dict[str, tuple[str, int]] = field(default_factory=dict)
    refused_epochs: int = 0
    is_replica: bool = False

    def topic(self, name: str) -> RegisteredTopic:
        """Raises NotFound."""
        found = self.topics.get(name)
        if found is None:
            raise NotFound(f"topic {name} is not registered; srtm topic register FILE does it")
        return found

    def stir(self, topic: str) -> None:
        """Something has happened to the topic, or to what may be held of it: brokers' shares of it
        are looked at again."""
        leases = self.leases.get(topic)
        for broker in leases.holders if leases else ():
            if broker in self.gateways:
                self.gateways[broker].resting.discard(topic)

    def listens(self, now: float) -> bool:
        """Does each gateway keep what it has, while others may know more than the store? Each of
        them tells, as it registers."""
        return self.unsure or ((self.copied or bool(self.unheard)) and now < self.sure_at)

    def lineage_row(self) -> LineageRow:
        return LineageRow(self.lineage.id, self.lineage.secret, self.unsure, self.copied)

    def next_epoch(self) -> int:
        self.epoch += 1
        return self.epoch

    def allocated(self, without: str | None = None) -> Mapping[str, float]:
        """By broker, the declared rates of all publishers placed there, of all topics but
        `without`. One pass over all topics, whichever brokers it is for."""
        rates: defaultdict[str, list[float]] = defaultdict(list)
        for name, topic in self.topics.items():
            if name != without:
                for broker, rate in topic.loads().items():
                    rates[broker].append(rate)
        return {broker: fsum(each) for broker, each in rates.items()}
