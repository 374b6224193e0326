"""Arrivals that a contract allows: at random, and with the burst at a moment of one's choice."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from srtm.autoscaler.simulator.arrivals import Arrivals
from srtm.limits.ceiling import Ceiling

Times = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Until `until`, in seconds, the partitions in `parts` (None: all) get nothing, their part of
    the contract's rate, or at once all that their buckets have and then that rate."""

    until: float
    kind: str
    parts: tuple[int, ...] | None = None


def arrivals_by(
    stretches: Sequence[Stretch], ceiling: Ceiling, shares: Sequence[float], seconds: int
) -> Arrivals:
    """What comes: each partition has a bucket of its share of (r, b), full at first."""
    return Arrivals(
        tuple(
            _times(stretches, number, share * ceiling.rate, share * ceiling.burst, seconds)
            for number, share in enumerate(shares)
        ),
        seconds,
    )


def _times(
    stretches: Sequence[Stretch], number: int, rate: float, burst: float, seconds: int
) -> Times:
    if burst < 1:
        return np.zeros(0)  # no whole event ever
    level, start = burst, 0.0
    found: list[Times] = []
    for each in stretches:
        end = min(each.until, float(seconds))
        if each.kind == "idle" or (each.parts is not None and number not in each.parts):
            level = min(burst, level + rate * (end - start))
        else:
            at_once = math.floor(level + 1e-9) if each.kind == "burst" else 0
            found.append(np.full(at_once, start))
            level -= at_once
            first = start + max(0.0, 1.0 - level) / rate
            times = np.arange(first, end, 1.0 / rate) if first < end else np.zeros(0)
            found.append(times[times < end])
            level = min(burst, max(0.0, level + rate * (end - start) - len(found[-1])))
        start = end
    return np.concatenate(found) if found else np.zeros(0)


def random_stretches(
    random: np.random.Generator, partitions: int, seconds: float, calm: float
) -> list[Stretch]:
    """After `calm` seconds without arrivals, stretches of random kinds, for all or some."""
    found, at = [Stretch(calm, "idle")], calm
    while at < seconds:
        at += float(random.exponential(seconds / 12))
        kind = str(random.choice(["idle", "rate", "burst"], p=[0.4, 0.25, 0.35]))
        count = int(random.integers(1, partitions + 1))
        some = random.choice(partitions, size=count, replace=False)
        parts = None if random.random() < 0.6 else tuple(int(each) for each in some)
        found.append(Stretch(at, kind, parts))
    return found


def struck_at(stretches: Sequence[Stretch], at: float, seconds: float) -> list[Stretch]:
    """Stretches that are the same until `at`, and then all that the buckets have, and the rate."""
    before: list[Stretch] = []
    for each in stretches:
        before.append(Stretch(min(each.until, at), each.kind, each.parts))
        if each.until >= at:
            break
    return [*before, Stretch(seconds, "burst")]
