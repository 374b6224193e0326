"""The rules by which Kubernetes' HorizontalPodAutoscaler turns a metric into replicas.

Sources: the Kubernetes documentation of horizontal pod autoscaling ("Algorithm details",
"Configurable scaling behavior") and of the autoscaling/v2 API (HPAScalingRules), and for what they
leave open the controller of Kubernetes 1.30 (pkg/controller/podautoscaler: replica_calculator.go,
horizontal.go). Times are seconds on the caller's clock.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

TOLERANCE: Final = 0.1
"""--horizontal-pod-autoscaler-tolerance: no scaling while the ratio is within 0.9 .. 1.1."""
DOWN_WINDOW_SECONDS: Final = 300.0
"""scaleDown.stabilizationWindowSeconds; that of scaleUp is 0."""
PERIOD_SECONDS: Final = 15.0
"""periodSeconds of the default policies, up and down."""
UP_PODS: Final = 4
UP_PERCENT: Final = 100
"""scaleUp: 4 pods or 100 % in a period, whichever is more. scaleDown: 100 %, no limit at all."""


def desired_replicas(usage: float, target_average: float, replicas: int) -> int:
    """The replicas for an external metric with an average value: ceil(usage / target), unless usage
    over (target * replicas) is within the tolerance of 1: then as many as there are. Both ends
    count as within."""
    if replicas and abs(1 - usage / (target_average * replicas)) <= TOLERANCE + 1e-12:
        return replicas
    return math.ceil(usage / target_average - 1e-12)


@dataclass(slots=True)
class Behavior:
    """The default scaleUp and scaleDown behaviour, with what it has to remember.

    down_window_seconds: for how long the highest recommendation holds replicas up
    """

    down_window_seconds: float = DOWN_WINDOW_SECONDS
    _recommended: list[tuple[float, int]] = field(default_factory=list)
    _changes: list[tuple[float, int]] = field(default_factory=list)

    def replicas(self, at: float, current: int, desired: int) -> int:
        """What to scale to, given what the metric asks for. A first call begins the window with
        the current number, as the controller does."""
        if not self._recommended:
            self._recommended.append((at, current))
        stable = self._stabilized(at, current, desired)
        self._recommended.append((at, desired))
        limited = min(stable, max(current, self._up_limit(at, current)))
        if limited != current:
            self._changes.append((at, limited - current))
        return limited

    def clear(self) -> None:
        """Forget; a restarted controller does as well."""
        self._recommended.clear()
        self._changes.clear()

    def _stabilized(self, at: float, current: int, desired: int) -> int:
        """Down only as far as every recommendation of the window went; up at once."""
        self._recommended = _after(self._recommended, at - self.down_window_seconds)
        if desired >= current:
            return desired
        return min(current, max([desired, *(count for _, count in self._recommended)]))

    def _up_limit(self, at: float, current: int) -> int:
        """The most replicas that the scaleUp policies allow, counted from where the period began.
        Scaling down has no such limit: 100 % of the pods may go in a period."""
        self._changes = _after(self._changes, at - PERIOD_SECONDS)
        began = current - sum(change for _, change in self._changes)
        return max(began + UP_PODS, math.ceil(began * (1 + UP_PERCENT / 100)))


def _after(entries: Sequence[tuple[float, int]], cutoff: float) -> list[tuple[float, int]]:
    return [entry for entry in entries if entry[0] > cutoff]
