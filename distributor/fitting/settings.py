"""How a topic is to be fitted."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Mode(StrEnum):
    SEQUENTIAL = "sequential"  # a test that stops when it is sure; everybody over k + 1
    PAPER = "paper"  # SRTM section 6.5: rounds of 60 s, violated brokers search and shed


class Meanwhile(StrEnum):
    """What publishers do that a violated broker has shed, until the next iteration places them."""

    HOLD = "hold"  # stay connected and wait
    ELSEWHERE = "elsewhere"  # send through brokers that are not judged and have room


@dataclass(frozen=True, slots=True)
class Settings:
    """settle_seconds: from a decision until all publishers have moved and brokers have caught up
    others: allowed late share by name of the other topics on the brokers. A broker is violated if
            any topic on it is; the topic that is fitted is the newest one, and sheds.
    """

    mode: Mode = Mode.SEQUENTIAL
    meanwhile: Meanwhile = Meanwhile.HOLD
    settle_seconds: float = 1.0
    others: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.settle_seconds < PAPER_SECONDS / 2:
            raise ValueError(
                f"settle_seconds is {self.settle_seconds}; it must be 0 to {PAPER_SECONDS / 2:g}, "
                "half of a round"
            )


PAPER_SECONDS = 60.0
"""A round of PAPER (SRTM section 6.5), moves and warm-up with it"""
LOOK_SECONDS = 0.5
"""Seconds between looks of a sequential test: brokers report about so often."""
LOOK_PART = 0.05
"""The part of the time measured so far that lies between looks where it is more than LOOK_SECONDS:
a later look cannot lose much."""


def next_look(settings: Settings, began_at: float, settled_at: float, now: float) -> float:
    """Seconds: when a round is worth looking at again."""
    if settings.mode is Mode.PAPER:
        return began_at + PAPER_SECONDS
    since = max(now, settled_at)
    return since + max(LOOK_SECONDS, LOOK_PART * (since - settled_at))
