"""The bodies that gateways send to the HTTP API and get back. Rates are messages/s, bursts
messages."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from distributor.api_fields import MAX_TOPICS, Answer, Count, Name, Rate, Unplaced
from srtm.limits.contract import (
    MAX_BURST,
    MAX_GRACE_SECONDS,
    MAX_RATE,
    Batches,
    Fair,
    Mode,
)

MAX_ARRIVALS = 5_000
"""of one topic: a gateway keeps no more until it reports them"""
MAX_BINS = 2_000
"""of a topic's waits: those from a nanosecond to 30 years"""
MAX_BATCH = 2**31 - 1
"""messages: an MPUB's count has 32 bits"""
MAX_TOLD = 100
"""publishers of one topic in a report, the heaviest of a broker in trouble"""

Flow = Annotated[float, Field(ge=0, le=MAX_RATE, allow_inf_nan=False)]
Bin = Annotated[int, Field(ge=-(2**31), le=2_000)]
Epoch = Annotated[int, Field(ge=0, le=2**62)]
Token = Annotated[str, Field(max_length=64)]
"""an id or a proof, in hexadecimal digits"""
HostPort = Annotated[str, Field(max_length=300, pattern=r"^[A-Za-z0-9_.:\[\]%-]+:[0-9]{1,5}$")]
TopicName = Annotated[str, Field(max_length=64)]


