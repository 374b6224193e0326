"""What the page shows beyond a result."""

from dataclasses import dataclass, field
from typing import Any

from tb_adaptor.share import Part

Curve = list[tuple[float, float]]
"""(r, b), in order of r"""


@dataclass
class Wait:
    """A topic's token waits, ms, with publishers on brokers by the rule `name`."""

    name: str
    mean_ms: float
    p99_ms: float


@dataclass
class Figures:
    """What is shown of one topic. statistics: as `srtm correlate statistics` gives them; contract:
    rate and burst; brokers: how many it is split over in `waits`; curves: by group, None being the
    topic; ticks and bursts: times in ns by publisher, in the stretch from `begins` to `ends` and
    around an instant of its group; lone: publishers of no group."""

    statistics: dict[str, Any] = field(default_factory=dict)
    contract: Part | None = None
    brokers: int = 0
    waits: list[Wait] = field(default_factory=list)
    curves: dict[str | None, Curve] = field(default_factory=dict)
    begins: int = 0
    ends: int = 0
    ticks: dict[str, list[int]] = field(default_factory=dict)
    bursts: dict[str, list[int]] = field(default_factory=dict)
    lone: list[str] = field(default_factory=list)
