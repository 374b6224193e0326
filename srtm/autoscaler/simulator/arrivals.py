"""When each event arrives in which partition: the input of a simulation."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]

_MAX_EVENTS = 100_000_000
"""An event takes 16 bytes in a run; beyond this a slip of units is likelier than a wish."""


class ArrivalModel(StrEnum):
    """How the events of a second lie within it.

    SMOOTH   evenly
    POISSON  at random, independent of each other
    BURST    all at the start of the second (the papers' producers send "batches")
    """

    SMOOTH = "smooth"
    POISSON = "poisson"
    BURST = "burst"


@dataclass(frozen=True, slots=True)
class Arrivals:
    """times[p]: the ascending times (seconds) of partition p's events, all in [0, seconds)."""

    times: tuple[Times, ...]
    seconds: int

    @property
    def events(self) -> int:
        return sum(len(times) for times in self.times)

    def per_second(self) -> NDArray[np.int64]:
        """Events of each partition in each second, shape (partitions, seconds)."""
        return np.array(
            [np.bincount(times.astype(np.int64), minlength=self.seconds) for times in self.times]
        )


def even_shares(partitions: int) -> tuple[float, ...]:
    """Raises ValueError for less than one partition."""
    if partitions < 1:
        raise ValueError(f"{partitions} partitions: a topic has one or more")
    return (1.0 / partitions,) * partitions


def check_shares(shares: Sequence[float]) -> None:
    """Raises ValueError unless they are a split of one."""
    if not shares:
        raise ValueError("no partitions: the shares are empty")
    if any(not 0 <= share <= 1 for share in shares):
        raise ValueError(f"shares {list(shares)}: each must be between 0 and 1")
    total = math.fsum(shares)
    if abs(total - 1) > 0.005:  # the papers print two or three digits
        raise ValueError(f"shares {list(shares)} sum to {total:.4g}; they must sum to 1")


def arrivals_of(
    rates: Sequence[float], shares: Sequence[float], model: ArrivalModel, seed: int
) -> Arrivals:
    """The events of a topic's `rates` (events/s, one for each second), spread by `shares`.

    Raises ValueError as `arrivals_by_partition`, and for shares that are no split of one.
    """
    check_shares(shares)
    for second, rate in enumerate(rates):
        if not 0 <= rate < math.inf:
            raise ValueError(_bad_rate(f"second {second}", rate))
    total = math.fsum(shares)
    return arrivals_by_partition(
        [[rate * share / total for rate in rates] for share in shares], model, seed
    )


def _bad_rate(where: str, rate: float) -> str:
    return f"{where} of the workload: {rate:g} events/s; a rate is 0 or more, and finite"


def arrivals_by_partition(
    rates: Sequence[Sequence[float]], model: ArrivalModel, seed: int
) -> Arrivals:
    """The events of each partition's own rates (events/s, one for each second). Fractions of an
    event are carried to the next second; `seed` counts for POISSON only.

    Raises ValueError for rates that are negative or not finite, partitions of unequal length, more
    events than memory holds, and an empty workload.
    """
    if len({len(row) for row in rates}) > 1:
        raise ValueError("partitions have rates for unequal numbers of seconds")
    matrix = np.asarray(rates, dtype=np.float64)
    if matrix.ndim != 2 or not matrix.size:
        raise ValueError("the workload is empty; it needs one rate for each second")
    bad = np.argwhere(~(np.isfinite(matrix) & (matrix >= 0)))
    if len(bad):
        partition, second = bad[0]
        where = f"partition {partition}, second {second}"
        raise ValueError(_bad_rate(where, float(matrix[partition, second])))
    if matrix.sum() > _MAX_EVENTS:
        raise ValueError(
            f"the workload has {matrix.sum():.3g} events and a simulation holds {_MAX_EVENTS:,}: "
            "cut or scale it"
        )
    seconds = matrix.shape[1]
    if model is ArrivalModel.POISSON:
        random = np.random.default_rng(seed)
        return Arrivals(tuple(_poisson(row, random) for row in matrix), seconds)
    # Partitions are a part of an event apart, or small rates would all fire together.
    offsets = (np.arange(len(matrix)) + 0.5) / len(matrix)
    pairs = zip(matrix, offsets, strict=True)
    return Arrivals(tuple(_carried(row, offset, model) for row, offset in pairs), seconds)


def _poisson(rate: Times, random: np.random.Generator) -> Times:
    counts = random.poisson(rate)
    starts = np.repeat(np.arange(len(rate), dtype=np.float64), counts)
    return np.sort(_within(starts, random.random(len(starts))))


def _within(second: Times, part: Times) -> Times:
    """second + part, where rounding must not lead into the next second."""
    return np.minimum(second + part, np.nextafter(second + 1, 0))


def _carried(rate: Times, offset: float, model: ArrivalModel) -> Times:
    """Whole events by the cumulative sum: event n comes when it first reaches n."""
    cumulative = np.concatenate(([offset], offset + np.cumsum(rate)))
    whole = np.floor(cumulative).astype(np.int64)
    seconds = np.repeat(np.arange(len(rate)), whole[1:] - whole[:-1])
    starts = seconds.astype(np.float64)
    if model is ArrivalModel.BURST:
        return starts
    number = np.arange(1, len(seconds) + 1, dtype=np.float64)
    inside = (number - cumulative[seconds]) / rate[seconds]
    return _within(starts, np.clip(inside, 0.0, 1.0))
