"""What is left of an SLO that holds over a window: `0.99@500ms over 1h`."""

from collections import deque
from dataclasses import dataclass, field

from srtm.limits.slo import SLO

_CELLS = 120
"""of the rolling window: a cell leaves it whole, so the window is exact to 1 %"""


@dataclass(slots=True)
class RollingBudget:
    """Events and late events of the SLO's window; time is passed in."""

    slo: SLO
    _cells: deque[tuple[float, int, int]] = field(default_factory=deque)
    served: int = 0
    late: int = 0

    @property
    def _window(self) -> float:
        assert self.slo.window_seconds is not None
        return self.slo.window_seconds

    @property
    def cell_seconds(self) -> float:
        return self._window / _CELLS

    def ages(self, at: float) -> list[tuple[float, int, int]]:
        """(seconds ago, events, late ones) of each cell, oldest first."""
        return [(round(at - begun, 3), served, late) for begun, served, late in self._cells]

    def add(self, at: float, served: int, late: int) -> None:
        if self._cells and at - self._cells[-1][0] < self.cell_seconds:
            begun, before, late_before = self._cells.pop()
            self._cells.append((begun, before + served, late_before + late))
        else:
            self._cells.append((at, served, late))
        self.served += served
        self.late += late
        while self._cells and self._cells[0][0] < at - self._window:
            _, gone, gone_late = self._cells.popleft()
            self.served -= gone
            self.late -= gone_late

    @property
    def left(self) -> float:
        """Share of the late events allowed that is left: 1 with none late; negative: overspent."""
        allowed = self.slo.allowed_late_share * self.served
        return 1.0 - self.late / allowed if allowed else 1.0
