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

from srtm.duration import Duration
from srtm.errors import UsageError, one_line
from srtm.nsq.names import is_valid_topic_name
from srtm.slo import SLO

MIN_RATE = 1e-6
"""messages/s; less, one in eleven days, is a slip of the keyboard"""
MAX_RATE = 1e9
"""messages/s; more is a slip of the keyboard: a nanosecond would bring more than one token"""
MAX_BURST = 1e9


class Mode(StrEnum):
    """What happens to a message for which there is no token."""

    DELAY = "delay"  # held until there is one: the default, no NSQ client notices
    REJECT = "reject"  # answered with an error, and the connection closed (HTTP: 429)


def _slo(value: object) -> object:
    return SLO.parse(value) if isinstance(value, str) else value


Objective = Annotated[
    SLO, BeforeValidator(_slo), PlainSerializer(str, return_type=str, when_used="json")
]


class Limit(BaseModel):
    """The (r, b) of one bucket and its rules: a whole contract, or one broker's share of it."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", arbitrary_types_allowed=True, populate_by_name=True
    )

    rate: float = Field(gt=0, le=MAX_RATE, allow_inf_nan=False, description="messages/s")
    burst: float = Field(
        ge=1, le=MAX_BURST, allow_inf_nan=False, description="messages; under 1 admits nothing"
    )
    mode: Mode = Field(default=Mode.DELAY, description="of a message over it: delay or reject")
    max_wait: Duration | None = Field(
        default=None, alias="max-wait", gt=0, description="how long a message may be delayed"
    )
    slo: Objective | None = Field(default=None, description="PERCENTILE@DURATION, such as 0.99@5ms")

    @field_validator("rate")
    @classmethod
    def _is_some_rate(cls, rate: float) -> float:
        if rate < MIN_RATE:
            raise ValueError(f"{rate:g} messages/s is less than one in eleven days")
        return rate

    def share(self, parts: int) -> "Limit":
        """One of `parts` (at least 1) even sub-buckets. Raises UsageError where b/parts < 1."""
        if parts < 1:
            raise ValueError(f"{parts} parts: a bucket is split into one or more")
        if parts > self.burst:
            raise UsageError(
                f"burst {self.burst:g} cannot be split over {parts} brokers: each needs at least "
                f"one whole message; raise burst to {parts} or use {int(self.burst)} brokers"
            )
        return self.model_copy(update={"rate": self.rate / parts, "burst": self.burst / parts})

    def document(self) -> dict[str, Any]:
        """As JSON and TOML files write it."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


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
        """Read a flag: NAME,rate=R,burst=B[,mode=..][,max-wait=D][,slo=0.99@1ms]. Raises
        UsageError that names `where`, or the flag."""
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
        """From a file's or a request's mapping. Raises UsageError that names `where`."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise one_line(error, where) from None


_KEYS = ("rate", "burst", "mode", "max-wait", "slo")
