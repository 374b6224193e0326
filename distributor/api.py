"""The bodies of the HTTP API that people and commands use; those of gateways are in `gateway_api`,
those about groups in `groups_api`. OpenAPI is made from all of them, so a field's description is
its documentation. Rates are messages/s, bursts messages."""

from typing import Literal

from pydantic import Field, model_validator

from distributor.api_fields import (
    MAX_KEYS,
    MAX_PUBLISHERS,
    MAX_REGISTERED,
    MAX_WATCHED,
    AdaptationPolicy,
    Answer,
    Asked,
    FittingMode,
    FittingState,
    Id,
    Meanwhile,
    MigrationMode,
    Policy,
    PublisherAsked,
)
from distributor.grouping.keys import Use
from srtm.limits.contract import MAX_BURST, Batches, Fair, Mode


class ErrorAnswer(Answer):
    error: str = Field(description="what is wrong, where, and how to mend it, in one line")
    leading: bool = Field(
        True, description="false: another distributor leads, or may; ask that, or ask again"
    )


class BrokerShown(Answer):
    name: str
    tcp_address: str
    http_address: str
    capacity: float
    allocated: float = Field(description="declared rates of all publishers placed there")
    state: Literal["up", "draining", "lost", "unknown"] = Field(
        description="lost: its lease has ended; draining: takes no new publishers; unknown: a "
        "distributor that stands by answers"
    )
    epoch: int
    applied_epoch: int
    topics: list[str] = Field(description="topics of which the broker may hold a sub-bucket")


class Brokers(Answer):
    brokers: list[BrokerShown]
    warnings: list[str] = Field(
        default=[], description="what somebody should mend: a store that was lost or is old"
    )


class DrainAsked(Asked):
    drain: bool


class AdaptationAsked(Asked):
    policy: AdaptationPolicy = Field("srtm", description="how shares follow the traffic")
    window: str = Field(
        "10s", max_length=32, description="stretch of traffic that the policy looks back at"
    )
    every: str = Field(
        "10s",
        max_length=32,
        description="how often the policy is asked; srtm acts at once on a shift",
    )


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


class StrandedShown(Answer):
    """Tokens unused at some brokers while messages waited at others: means over `seconds`."""

    seconds: float = Field(description="length of the stretch that the figures are of")
    least: float = Field(description="at least so many tokens were stranded at a time")
    most: float = Field(description="at most so many were, by clocks and delays")


class PenaltyShown(Answer):
    """What splitting the topic over brokers costs in waiting for tokens."""

    topic: str
    unknown: str = Field(
        default="", description="why there are no figures of the penalty; empty where there are"
    )
    seconds: float | None = Field(
        default=None, description="length of the stretch that the figures are of, back from now"
    )
    messages: int | None = Field(
        default=None, description="messages that got their tokens in that stretch"
    )
    token_wait: WaitShown | None = Field(
        default=None, description="token wait as the gateways measured it"
    )
    unsplit: WaitShown | None = Field(
        default=None,
        description="token wait of these messages in one bucket with the whole contract",
    )
    penalty: WaitShown | None = Field(
        default=None, description="the difference; at a percentile it may be below 0"
    )
    error: WaitShown | None = Field(
        default=None,
        description="by how much `unsplit` and `penalty` may be wrong, by clocks and delays",
    )
    stranded: StrandedShown | None = Field(
        default=None, description="null: not known; it may be known where the penalty is not"
    )


class PenaltiesShown(Answer):
    penalties: list[PenaltyShown] = Field(
        description="one for each topic that several brokers share"
    )


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
    proposed: MigrationShown | None = Field(
        description="the proposal in force; POST carries it out"
    )
    applied: list[MigrationShown] = Field(description="newest first, as far as placements are kept")


