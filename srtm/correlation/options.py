"""What the commands of `srtm correlate` are told: one table for each, and that of `run` and
`stream`."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
from pydantic import BaseModel, ConfigDict, Field, model_validator

from srtm.options.model import Objective, duration_option
from srtm.text.errors import UsageError

if TYPE_CHECKING:
    from srtm.correlation.run import Request

_SHORTEST_SECONDS = 10.0


@dataclass(frozen=True)
class GroupOptions:
    """Where groups go, and which are meant, as `run` and `stream` are told. window: in seconds."""

    out: Path
    topic: str | None
    window: float
    floor: float
    rate: float

    def request(self, trace: Path, **more: Any) -> "Request":
        """more: of Request"""
        from srtm.correlation.groups.settings import Settings
        from srtm.correlation.run import Request

        settings = Settings(floor=self.floor, rate=self.rate)
        return Request(trace, self.out, self.topic, self.window, settings=settings, **more)


def group_options(command: Callable[..., None]) -> Callable[..., None]:
    """--out, --topic, --window, --floor and --rate: the command takes them as `asked`. It raises
    UsageError for a window in which no group can be found."""

    @wraps(command)
    def wrapped(
        out: Path, topic: str | None, window: float, floor: float, rate: float, **others: Any
    ) -> None:
        if 0 < window < _SHORTEST_SECONDS:
            raise UsageError(
                f"--window: at least {_SHORTEST_SECONDS:g} s: a group needs some bursts"
            )
        command(asked=GroupOptions(out, topic, window, floor, rate), **others)

    for option in reversed(
        (
            click.option(
                "--out",
                type=click.Path(path_type=Path),
                required=True,
                metavar="DIR",
                help="Folder for groups.json and Parquet; an older result there is replaced once "
                "the new one is complete.",
            ),
            click.option("--topic", help="Only this topic."),
            duration_option(
                "--window",
                "0",
                "Also find groups in each window of this length, for windows.parquet.",
            ),
            click.option(
                "--floor",
                type=click.FloatRange(0, 1, min_open=True),
                default=0.3,
                show_default=True,
                help="Least share of a publisher's arrivals that coincide, beyond chance.",
            ),
            click.option(
                "--rate",
                type=click.FloatRange(0, 0.5, min_open=True),
                default=0.01,
                show_default=True,
                help="False discovery rate among pairs.",
            ),
        )
    ):
        wrapped = option(wrapped)
    return wrapped


class TraceOptions(BaseModel):
    """What each of them is told: which trace, and what of it."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    trace: Path = Field(description="folder of srtm gateway --trace-dir")
    topic: str | None = Field(None, description="only this topic")
    skip_damaged: bool = Field(False, description="leave out files that cannot be read, and say so")


class EnvelopeOptions(TraceOptions):
    """See `srtm correlate envelope --help`."""

    by: Literal["topic", "broker", "publisher", "group"] = Field(
        "topic", description="one curve for each of these"
    )
    groups: Path | None = Field(
        None, description="with --by group: the folder that srtm correlate run left"
    )
    headroom: float = Field(
        1.1, gt=1, allow_inf_nan=False, description="rate of the bucket, divided by the traced rate"
    )
    percentile: float = Field(
        0.99, gt=0, le=1, description="share of messages that wait for no token"
    )
    most: int = Field(
        50, ge=1, description="how many curves are listed, those with the biggest bursts first"
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

    slo: Objective | None = Field(
        None, description="count the messages later than its target, such as 0.99@5ms"
    )

    @property
    def target_seconds(self) -> float | None:
        return None if self.slo is None else self.slo.target_seconds


class StatisticsOptions(JudgedOptions):
    """See `srtm correlate statistics --help`."""

    most: int = Field(
        5, ge=1, description="how many publishers are listed, those that send most first"
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
        None, description="CSV with publisher,broker: moves these publishers; the others stay"
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
