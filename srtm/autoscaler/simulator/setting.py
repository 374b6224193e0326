"""What a simulated group is like."""

import math
from dataclasses import dataclass, field

from srtm.autoscaler.decision import Handover
from srtm.limits.slo import SLO


@dataclass(frozen=True, slots=True)
class Setting:
    """One simulated consumer group and its surroundings. Times in seconds.

    mu:                events/s that a consumer serves, one after the other; the mean of mus
    mus:               where consumers differ: of each in the order of launches, again and again.
                       Policies are told the mean until it runs, and then its own
    rebalance_seconds: t_reb, from the moment that all members have rejoined to the new assignment
    startup_seconds:   from a launch, which is billed, to joining the group
    lag_phase:         decisions are taken this long after each full second; under BURST arrivals
                       it decides how much of the second's events a policy sees as lag
    heartbeat_seconds: how often a member asks whether a rebalance is due (Kafka's default 3 s)
    max_poll:          most events of one poll; they are committed together, and a member stops
                       at the end of one (Kafka's max.poll.records, default 500)
    told_together:     an eager member goes on until the last one has been told, as CLOSER section
                       5.2 saw it (no pause when scaling up); Kafka's own members stop one by one
    session_seconds:   after which a dead member is noticed (Kafka 2.7's session.timeout.ms)
    """

    slo: SLO
    mu: float = 200.0
    mus: tuple[float, ...] = field(default=(), kw_only=True)
    rebalance_seconds: float = 0.5
    handover: Handover = Handover.EAGER
    startup_seconds: float = 5.0
    decision_seconds: float = 1.0
    lag_phase: float = 0.1
    heartbeat_seconds: float = 3.0
    initial: int = 1
    max_poll: int = 500
    told_together: bool = False
    session_seconds: float = 10.0
    seed: int = 1

    def __post_init__(self) -> None:
        if self.mus:
            object.__setattr__(self, "mu", math.fsum(self.mus) / len(self.mus))
        positive = {
            "mu": min(self.mus, default=self.mu),
            "decision interval": self.decision_seconds,
            "heartbeat": self.heartbeat_seconds,
            "session timeout": self.session_seconds,
        }
        for name, value in positive.items():
            if not 0 < value < math.inf:
                raise ValueError(f"{name} is {value}; it must be more than 0")
        durations = {
            "rebalance": self.rebalance_seconds,
            "start-up": self.startup_seconds,
            "lag phase": self.lag_phase,
        }
        for name, value in durations.items():
            if not 0 <= value < math.inf:
                raise ValueError(f"{name} is {value} s; it must be 0 or more")
        if self.initial < 1 or self.max_poll < 1:
            raise ValueError("a group starts with 1 consumer or more, and polls 1 event or more")

    @property
    def fastest_mu(self) -> float:
        """The mu of the fastest consumer that there may be, events/s."""
        return max(self.mus, default=self.mu)
