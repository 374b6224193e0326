"""The settings of `srtm correlate envelope`, `statistics` and `what-if`: one table for each."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from srtm.options.model import Objective


class TraceOptions(BaseModel):
    """What each of them is told: which trace, and what of it."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    trace: Path = Field(description="folder of srtm gateway --trace-dir")
    topic: str | None = Field(None, description="only this topic")
    skip_damaged: bool = Field(False, description="leave out files that cannot be read, and say so")


class EnvelopeOptions(TraceOptions):
    """See `srtm correlate envelope --help`."""

    by: Literal["topic", "broker", "publisher", "group"] = Field(
        "topic", description="whose curves are drawn up"
    )
    groups: Path | None = Field(
        None, description="with --by group: the folder that srtm correlate run left"
    )
    headroom: float = Field(
        1.1, gt=1, allow_inf_nan=False, description="rate of the bucket, over the traced one"
    )
    percentile: float = Field(
        0.99, gt=0, le=1, description="share of messages that wait for no token"
    )
    most: int = Field(
        50, ge=1, description="how many keys are listed, those with the biggest bursts first"
    )

    @model_validator(mode="after")
    def _together(self) -> "EnvelopeOptions":
        if (self.by == "group") != (self.groups is not None):
            raise ValueError(
                "--by group and --groups DIR go together; srtm correlate run makes DIR"
            )
        return self


class JudgedOptions(TraceOptions):
    """The options of a command that judges by an SLO, where one is given."""

    slo: Objective | None = Field(None, description="say how many are late by it, such as 0.99@5ms")

    @property
    def target_seconds(self) -> float | None:
        return None if self.slo is None else self.slo.target_seconds


class StatisticsOptions(JudgedOptions):
    """See `srtm correlate statistics --help`."""

    most: int = Field(
        5, ge=1, description="how many publishers are listed, those who send most first"
    )


class WhatIfOptions(JudgedOptions):
    """See `srtm correlate what-if --help`."""

    rate: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="rate r of the contract, messages/s"
    )
    burst: float | None = Field(
        None, ge=1, allow_inf_nan=False, description="burst b of the contract, messages"
    )
    placement: Path | None = Field(
        None, description="CSV with publisher,broker: they are moved there, the others stay"
    )
    split: Literal["proportional", "even"] = Field(
        "proportional", description="how the contract is divided over brokers"
    )

    @model_validator(mode="after")
    def _together(self) -> "WhatIfOptions":
        if (self.rate is None) != (self.burst is None):
            raise ValueError("--rate and --burst go together: they are one contract")
        if self.rate is not None and self.topic is None:
            raise ValueError("--rate and --burst are those of one topic: name it by --topic")
        return self
