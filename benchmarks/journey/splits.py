"""The splits of a journey's SLO that are compared. Pure."""

import math
from collections.abc import Sequence
from enum import StrEnum

from srtm.journey.causes import Leg
from srtm.limits.slo import SLO

_CONSUMERS_LATE = 0.8
"""of what may be late, where only the target is split equally: the most that `plan` gives them"""


class Arm(StrEnum):
    """PLAN:         what `srtm journey plan` says
    EQUAL:        each leg has the same part of the target and of what may be late
    EQUAL_TARGET: the target is split equally; most of what may be late is the consumers', since
                  the other legs are hardly ever late. It is as sound, and cheaper
    """

    PLAN = "plan"
    EQUAL = "equal"
    EQUAL_TARGET = "equal-target"


def equal(slo: SLO, legs: Sequence[Leg]) -> dict[Leg, SLO]:
    return {leg: _part(slo, leg, 1 / len(legs), 1 / len(legs)) for leg in legs}


def equal_target(slo: SLO, legs: Sequence[Leg]) -> dict[Leg, SLO]:
    others = (1 - _CONSUMERS_LATE) / (len(legs) - 1)
    return {
        leg: _part(slo, leg, 1 / len(legs), _CONSUMERS_LATE if leg is Leg.CONSUMER else others)
        for leg in legs
    }


def _part(slo: SLO, leg: Leg, target: float, late: float) -> SLO:
    """In round numbers that allow no more than these parts of the target and of what may be late;
    only consumers have a window."""
    percentile = math.ceil((1 - slo.allowed_late_share * late) * 1e5 - 1e-6) / 1e5
    seconds = math.floor(slo.target_seconds * target * 1e4 + 1e-6) / 1e4
    return SLO(percentile, seconds, slo.window_seconds if leg is Leg.CONSUMER else None)
