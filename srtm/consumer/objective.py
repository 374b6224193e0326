"""An SLO and the time over which it holds: `0.99@500ms over 1h`, and what is left of it."""

from collections import deque
from dataclasses import dataclass, field

from srtm.duration import format_duration, parse_duration
from srtm.slo import SLO

_OVER_SECONDS = 3600.0
_CELLS = 120
"""of the rolling window: a cell leaves it whole, so the window is exact to 1 %"""


@dataclass(frozen=True, slots=True)
class Objective:
    """`slo` holds over the last `over_seconds`, whenever one looks."""

    slo: SLO
    over_seconds: float = _OVER_SECONDS

    @classmethod
    def parse(cls, text: str) -> "Objective":
        """Read `0.99@500ms` or `0.99@500ms over 1h`. Raises ValueError."""
        slo, over, seconds = text.partition(" over ")
        found = cls(SLO.parse(slo.strip()), parse_duration(seconds) if over else _OVER_SECONDS)
        if found.over_seconds < found.slo.target_seconds:
            raise ValueError(f"{text!r}: the SLO cannot hold over less than its own target")
        return found

    def __str__(self) -> str:
        return f"{self.slo} over {format_duration(self.over_seconds)}"


@dataclass(slots=True)
class RollingBudget:
    """Events and late events of the last `over_seconds`; time is passed in."""

    objective: Objective
    _cells: deque[tuple[float, int, int]] = field(default_factory=deque)
    served: int = 0
    late: int = 0

    def add(self, at: float, served: int, late: int) -> None:
        cell = self.objective.over_seconds / _CELLS
        if self._cells and at - self._cells[-1][0] < cell:
            begun, before, late_before = self._cells.pop()
            self._cells.append((begun, before + served, late_before + late))
        else:
            self._cells.append((at, served, late))
        self.served += served
        self.late += late
        while self._cells and self._cells[0][0] < at - self.objective.over_seconds:
            _, gone, gone_late = self._cells.popleft()
            self.served -= gone
            self.late -= gone_late

    @property
    def left(self) -> float:
        """Share of the late events allowed that is left: 1 with none late; negative: overspent."""
        allowed = self.objective.slo.allowed_late_share * self.served
        return 1.0 - self.late / allowed if allowed else 1.0