class FromGateway(BaseModel):
    """What a gateway sends: fields of a newer version are passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


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
    batch: int = Field(1, ge=1, le=int(MAX_BURST), description="least b_l, messages")
    batches: Batches = Batches.WHOLE
    fair: Fair | None = None
    lease_grace: float | None = Field(
        None, gt=0, le=MAX_GRACE_SECONDS, description="seconds that it is kept after its lease"
    )


class BrokerAsked(FromGateway):
    """A gateway says who it is and all that it knows: the distributor may know less."""

    name: Name
    tcp_address: HostPort = Field(description="TCP address of the gateway")
    http_address: HostPort = Field(description="HTTP address of the gateway")
    capacity: float | None = Field(
        None,
        ge=0,
        le=MAX_RATE,
        allow_inf_nan=False,
        description="messages/s within the SLO; without it what is stored stays, 0 at first",
    )
    instance: Token = Field(
        "", description="id of the gateway, from its state file; no two gateways have the same"
    )
    process: Token = Field("", description="id of the process, another one after each start")
    store: Token = Field(
        "", description="id of the store that its last answers came from; empty: it had none"
    )
    applied_epoch: Epoch = Field(0, description="epoch of the desired state that the gateway has")
    newest: Epoch = Field(0, description="the largest epoch that it was shown")
    proof: Token = Field("", description="proof that the gateway was shown `newest`")
    lease_seconds: float = Field(
        0.0, ge=0, le=86_400, description="lease of the last answer, seconds"
    )
    held: list[HeldTopic] = Field(default_factory=list, max_length=MAX_TOPICS)
    names: list[TopicName] = Field(
        default_factory=list,
        max_length=MAX_TOPICS,
        description="topics that have a contract somewhere",
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

    clock: Count = Field(
        description="reading of the gateway's clock, ms, from which arrivals count back"
    )
    seconds: Count = Field(description="sum of the waits, seconds")
    bins: list[tuple[Bin, Count]] = Field(
        max_length=MAX_BINS,
        fail_fast=True,
        description="(number of a bin, messages): bin k is of waits in (g^(k-1), g^k] seconds with "
        "g = 1.01/0.99, bin -2147483648 of no wait",
    )
    held: Count | None = Field(
        None, description="messages that have no token now; null: too many to be counted"
    )
    tokens: Count | None = Field(
        None, description="tokens in the bucket now, 0 where it owes; null: not told"
    )


class TopicReport(FromGateway):
    topic: str = Field(max_length=64)
    offered: Flow = Field(0.0, description="messages/s that came since the last report")
    admitted: Flow = Field(0.0, description="messages/s that got a token since the last report")
    backlog: Count = Field(0.0, description="messages without an answer now")
    waiting: Count = Field(0.0, description="those of them that have no token")
    batch: int = Field(
        0,
        ge=0,
        le=MAX_BATCH,
        description="messages of the batch that waits first, or was refused as it is over b_l",
    )
    debt: Count = Field(0.0, description="tokens that a batch over b has left to be paid")
    served: Count = Field(0.0, description="deliveries measured since the last report")
    near: Count = Field(0.0, description="those that took longer than 0.8 of the SLO's target")
    late: Count = Field(0.0, description="those that took longer than the SLO's target")
    late_at_broker: Count = Field(
        0.0, description="those that did even without the wait for their token"
    )
    arrivals: list[tuple[Count, Count]] = Field(
        default_factory=list,
        max_length=MAX_ARRIVALS,
        fail_fast=True,
        description="(milliseconds ago, messages); where the desired state asks for them",
    )
    batches: list[tuple[Count, Count]] = Field(
        default_factory=list,
        max_length=MAX_ARRIVALS,
        fail_fast=True,
        description="those of the arrivals that wait for all of their tokens together",
    )
    waits: WaitsReport | None = Field(None, description="with the arrivals, from the second on")

    publishers: list[tuple[Annotated[str, Field(max_length=256)], Count]] = Field(
        default_factory=list,
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
        description="epoch of the desired state that the gateway has; 0: none since it started"
    )
    process: Token = Field("", description="id of the process, as it registered")
    store: Token | None = Field(
        None,
        description="id of the store that the epoch is of; null: the one that answers",
    )
    names_version: Token = Field("", description="version of the `names` that the gateway has")
    seconds: Count = Field(
        0.0, description="seconds since the last report, which the counts are of"
    )
    answered: Epoch | None = Field(
        None,
        description="reports of this gateway that were answered before; the same again: the "
        "last one is made again, with what has come since",
    )
    round_trip: Count = Field(
        0.0, description="seconds from the last answered report to its answer; 0: not known"
    )
    clock: Count | None = Field(
        None, description="reading of the gateway's clock, ms, as the report was made"
    )
    keys: dict[TopicName, Token] = Field(
        default_factory=dict,
        max_length=MAX_TOPICS,
        description="topic -> version of the keys that the gateway has of its publishers",
    )
    whole: bool = Field(
        True, description="answer with all topics, whether the gateway has them or not"
    )
    topics: list[TopicReport] = Field(
        default_factory=list,
        max_length=MAX_TOPICS,
        fail_fast=True,
        description="those of which there is anything to tell. One with `arrivals` that is not "
        "named has been idle since it was named last, when nothing came or waited and its bucket "
        "was full",
    )


class DesiredTopic(Answer):
    topic: str
    rate: float = Field(description="r_l")
    burst: float = Field(description="b_l")
    mode: Mode
    max_wait: str | None = Field(description="a duration such as 2s")
    slo: str | None = Field(description="such as 0.99@1ms")
    safe_rate: float = Field(
        description="rate that stays when the lease has ended: r_l safe_burst / b_l"
    )
    safe_burst: float = Field(
        description="burst that stays when the lease has ended: `batch`, or b_l where that is less"
    )
    batch: int = Field(1, description="least b_l: one message, or the topic's largest batch")
    batches: Batches = Field(
        Batches.WHOLE, description="what bounds a batch over b_l: the whole contract, or each b_l"
    )
    fair: Fair | None = Field(
        None, description="who gets equal parts of the tokens while messages wait"
    )
    lease_grace: float | None = Field(
        None, description="seconds that the share is kept after the lease has ended"
    )
    arrivals: bool = Field(
        False, description="report when its messages came: it is fitted, or shares follow them"
    )
    publishers: bool = Field(
        False, description="report who sends most: the broker is in trouble, and some may move"
    )
    emptied: int = Field(0, description="an epoch; a larger one than before empties the bucket")
    topic_rate: float = Field(description="r of the whole contract")
    topic_burst: float = Field(description="b of the whole contract")


class TopicKeys(Answer):
    topic: str
    version: str
    publishers: list[tuple[str, str]] = Field(
        description="(publisher, key) of the topic's publishers on this broker that have a key; all"
    )


class Desired(Answer):
    epoch: int = Field(description="grows with every change; an older one is not to be applied")
    lease_seconds: float = Field(
        description="counted from when the gateway sent the report that this answers; then each "
        "topic falls to its safe_rate and safe_burst, once its `lease_grace` has passed too"
    )
    topics: list[DesiredTopic] | None = Field(
        description="all of them; the gateway has no others. null: those that it has by this epoch"
    )
    report_seconds: float = Field(
        1.0,
        description="seconds until the next report: fewer while shares change or a topic is fitted",
    )
    suspended: list[str] = Field(
        default=[],
        description="topics whose whole contract another broker has for a moment: messages wait, "
        "whatever `unplaced` says",
    )
    store: str = Field(description="id of the store that the epochs are of")
    newest: int = Field(description="the largest epoch given out, to any gateway")
    proof: str = Field(
        description="proof of `newest`, to be shown when the gateway registers again"
    )
    unplaced: Unplaced = Field(
        description="what a gateway does with a topic of `names` that it has no share of: refuse "
        "it, hold it until there is a floor for it, or let it pass"
    )
    names_version: str = Field(description="version of `names`")
    names: list[str] | None = Field(
        None, description="all topics that have a contract; null: those that it has stay"
    )
    keys: list[TopicKeys] = Field(
        default=[],
        description="of the topics that are fair over keys, where the gateway has another version",
    )
