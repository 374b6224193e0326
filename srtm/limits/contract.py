"""A topic's contract: token bucket (r, b), what happens over it, and the latency SLO."""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    field_validator,
)

from srtm.limits.slo import SLO
from srtm.nsq.names import is_valid_topic_name
from srtm.text.duration import format_duration
from srtm.text.errors import UsageError, one_line
from srtm.text.fields import Duration

MIN_RATE = 1e-6
"""messages/s; less, one in eleven days, is a slip of the keyboard"""
MAX_RATE = 1e9
"""messages/s; more is a slip of the keyboard: a nanosecond would bring more than one token"""
MAX_BURST = 1e9
MAX_GRACE_SECONDS = 86_400.0


class Batches(StrEnum):
    """What bounds a batch that is bigger than one broker's share of b."""

    WHOLE = "whole"  # the contract: it waits until its broker has all of b, so Σ stays in max(b, n)
    EACH = "each"  # each broker for itself: brokers together may reach the sum of max(b_l, n)


class Mode(StrEnum):
    """What happens to a message for which there is no token."""

    DELAY = "delay"  # held until there is one: the default, no NSQ client notices
    REJECT = "reject"  # answered with an error, and the connection closed (HTTP: 429)


class Fair(StrEnum):
    """Between whom tokens are shared evenly while messages wait; without it, in order of arrival
    over all messages."""

    PUBLISHER = "publisher"
    KEY = "key"  # publishers registered with the same correlation key are one


NEEDS_KEYS = (
    'fair = "key" is for a topic of a Load Distributor, which knows the keys of publishers: '
    'register the topic with one, or write fair = "publisher"'
)
NEEDS_LEASES = (
    "lease-grace is for a topic of a Load Distributor, whose shares are leases: register the topic "
    "with one, or leave it out"
)


def _slo(value: object) -> object:
    return SLO.parse(value) if isinstance(value, str) else value


Objective = Annotated[
    SLO, BeforeValidator(_slo), PlainSerializer(str, return_type=str, when_used="json")
]


