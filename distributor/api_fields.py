"""What the bodies of the HTTP API are made of: bounds, choices, fields, and one body that commands
read from files. Commands import this alone, as the classes of a whole API take longer to make than
most commands to run."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from srtm.limits.contract import MAX_RATE, MIN_RATE

MAX_PUBLISHERS = 20_000
"""of one request: reading them holds up all others for 0.1 to 0.2 s"""
MAX_REGISTERED = 1_000
"""topics of one request, for the same reason"""
MAX_LISTED = 10_000
"""of one answer: making it holds up all others for 0.1 s"""
MAX_KEYS = 100_000
MAX_TOPICS = 10_000
MAX_WATCHED = 100_000
MAX_COUNT = float(2**53)
"""Whole numbers up to it are exact. It keeps every sum finite."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:\[\]-]{1,128}$")]
_NO_CONTROLS = r"^[^\x00-\x1f\x7f]*$"
"""A control character splits lines of logs, and PostgreSQL takes no NUL."""
Id = Annotated[str, Field(min_length=1, max_length=256, pattern=_NO_CONTROLS)]
Rate = Annotated[float, Field(ge=MIN_RATE, le=MAX_RATE, allow_inf_nan=False)]
Count = Annotated[float, Field(ge=0, le=MAX_COUNT, allow_inf_nan=False)]
Policy = Literal["srtm", "max-min", "conc", "lb", "single"]
AdaptationPolicy = Literal["srtm", "paper", "rate-only", "off"]
MigrationMode = Literal["off", "propose", "auto"]
Unplaced = Literal["reject", "floor", "pass"]
FittingMode = Literal["sequential", "paper"]
Meanwhile = Literal["hold", "elsewhere"]
FittingState = Literal["running", "stopped", "met", "best", "contract too small", "out of brokers"]


class Asked(BaseModel):
    """A request's body: an unknown field is refused, as it is a slip of the pen."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class Answer(BaseModel):
    model_config = ConfigDict(frozen=True, defer_build=True)


class PublisherAsked(Asked):
    id: Id
    key: Annotated[str, Field(max_length=256, pattern=_NO_CONTROLS)] | None = None
    rate: Rate

    @field_validator("key")
    @classmethod
    def _no_empty_key(cls, key: str | None) -> str | None:
        return key or None  # as CSV writes none
