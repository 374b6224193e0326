"""The bodies of the HTTP API. OpenAPI is made from them, so a field's description is its
documentation. Rates are messages/s, bursts messages."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from distributor.grouping import Use
from srtm.contract import MAX_BURST, MAX_RATE, MIN_RATE, Mode

MAX_PUBLISHERS = 20_000
"""of one request: reading them holds up all others for 0.1 to 0.2 s"""
MAX_LISTED = 10_000
"""of one answer: making it holds up all others for 0.1 s"""
MAX_KEYS = 100_000
MAX_TOPICS = 10_000
MAX_WATCHED = 100_000
MAX_ARRIVALS = 5_000
"""of one topic: a gateway keeps no more until it reports them"""
MAX_BINS = 2_000
"""of a topic's waits: those from a nanosecond to 30 years"""
MAX_TOLD = 100
"""publishers of one topic in a report, the heaviest of a broker in trouble"""
MAX_COUNT = float(2**53)
"""Whole numbers up to it are exact. It keeps every sum finite."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:\[\]-]{1,128}$")]
Id = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f]*$")]
Rate = Annotated[float, Field(ge=MIN_RATE, le=MAX_RATE, allow_inf_nan=False)]
Count = Annotated[float, Field(ge=0, le=MAX_COUNT, allow_inf_nan=False)]
Flow = Annotated[float, Field(ge=0, le=MAX_RATE, allow_inf_nan=False)]
Bin = Annotated[int, Field(ge=-(2**31), le=2_000)]
Epoch = Annotated[int, Field(ge=0, le=2**62)]
Token = Annotated[str, Field(max_length=64)]
"""an id or a proof, in hexadecimal digits"""
HostPort = Annotated[str, Field(max_length=300, pattern=r"^[A-Za-z0-9_.:\[\]%-]+:[0-9]{1,5}$")]
TopicName = Annotated[str, Field(max_length=64)]
Policy = Literal["srtm", "max-min", "conc", "lb", "single"]
AdaptationPolicy = Literal["srtm", "paper", "rate-only", "off"]
MigrationMode = Literal["off", "propose", "auto"]
Unplaced = Literal["reject", "floor", "pass"]
FittingMode = Literal["sequential", "paper"]
Meanwhile = Literal["hold", "elsewhere"]
FittingState = Literal["running", "stopped", "met", "best", "contract too small", "out of brokers"]


class Asked(BaseModel):
    """A request's body: an unknown field is refused, as it is a slip of the pen."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class FromGateway(BaseModel):
    """What a gateway sends: fields of a newer version are passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


class ErrorAnswer(Answer):
    error: str = Field(description="what is wrong, where, and how to mend it, in one line")


class HeldTopic(FromGateway):
    """What a gateway holds of a topic, and what it was told of the whole contract."""

    topic: TopicName
    rate: Rate = Field(description="r_l")
    burst: float = Field(ge=1, le=MAX_BURST, allow_inf_nan=False, description="b_l")
    topic_rate: Rate = Field(description="r")
    topic_burst: float = Field(ge=1, le=MAX_BURST, allow_inf_nan=False, description="b")
    mode: Mode = Mode.DELAY
    max_wait: str | None = None
    slo: str | None = None


class BrokerAsked(FromGateway):
    """A gateway says who it is and all that it knows: the distributor may know less."""

    name: Name
    tcp_address: HostPort = Field(description="of the gateway")
    http_address: HostPort = Field(description="of the gateway")
    capacity: float | None = Field(
        None,
        ge=0,
        le=MAX_RATE,
        allow_inf_nan=False,
        description="messages/s within the SLO; without it what is stored stays, 0 at first",
    )
    instance: Token = Field("", description="of its state file: no two gateways have the same")
    process: Token = Field("", description="another one after each start")
    store: Token = Field("", description="of the answers that it had; empty: it had none")
    applied_epoch: Epoch = Field(0, description="of the desired state that it has")
    newest: Epoch = Field(0, description="the largest epoch that it was shown")
    proof: Token = Field("", description="that it was shown it")
    lease_seconds: float = Field(0.0, ge=0, le=86_400, description="of the last answer")
    held: list[HeldTopic] = Field(default=[], max_length=MAX_TOPICS)
    names: list[TopicName] = Field(
        default=[], max_length=MAX_TOPICS, description="topics that have a contract somewhere"
    )


class BrokerAnswer(Answer):
    name: str
    epoch: int
    store: str = Field(description="id of the store that the distributor leads by")
    lease_seconds: float = Field(
        description="counted from when the gateway sent the report that was answered"
    )


class WaitsReport(FromGateway):
    """Token waits since the last answered report."""

    clock: Count = Field(description="of the gateway, at which 0 milliseconds ago is: milliseconds")
    seconds: Count = Field(description="their sum")
    bins: list[tuple[Bin, Count]] = Field(
        max_length=MAX_BINS,
        fail_fast=True,
        description="(number of a bin, messages): bin k is of waits in (g^(k-1), g^k] seconds with "
        "g = 1.01/0.99, bin -2147483648 of no wait",
    )
    held: Count | None = Field(
        None, description="messages that have no token now; null: too many to be counted"
    )


class TopicReport(FromGateway):
    topic: str = Field(max_length=64)
    offered: Flow = Field(0.0, description="messages/s that came since the last report")
    admitted: Flow = Field(0.0, description="messages/s that got a token since the last report")
    backlog: Count = Field(0.0, description="messages without an answer now")
    waiting: Count = Field(0.0, description="those of them that have no token")
    served: Count = Field(0.0, description="deliveries measured since the last report")
    near: Count = Field(0.0, description="those that took longer than 0.8 of the SLO's target")
    late: Count = Field(0.0, description="those that took longer than the SLO's target")
    late_at_broker: Count = Field(
        0.0, description="those that did even without the wait for their token"
    )
    arrivals: list[tuple[Count, Count]] = Field(
        default=[],
        max_length=MAX_ARRIVALS,
        fail_fast=True,
        description="(milliseconds ago, messages); where the desired state asks for them",
    )
    batches: list[tuple[Count, Count]] = Field(
        default=[],
        max_length=MAX_ARRIVALS,
        fail_fast=True,
        description="those of the arrivals that wait for all of their tokens together",
    )
    waits: WaitsReport | None = Field(None, description="with the arrivals, from the second on")

    publishers: list[tuple[Annotated[str, Field(max_length=256)], Count]] = Field(
        default=[],
        max_length=MAX_TOLD,
        fail_fast=True,
        description="(publisher, messages) of those that sent most since the last report; where "
        "the desired state asks for them",
    )

    @model_validator(mode="after")
    def _of_the_served(self) -> "TopicReport":
        # late_at_broker is counted on its own, and may be of an SLO that is gone.
        for name, count in (("near", self.near), ("late", self.late)):
            if count > self.served:
                raise ValueError(f"{name} is {count:g} of {self.served:g} that were served")
        return self


class Report(FromGateway):
    applied_epoch: Epoch = Field(
        description="of the desired state that the gateway has; 0: none since it started"
    )
    process: Token = Field("", description="as it registered")
    store: Token | None = Field(
        None, description="that the epoch is of; null: the one that the answers come from"
    )
    names_version: Token = Field("", description="of the names that it has")
    seconds: Count = Field(0.0, description="that the counts are of: since the last report")
    answered: Epoch | None = Field(
        None,
        description="reports of this gateway that were answered before; the same again: the "
        "last one is made again, with what has come since",
    )
    round_trip: Count = Field(
        0.0, description="seconds from the last answered report to its answer; 0: not known"
    )
    topics: list[TopicReport] = Field(default=[], max_length=MAX_TOPICS, fail_fast=True)


class DesiredTopic(Answer):
    topic: str
    rate: float = Field(description="r_l")
    burst: float = Field(description="b_l")
    mode: Mode
    max_wait: str | None = Field(description="a duration such as 2s")
    slo: str | None = Field(description="such as 0.99@1ms")
    safe_rate: float = Field(description="what is left of r_l when the lease has ended: r_l / b_l")
    safe_burst: float = Field(description="what is left of b_l then: one message")
    arrivals: bool = Field(
        False, description="report when its messages came: it is fitted, or shares follow them"
    )
    publishers: bool = Field(
        False, description="report who sends most: the broker is in trouble, and some may move"
    )
    emptied: int = Field(0, description="an epoch; a larger one than before empties the bucket")
    topic_rate: float = Field(description="r of the whole contract")
    topic_burst: float = Field(description="b of the whole contract")


class Desired(Answer):
    epoch: int = Field(description="grows with every change; an older one is not to be applied")
    lease_seconds: float = Field(
        description="counted from when the gateway sent the report that this answers; then each "
        "topic falls to its safe_rate and safe_burst"
    )
    topics: list[DesiredTopic] = Field(description="all of them; the gateway has no others")
    report_seconds: float = Field(
        1.0, description="until the next report: less while shares change or a topic is fitted"
    )
    store: str = Field(description="id of the store that the epochs are of")
    newest: int = Field(description="the largest epoch given out, to any gateway")
    proof: str = Field(description="of it: to be shown when the gateway registers again")
    unplaced: Unplaced = Field(
        description="what a gateway does with a topic of `names` that it has no share of: refuse "
        "it, hold it until there is a floor for it, or let it pass"
    )
    names_version: str = Field(description="of `names`")
    names: list[str] | None = Field(
        None, description="all topics that have a contract; null: those that it has stay"
    )


class BrokerShown(Answer):
    name: str
    tcp_address: str
    http_address: str
    capacity: float
    allocated: float = Field(description="declared rates of all publishers placed there")
    state: Literal["up", "draining", "lost"] = Field(
        description="lost: its lease has ended; draining: takes no new publishers"
    )
    epoch: int
    applied_epoch: int
    topics: list[str] = Field(description="of which it may hold a sub-bucket")


class Brokers(Answer):
    brokers: list[BrokerShown]
    warnings: list[str] = Field(
        default=[], description="what somebody should mend: a store that was lost or is old"
    )


class DrainAsked(Asked):
    drain: bool


class AdaptationAsked(Asked):
    policy: AdaptationPolicy = Field("srtm", description="how shares follow the traffic")
    window: str = Field("10s", max_length=32, description="what it looks back at")
    every: str = Field("10s", max_length=32, description="how often; srtm acts at once on a shift")


class RescaleShown(Answer):
    at: float = Field(description="seconds since 1970")
    before: dict[str, tuple[float, float]] = Field(description="broker -> (r_l, b_l)")
    after: dict[str, tuple[float, float]]
    reasons: list[str]


class AdaptationShown(Answer):
    topic: str
    policy: AdaptationPolicy
    window: str
    every: str
    resting: str = Field(description="why nothing is moved now; empty where it may be")
    since: float | None = Field(description="when the shares became what they are")
    shares: dict[str, tuple[float, float]] = Field(description="broker -> (r_l, b_l)")
    rescales: list[RescaleShown] = Field(description="since this distributor leads, newest first")


class WaitShown(Answer):
    mean: float = Field(description="seconds")
    p99: float = Field(description="seconds")


class PenaltyShown(Answer):
    """What splitting the topic over brokers costs in waiting for tokens."""

    topic: str
    unknown: str = Field(default="", description="why there are no figures; empty where there are")
    seconds: float | None = Field(default=None, description="back, that the figures are of")
    messages: int | None = Field(default=None, description="that got their tokens meanwhile")
    token_wait: WaitShown | None = Field(default=None, description="as the gateways measured it")
    unsplit: WaitShown | None = Field(
        default=None, description="of the same messages in one bucket with the whole contract"
    )
    penalty: WaitShown | None = Field(
        default=None, description="the difference; at a percentile it may be below 0"
    )
    error: WaitShown | None = Field(
        default=None,
        description="by how much `unsplit` and `penalty` may be wrong, by clocks and delays",
    )


class PenaltiesShown(Answer):
    penalties: list[PenaltyShown] = Field(description="of topics that several brokers share")


class MigrationAsked(Asked):
    mode: MigrationMode = Field(
        "propose",
        description="where a broker misses the SLO or gets more than it holds, and no rescale "
        "helps: leave its publishers there, propose who should move, or move them",
    )


class MoveShown(Answer):
    publisher: str
    rate: float = Field(description="messages/s that came from it")
    source: str
    target: str
    reason: str


class MigrationShown(Answer):
    """A proposal, or what was carried out."""

    at: float = Field(description="seconds since 1970")
    moves: list[MoveShown]
    reasons: list[str]


class MigrationsShown(Answer):
    topic: str
    mode: MigrationMode
    trouble: dict[str, str] = Field(description="broker of the topic -> why it is in trouble")
    blocked: list[str] = Field(description="why nobody is proposed or moved though one is")
    proposed: MigrationShown | None = Field(description="in force; POST carries it out")
    applied: list[MigrationShown] = Field(description="newest first, as far as placements are kept")


class TopicAsked(Asked):
    rate: float = Field(description="r of the contract")
    burst: float = Field(le=MAX_BURST, description="b of the contract")
    slo: str | None = Field(None, description="such as 0.99@1ms")
    mode: Mode = Mode.DELAY
    max_wait: str | float | None = Field(None, description="a duration such as 2s, or seconds")
    keys: list[Id] | None = Field(
        None,
        max_length=MAX_KEYS,
        fail_fast=True,
        description="correlation keys that its publishers may have; without it, any",
    )


class TopicShown(Answer):
    topic: str
    rate: float
    burst: float
    slo: str | None
    mode: Mode
    max_wait: str | None
    keys: list[str] | None
    publishers: int
    placed: int
    offered: float = Field(description="declared rates of its publishers")
    epoch: int | None = Field(description="of the placement in force; null: none yet")


class Topics(Answer):
    topics: list[TopicShown]


class PublisherAsked(Asked):
    id: Id
    key: Annotated[str, Field(max_length=256)] | None = None
    rate: Rate

    @field_validator("key")
    @classmethod
    def _no_empty_key(cls, key: str | None) -> str | None:
        return key or None  # as CSV writes none


class PublishersAsked(Asked):
    publishers: list[PublisherAsked] = Field(
        min_length=1, max_length=MAX_PUBLISHERS, fail_fast=True
    )


class Registered(Answer):
    registered: int


class Place(Answer):
    id: str
    key: str | None
    rate: float | None = Field(description="null: no such publisher is registered")
    broker: str | None = Field(description="where to connect; null: nowhere yet")
    tcp_address: str | None
    epoch: int = Field(description="of the placement that put it there; grows with each move")


class Publishers(Answer):
    publishers: list[Place] = Field(description="in order of their ids")
    next: str | None = Field(description="ask again with after=this; null: these were the last")


class WatchAsked(Asked):
    ids: list[Id] = Field(min_length=1, max_length=MAX_WATCHED, fail_fast=True)


class PlacementAsked(Asked):
    policy: Policy = "srtm"
    dry_run: bool = False
    keep: bool = Field(
        False,
        description="nobody moves who has a broker that is up; the others get one (policy srtm)",
    )

    groups: Use | None = Field(
        None,
        description="whose groups count: keys of users, inferred ones, or both, keys first; null: "
        "both. With dry_run and a value, those that are only proposed count too",
    )


class Assignment(Answer):
    publisher: str
    broker: str


class ShareShown(Answer):
    name: str
    rate: float
    quota: float
    publishers: int
    r: float
    b: float


class PlacementPlan(Answer):
    policy: str
    assignments: list[Assignment]
    brokers: list[ShareShown]
    unplaced: list[str]
    reasons: list[str]
    epoch: int | None = Field(None, description="null: it was not applied")
    at: float | None = Field(None, description="seconds since 1970")


class PlacementShown(Answer):
    epoch: int
    at: float
    policy: str
    brokers: list[ShareShown]
    unplaced: int
    reasons: list[str]


class Placements(Answer):
    placements: list[PlacementShown]


class FittingAsked(Asked):
    mode: FittingMode = "sequential"
    meanwhile: Meanwhile = Field(
        "hold",
        description="what publishers do that a violated broker has shed: stay connected and wait, "
        "or send through brokers that are not judged and have room",
    )
    batch: float = Field(
        1.0, ge=1, le=MAX_BURST, allow_inf_nan=False, description="messages sent at one instant"
    )


class FittingShown(Answer):
    topic: str
    asked: FittingAsked
    state: FittingState
    round: int = Field(0, description="that goes on, or how many it took")
    seconds: float = Field(description="since its start; how long it took")
    brokers: list[str] = Field(description="of the round, or of what was applied")
    held: int = Field(0, description="publishers that wait for the next iteration")
    elsewhere: int = Field(0, description="publishers outside the trial")
    rate: float | None = Field(None, description="r that would do, of a contract too small")
    burst: int | None = Field(None, description="b that would do, of a contract too small")
    reasons: list[str]


class Health(Answer):
    leading: bool
    detail: str
    warnings: list[str] = Field(default=[], description="as with the brokers")


class Done(Answer):
    """Nothing to tell."""