class Limit(BaseModel):
    """The (r, b) of one bucket and its rules: a whole contract, or one broker's share of it."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        arbitrary_types_allowed=True,
        populate_by_name=True,
        defer_build=True,
    )

    rate: float = Field(gt=0, le=MAX_RATE, allow_inf_nan=False, description="messages/s")
    burst: float = Field(
        ge=1, le=MAX_BURST, allow_inf_nan=False, description="messages; under 1 admits nothing"
    )
    mode: Mode = Field(
        default=Mode.DELAY, description=f"what a message over the limit meets: {', '.join(Mode)}"
    )
    max_wait: Duration | None = Field(
        default=None, alias="max-wait", gt=0, description="how long a message may be delayed"
    )
    slo: Objective | None = Field(default=None, description="PERCENTILE@DURATION, such as 0.99@5ms")
    batch: int = Field(
        default=1, ge=1, le=int(MAX_BURST), description="largest batch; no broker's b is below it"
    )
    batches: Batches = Field(
        default=Batches.WHOLE, description="what bounds a batch over a broker's b: whole or each"
    )
    fair: Fair | None = Field(
        default=None,
        description="who gets equal parts of the tokens while messages wait: each publisher, or "
        "each correlation key",
    )
    lease_grace: Duration | None = Field(
        default=None,
        alias="lease-grace",
        gt=0,
        description="how long a broker keeps its share after its lease has ended, while no "
        "distributor answers; 24h at most",
    )
    contract_burst: float | None = Field(
        default=None,
        alias="contract-burst",
        ge=1,
        le=MAX_BURST,
        allow_inf_nan=False,
        description="b of the whole contract, where this is one broker's share of it",
    )

    @field_validator("rate")
    @classmethod
    def _is_some_rate(cls, rate: float) -> float:
        if rate < MIN_RATE:
            raise ValueError(f"{rate:g} messages/s is less than one message in eleven days")
        return rate

    @field_validator("lease_grace")
    @classmethod
    def _is_a_day_at_most(cls, seconds: float | None) -> float | None:
        if seconds is not None and seconds > MAX_GRACE_SECONDS:
            raise ValueError(f"{format_duration(seconds)} is more than a day: 24h at most")
        return seconds

    @property
    def least_burst(self) -> int:
        """The least b of one broker, in messages: the largest batch, or all of b."""
        return min(self.batch, int(self.burst))

    @property
    def needs_keys(self) -> bool:
        """Must a Load Distributor tell which publishers have which key?"""
        return self.fair is Fair.KEY

    @property
    def needs_distributor(self) -> str:
        """Why it is for a topic of a Load Distributor alone; empty: it is for any."""
        if self.needs_keys:
            return NEEDS_KEYS
        return NEEDS_LEASES if self.lease_grace else ""

    @property
    def is_whole(self) -> bool:
        """May a batch that is bigger than b go here, under a debt? Not in a share of b: other
        brokers have the rest, and the sum would exceed the contract."""
        return (
            self.batches is Batches.EACH
            or self.contract_burst is None
            or self.burst >= self.contract_burst
        )

    @field_validator("slo")
    @classmethod
    def _is_of_all_messages(cls, slo: SLO | None) -> SLO | None:
        if slo is not None and slo.window_seconds is not None:
            plain = SLO(slo.percentile, slo.target_seconds)
            raise ValueError(
                f"a topic's SLO has no window: write {plain}; only srtm autoscale takes a window "
                "(`over`)"
            )
        return slo

    def share(self, parts: int) -> "Limit":
        """One of `parts` (at least 1) even sub-buckets. Raises UsageError where b/parts is less
        than the largest batch."""
        if parts < 1:
            raise ValueError(f"{parts} parts: a bucket is split into one or more parts")
        if parts == 1:
            return self
        least = self.least_burst
        if parts * least > self.burst:
            needs = f"a batch of {least}" if least > 1 else "one whole message"
            raise UsageError(
                f"burst {self.burst:g} cannot be split over {parts} brokers: each needs at least "
                f"{needs}; raise burst to {parts * least} or use at most "
                f"{int(self.burst // least)} of the brokers"
            )
        update = {
            "rate": self.rate / parts,
            "burst": self.burst / parts,
            "contract_burst": self.burst,
        }
        return self.model_copy(update=update)

    def document(self) -> dict[str, Any]:
        """The limit as JSON and TOML files write it."""
        document = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        for key, default in (("batch", 1), ("batches", Batches.WHOLE)):
            if document[key] == default:
                del document[key]
        return document


class Contract(Limit):
    """A topic's name and its limit."""

    topic: str = Field(description="1 to 64 of [.a-zA-Z0-9_-]; #ephemeral may follow")

    @field_validator("topic")
    @classmethod
    def _topic_name(cls, name: str) -> str:
        if not is_valid_topic_name(name.encode()):
            raise ValueError(
                f"{name!r} is not a topic name: 1 to 64 of [.a-zA-Z0-9_-], #ephemeral may follow"
            )
        return name

    def limit(self) -> Limit:
        return Limit.model_validate(self.model_dump(exclude={"topic"}))

    @classmethod
    def parse(cls, spec: str, where: str = "") -> "Contract":
        """Read a flag: NAME,rate=R,burst=B[,mode=..][,max-wait=D][,slo=0.99@1ms]
        [,batch=N][,batches=..][,fair=..][,contract-burst=B]. Raises UsageError that names `where`,
        or the flag."""
        where = where or f"--topic {spec}"
        name, *pairs = spec.split(",")
        values: dict[str, object] = {"topic": name}
        for pair in pairs:
            key, equals, value = pair.partition("=")
            if not equals or key not in _KEYS:
                raise UsageError(f"{where}: {pair!r} is not one of {', '.join(_KEYS)}=VALUE")
            if key in values:
                raise UsageError(f"{where}: {key} is given twice")
            values[key] = value
        return cls.read(values, where)

    @classmethod
    def read(cls, values: object, where: str) -> "Contract":
        """The contract of a file's or a request's mapping. Raises UsageError that names `where`."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise one_line(error, where) from None


_KEYS = ("rate", "burst", "mode", "max-wait", "slo", "batch", "batches", "fair", "contract-burst")
