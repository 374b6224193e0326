"""What is known of a journey now: measured, promised and estimated. Pure."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from srtm.journey.ages import Ages
from srtm.journey.causes import CAUSES, Leg
from srtm.journey.convolution import late_if_independent
from srtm.journey.frontier import Allowance, frontier_of, together
from srtm.limits.bins import Bins, nearest_rank, seconds_of
from srtm.limits.rolling import RollingBudget
from srtm.limits.slo import SLO

CONFIDENCE = 0.99
"""of what is promised of a leg, by its messages of the last minute"""


@dataclass(frozen=True, slots=True)
class LegSeen:
    """A leg over the last minute.

    part: of the target and of the share that may be late, by which the promise is kept or comes
          closest; None while there is none
    """

    leg: Leg
    count: int
    p50_seconds: float
    p99_seconds: float
    part: Allowance | None


@dataclass(frozen=True, slots=True)
class Summary:
    """Shares of messages that take longer than the target, and quantiles in seconds.

    late_share:     measured: of all whose age is known, over the last minute; NaN without any
    promised_share: no more than this are late, whatever depends on what, by the legs of the last
                    minute; 1 where nothing can be promised
    estimated_share: if no leg depended on another; NaN where a leg has no messages
    budget_left:    of the share that may be late over the SLO's window: 1: none was late; below 0:
                    the SLO is broken
    causes:         mean seconds of each
    """

    count: int
    p50_seconds: float
    p99_seconds: float
    late_share: float
    promised_share: float
    estimated_share: float
    budget_left: float
    legs: tuple[LegSeen, ...]
    causes: dict[str, float]

    def document(self) -> dict[str, Any]:
        return asdict(self)


def summarised(
    ages: Ages, legs: tuple[Leg, ...], budget: RollingBudget, minute: RollingBudget, now: int
) -> Summary:
    """legs: those that the journey has; budget, minute: late messages over the SLO's window, and
    over the last minute; now: monotonic nanoseconds"""
    slo = budget.slo
    measured = ages.age.recent_bins(now)
    bins = {leg: ages.legs[leg].recent_bins(now) for leg in legs}
    parts = promise(bins, slo, {Leg.BROKER: ages.weight(now)})
    return Summary(
        sum(measured.values()),
        nearest_rank(measured, 0.5),
        nearest_rank(measured, 0.99),
        minute.late / minute.served if minute.served else math.nan,
        min(1.0, sum(part.late_share for part in parts.values())) if parts else 1.0,
        late_if_independent(list(bins.values()), slo.target_seconds),
        budget.left,
        tuple(_leg(leg, bins[leg], parts.get(leg)) for leg in legs),
        {
            str(cause): _mean(ages.causes[cause].recent_bins(now))
            for leg in legs
            for cause in CAUSES[leg]
        },
    )


def promise(legs: dict[Leg, Bins], slo: SLO, weights: dict[Leg, int]) -> dict[Leg, Allowance]:
    """The split of the target by which the least is late; empty where nothing can be promised.
    weights: messages for which one of a leg's stands at most, where not all are measured"""
    frontiers = [frontier_of(bins, CONFIDENCE, weights.get(leg, 1)) for leg, bins in legs.items()]
    parts = together(frontiers).within(slo.target_seconds)
    return dict(zip(legs, parts, strict=True)) if parts else {}


def _mean(bins: Bins) -> float:
    whole = sum(bins.values())
    return sum(seconds_of(key) * n for key, n in bins.items()) / whole if whole else 0.0


def _leg(leg: Leg, bins: Bins, part: Allowance | None) -> LegSeen:
    return LegSeen(leg, sum(bins.values()), nearest_rank(bins, 0.5), nearest_rank(bins, 0.99), part)
