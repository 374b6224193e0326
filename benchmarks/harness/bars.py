"""What a figure has to reach, and whether it does."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True)
class Bar:
    """A judged figure: value is the median of its repetitions, low and high their range.

    Exactly one of at_least and at_most is given. met: None where this run could not tell, and
    `why` says what stood in the way; where it is missed, `why` may say what it comes of.
    """

    name: str
    value: float | None
    low: float | None
    high: float | None
    at_least: float | None
    at_most: float | None
    met: bool | None
    why: str = ""

    @property
    def verdict(self) -> str:
        return {True: "met", False: "MISSED", None: "undecided"}[self.met]

    @property
    def limit(self) -> str:
        return f">= {self.at_least:g}" if self.at_least is not None else f"<= {self.at_most:g}"

    def document(self) -> dict[str, Any]:
        bound = {"at_most": self.at_most} if self.at_least is None else {"at_least": self.at_least}
        return {
            "name": self.name,
            "value": _finite(self.value),
            "low": _finite(self.low),
            "high": _finite(self.high),
            **bound,
            "met": self.met,
            "why": self.why,
        }


def _finite(value: float | None) -> float | None:
    """JSON has no infinity: null, as for what was not measured."""
    return value if value is not None and isfinite(value) else None


def judge(
    name: str,
    values: Sequence[float],
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    quick: bool = False,
    doubt: str = "",
    repeats: int = 1,
) -> Bar:
    """Judge the median of `values`, one for each repetition.

    doubt:   why this run cannot tell, whatever the figure
    quick:   few short repetitions: undecided when the bar lies in their range
    repeats: undecided with fewer repetitions than this (a noisy figure has no range with one)
    """
    if (at_least is None) == (at_most is None):
        raise ValueError(f"bar {name!r} needs either at_least or at_most")
    if not values:
        return Bar(name, None, None, None, at_least, at_most, None, doubt or "not measured")

    def meets(value: float) -> bool:
        return value >= at_least if at_least is not None else value <= (at_most or 0.0)

    value, low, high = median(values), min(values), max(values)
    met: bool | None = meets(value)
    if not doubt and len(values) < repeats:
        doubt = f"{len(values)} of {repeats} repetitions"
    if not doubt and quick and meets(low) != meets(high):
        doubt = "the repetitions lie on both sides"
    if doubt:
        met = None
    return Bar(name, value, low, high, at_least, at_most, met, doubt)


def judge_worst(
    name: str,
    values: Sequence[float],
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    doubt: str = "",
) -> Bar:
    """Judge the worst of `values`, where they are different things and no repetitions of one."""
    worst = [min(values) if at_most is None else max(values)] if values else []
    return judge(name, worst, at_least=at_least, at_most=at_most, doubt=doubt)
