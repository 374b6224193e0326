"""What every policy is told once; constants that belong to one paper stand in its own file."""

import math
from dataclasses import dataclass

from srtm.autoscaler.decision import Handover
from srtm.limits.ceiling import Ceiling
from srtm.limits.slo import SLO


@dataclass(frozen=True, slots=True)
class Settings:
    """Defaults are those of CLOSER section 5, where one is printed.

    slo:              its target is w_sla (CLOSER Table 1); the papers' policies use no percentile
    mu:               events/s of one new consumer, for what is planned before the first observation
    decision_seconds: between two observations
    f_up, f_down:     shares of mu that a consumer is packed to before scaling up and down
    cooldown_seconds: after a scaling; None: as the policy's paper has it
    handover:         the group's own protocol, on which Li-Ku's window and Kafka's assignment hang
    contract:         what bounds the arrivals; None: nothing does
    shares:           of each partition, in the order of their ids, of whatever comes under the
                      contract in any interval; None: as measured
    pooled:           any consumer that is free serves, so nothing is handed over

    Raises ValueError on a value out of range.
    """

    slo: SLO
    mu: float
    decision_seconds: float = 1.0
    f_up: float = 0.9
    f_down: float = 0.4
    cooldown_seconds: float | None = None
    handover: Handover = Handover.EAGER
    contract: Ceiling | None = None
    shares: tuple[float, ...] | None = None
    pooled: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.mu < math.inf:
            raise ValueError(f"mu is {self.mu}; a consumer must serve more than 0 events/s")
        if not 0 < self.decision_seconds < math.inf:
            raise ValueError(f"decision interval {self.decision_seconds} s must be more than 0")
        if not 0 < self.f_down < self.f_up <= 1:
            raise ValueError(
                f"f_down {self.f_down} and f_up {self.f_up}: give 0 < f_down < f_up <= 1, such as "
                "0.4 and 0.9 (CLOSER section 5)"
            )
        if self.cooldown_seconds is not None and not 0 <= self.cooldown_seconds < math.inf:
            raise ValueError(f"cooldown {self.cooldown_seconds} s must be 0 or more")

    @property
    def w_sla(self) -> float:
        """Seconds from arrival to the end of processing that an event may take."""
        return self.slo.target_seconds

    def cooldown(self, paper_seconds: float) -> float:
        """Seconds: what was set, or what the paper has."""
        return paper_seconds if self.cooldown_seconds is None else self.cooldown_seconds
