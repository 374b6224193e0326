"""Items, bins and packings: partitions are packed into consumers."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Item:
    """One partition: rate λ in events/s, lag in events, and the consumer that has it now."""

    id: int
    rate: float
    lag: float = 0.0
    consumer: str | None = None

    def __post_init__(self) -> None:
        for what, value in (("rate", self.rate), ("lag", self.lag)):
            if not 0 <= value < math.inf:
                raise ValueError(
                    f"partition {self.id}: {what} is {value}; it must be 0 or more, and finite"
                )


@dataclass(frozen=True, slots=True)
class Bin:
    """One consumer's room: rate in events/s (μ·f) and lag in events (μ·f·w_sla, or no limit).
    consumer None: a consumer to be launched."""

    consumer: str | None
    rate: float
    lag: float = math.inf

    def __post_init__(self) -> None:
        if not 0 < self.rate < math.inf or not self.lag > 0:
            raise ValueError(
                f"consumer {self.consumer or 'new'}: room of {self.rate} events/s and {self.lag} "
                "events; both must be more than 0"
            )


@dataclass(frozen=True, slots=True)
class Bins:
    """The consumers that are there, in the order in which they are opened, and what one more
    would hold."""

    new: Bin
    existing: tuple[Bin, ...] = ()


@dataclass(frozen=True, slots=True)
class Filled:
    """A bin that is used, and the ids of its partitions."""

    bin: Bin
    items: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Packing:
    """Every item in exactly one bin.

    oversized:   partitions that exceed the bin that they are alone in; nothing else can be done
                 with them (CLOSER section 4: a consumer of its own), so they are named
    lower_bound: no packing of these items into these bins uses fewer
    moved_rate:  events/s of the partitions whose consumer changes (those without one move free)
    exact:       the number of bins is proved to be the smallest
    """

    filled: tuple[Filled, ...]
    lower_bound: int
    moved_rate: float
    oversized: tuple[int, ...] = ()
    exact: bool = False

    @property
    def count(self) -> int:
        return len(self.filled)

    @property
    def gap(self) -> int:
        """Bins above the lower bound: at most so far from the best."""
        return self.count - self.lower_bound


Algorithm = Callable[[Sequence[Item], Bins], Packing]
"""The one signature of all packings. Raises ValueError for items of the same id."""