class TopicAsked(Asked):
    rate: float = Field(description="r of the contract")
    burst: float = Field(le=MAX_BURST, description="b of the contract")
    slo: str | None = Field(None, description="such as 0.99@1ms")
    mode: Mode = Mode.DELAY
    max_wait: str | float | None = Field(None, description="a duration such as 2s, or seconds")
    batch: int = Field(
        1, ge=1, le=int(MAX_BURST), description="largest batch, messages: no broker's b is below it"
    )
    batches: Batches = Field(
        Batches.WHOLE,
        description="what bounds a batch over a broker's b: the whole contract, or each b",
    )
    fair: Fair | None = Field(
        None,
        description="who gets equal parts of a broker's tokens while messages wait; without it, "
        "order of arrival",
    )
    lease_grace: str | float | None = Field(
        None,
        description="how long brokers keep their shares after the lease, while no distributor "
        "answers: a duration such as 5m, or seconds",
    )
    keys: list[Id] | None = Field(
        None,
        max_length=MAX_KEYS,
        fail_fast=True,
        description="correlation keys that its publishers may have; without it, any",
    )


class TopicOfMany(TopicAsked):
    topic: str = Field(min_length=1)
    publishers: list[PublisherAsked] = Field([], max_length=MAX_PUBLISHERS, fail_fast=True)


class TopicsAsked(Asked):
    topics: list[TopicOfMany] = Field(
        min_length=1,
        max_length=MAX_REGISTERED,
        fail_fast=True,
        description=f"each once, with no more than {MAX_PUBLISHERS:,} publishers in all",
    )

    @model_validator(mode="after")
    def _bounded(self) -> "TopicsAsked":
        publishers = sum(len(each.publishers) for each in self.topics)
        if publishers > MAX_PUBLISHERS:
            raise ValueError(f"{publishers:,} publishers, and at most {MAX_PUBLISHERS:,} at once")
        return self


class TopicShown(Answer):
    topic: str
    rate: float
    burst: float
    slo: str | None
    mode: Mode
    max_wait: str | None
    batch: int
    batches: Batches
    fair: Fair | None
    lease_grace: str | None
    largest_batch: int = Field(
        description="the largest that was over a broker's b since this distributor leads; 1: none"
    )
    keys: list[str] | None
    publishers: int
    placed: int
    offered: float = Field(description="declared rates of its publishers")
    epoch: int | None = Field(description="epoch of the placement in force; null: none yet")


class Topics(Answer):
    topics: list[TopicShown]


class PublishersAsked(Asked):
    publishers: list[PublisherAsked] = Field(
        min_length=1, max_length=MAX_PUBLISHERS, fail_fast=True
    )


class Registered(Answer):
    registered: int


class TopicsRegistered(Answer):
    topics: int
    registered: int = Field(description="publishers")


class Place(Answer):
    id: str
    key: str | None
    rate: float | None = Field(description="null: no such publisher is registered")
    broker: str | None = Field(description="where to connect; null: nowhere yet")
    tcp_address: str | None
    epoch: int = Field(
        description="epoch of the placement that put the publisher there; grows with each move"
    )


class Publishers(Answer):
    publishers: list[Place] = Field(description="publishers in order of their ids")
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
    round: int = Field(0, description="the round that goes on, or how many rounds it took")
    seconds: float = Field(
        description="seconds since the fitting began; once it is over, how long it took"
    )
    brokers: list[str] = Field(
        description="brokers of the round, or of the placement that was applied"
    )
    held: int = Field(0, description="publishers that wait for the next iteration")
    elsewhere: int = Field(0, description="publishers outside the trial")
    rate: float | None = Field(None, description="r that would do, of a contract too small")
    burst: int | None = Field(None, description="b that would do, of a contract too small")
    reasons: list[str]


class Health(Answer):
    leading: bool
    detail: str
    warnings: list[str] = Field(
        default=[], description="what somebody should mend, as /v1/brokers says it"
    )


class Done(Answer):
    """The answer where there is nothing to tell."""
