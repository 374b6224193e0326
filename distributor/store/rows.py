"""What the store keeps, as values. Rates are messages/s, bursts messages."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """capacity: messages/s that it holds within its SLO; 0: not measured yet. instance: id of the
    one gateway that goes by this name; empty: not known."""

    name: str
    tcp_address: str
    http_address: str
    capacity: float
    draining: bool
    instance: str = ""


@dataclass(frozen=True, slots=True)
class TopicRow:
    """contract: JSON of `limits.contract.Contract`; keys: JSON list of correlation keys, or None;
    adaptation, migration, grouping: JSON of `distributor.api.AdaptationAsked`, `MigrationAsked` and
    `distributor.grouping.Kept`, empty for their defaults, each written by a statement of its own.
    """

    topic: str
    contract: str
    keys: str | None
    adaptation: str = ""
    migration: str = ""
    grouping: str = ""


@dataclass(frozen=True, slots=True)
class PublisherRow:
    """broker: where the placement in force puts it; None: nowhere yet."""

    topic: str
    id: str
    key: str | None
    rate: float
    broker: str | None


@dataclass(frozen=True, slots=True)
class PlacementRow:
    """at: seconds since 1970, for people; document: JSON of its brokers, reasons and unplaced."""

    topic: str
    epoch: int
    at: float
    policy: str
    document: str


@dataclass(frozen=True, slots=True)
class GrantRow:
    """A sub-bucket that a broker was told of and may hold; rate 0: it was told to hold none. least:
    messages of burst that it keeps without contact. grace: seconds for which it keeps all of it
    after the lease."""

    topic: str
    broker: str
    epoch: int
    rate: float
    burst: float
    least: int = 1
    grace: float = 0.0


@dataclass(frozen=True, slots=True)
class FittingRow:
    """The last online fitting of a topic. document: JSON of `distributor.api.FittingShown`."""

    topic: str
    document: str


@dataclass(frozen=True, slots=True)
class ModelRow:
    """What fittings have taught about a broker. document: JSON, its part of `CapacityModel`."""

    broker: str
    document: str


@dataclass(frozen=True, slots=True)
class LineageRow:
    """Which store this is. secret: proves epochs of it (`distributor.lineage`); unsure: gateways
    know more than it does, and have not all been heard; copied: it was restored from a copy, and
    they may."""

    id: str
    secret: str
    unsure: bool
    copied: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything, as of one instant. epoch: the largest ever handed out; lineage: None in a store
    that is new; lost: topics of a store before this one, of which only the name is known;
    lease_seconds: the longest lease that may still run."""

    epoch: int
    brokers: tuple[BrokerRow, ...]
    topics: tuple[TopicRow, ...]
    publishers: tuple[PublisherRow, ...]
    placements: tuple[PlacementRow, ...]
    grants: tuple[GrantRow, ...]
    fittings: tuple[FittingRow, ...]
    model: tuple[ModelRow, ...]
    lineage: LineageRow | None = None
    lost: tuple[str, ...] = ()
    lease_seconds: float = 0.0
