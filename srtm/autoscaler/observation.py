"""What a policy sees at one moment, from a simulator or from a live group: values, no I/O."""

import math
from dataclasses import dataclass, field
from enum import StrEnum


class ConsumerState(StrEnum):
    STARTING = "starting"
    """Launched and billed; it has not joined the group yet."""
    RUNNING = "running"


@dataclass(frozen=True, slots=True)
class PartitionSeen:
    """One partition of the topic.

    rate:  λ, events/s produced since the previous observation
    lag:   events produced and not committed yet
    slots: events produced in equal parts of the time since then, oldest first (empty: unknown)
    """

    id: int
    rate: float
    lag: float
    slots: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class ConsumerSeen:
    """One consumer of the group, its rate μ in events/s, and the partitions that it has, or will
    have when the rebalance under way ends."""

    id: str
    mu: float
    partitions: tuple[int, ...] = ()
    state: ConsumerState = ConsumerState.RUNNING


@dataclass(frozen=True, slots=True)
class Announcement:
    """Load that somebody knows will come: `rate` events/s of the whole topic, from `begin` to `end`
    seconds after the observation."""

    begin: float
    end: float
    rate: float


@dataclass(frozen=True, slots=True)
class Observation:
    """The group at `at` (seconds on the caller's clock).

    rebalance_seconds: t_reb as last measured, or as configured before the first rebalance
    startup_seconds:   from a launch to joining the group, likewise
    stopped_seconds:   how long the partition that stood still longest in the last hand-over did
    new_mu:            μ of a consumer launched now, events/s
    staying_seconds:   mean time from arrival to the end of processing of what was served since
                       the previous observation (None: nothing was served)
    served, late:      events served since then, and those of them that missed the SLO's target
    announced:         what is known of the load of the next hour
    """

    at: float
    partitions: tuple[PartitionSeen, ...]
    consumers: tuple[ConsumerSeen, ...]
    new_mu: float
    rebalancing: bool = False
    rebalance_seconds: float = 0.0
    startup_seconds: float = 0.0
    stopped_seconds: float | None = None
    staying_seconds: float | None = None
    served: int = 0
    late: int = 0
    announced: tuple[Announcement, ...] = ()
    owners: dict[int, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.partitions:
            raise ValueError("the topic has no partitions; nothing can be assigned")
        for partition in self.partitions:
            _check(f"partition {partition.id}: rate", partition.rate, "events/s")
            _check(f"partition {partition.id}: lag", partition.lag, "events")
        if not 0 < self.new_mu < math.inf:
            raise ValueError(f"mu of a new consumer is {self.new_mu}; it must be more than 0/s")
        for consumer in self.consumers:
            if not 0 < consumer.mu < math.inf:
                raise ValueError(f"consumer {consumer.id}: mu {consumer.mu} must be more than 0/s")
        owners = {p: c.id for c in self.consumers for p in c.partitions}
        if len(owners) != sum(len(c.partitions) for c in self.consumers):
            raise ValueError("a partition is assigned to more than one consumer")
        object.__setattr__(self, "owners", owners)

    @property
    def rate(self) -> float:
        """λ of the whole topic, events/s."""
        return math.fsum(p.rate for p in self.partitions)

    def announced_rates(self, intervals: int, interval_seconds: float) -> list[float]:
        """The highest rate that is announced for a time within each of the next intervals,
        events/s; 0 where nothing is."""
        rates = [0.0] * intervals
        for each in self.announced:
            first = max(0, math.floor(each.begin / interval_seconds))
            last = min(float(intervals), each.end / interval_seconds)
            for place in range(first, math.ceil(last)):
                rates[place] = max(rates[place], each.rate)
        return rates

    @property
    def lag(self) -> float:
        """Events waiting in the whole topic."""
        return math.fsum(p.lag for p in self.partitions)

    @property
    def starting(self) -> bool:
        """Is a consumer launched that has not joined?"""
        return any(c.state is ConsumerState.STARTING for c in self.consumers)

    @property
    def changing(self) -> bool:
        """Is a decision being carried out?"""
        return self.rebalancing or self.starting

    @property
    def orphans(self) -> list[int]:
        """Partitions that nobody has: new ones, or those of a consumer that died."""
        return [p.id for p in self.partitions if p.id not in self.owners]


def _check(what: str, value: float, unit: str) -> None:
    if not 0 <= value < math.inf:
        raise ValueError(f"{what} is {value}; it must be 0 {unit} or more, and finite")
