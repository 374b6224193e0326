"""What a case shows: ours against every rival, at what was asked or what the best one attained."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.autoscaler.unseen.cases import Case
from benchmarks.autoscaler.unseen.players import Result
from benchmarks.harness.bars import Bar, judge

POINTS = 0.1
"""Points of SLA within which a level is kept."""
KEPT_PERCENT, MEAN_RATIO, WORST_RATIO = 90.0, 0.95, 1.15
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Judged:
    """One case. level: the share of events in time that was to be kept."""

    case: Case
    ours: Result
    rivals: tuple[Result, ...]

    @property
    def best(self) -> float:
        return max(rival.share for rival in self.rivals)

    @property
    def level(self) -> float:
        return min(self.case.asked, self.best)

    def keeps(self, result: Result) -> bool:
        return result.share >= self.level - POINTS / 100 - ROUNDING

    @property
    def kept(self) -> bool:
        return self.keeps(self.ours)

    @property
    def cheapest(self) -> Result:
        """The rival that keeps the level with the fewest replica-minutes: known afterwards only."""
        keeping = [rival for rival in self.rivals if self.keeps(rival)]
        return min(keeping, key=lambda rival: rival.minutes)

    @property
    def ratio(self) -> float:
        """Replica-minutes, ours to the cheapest rival's."""
        return self.ours.minutes / self.cheapest.minutes

    def document(self) -> dict[str, Any]:
        return {
            "case": self.case.name,
            "level": round(100 * self.level, 4),
            "kept": self.kept,
            "ratio": round(self.ratio, 4),
            "cheapest": self.cheapest.policy,
            "ours": self.ours.document(),
            "rivals": [rival.document() for rival in self.rivals],
        }


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values)) if values else math.nan


def bars(judged: Sequence[Judged], doubt: str = "") -> list[Bar]:
    """doubt: why a run cannot tell."""
    ratios = [each.ratio for each in judged if each.kept]
    kept = [100 * sum(each.kept for each in judged) / len(judged)] if judged else []
    mean = [geometric_mean(ratios)] if ratios else []
    return [
        judge(
            f"cases that keep what was asked, or what the best rival attained, within {POINTS} "
            "points, %",
            kept,
            at_least=KEPT_PERCENT,
            doubt=doubt,
        ),
        judge(
            "replica-minutes to the cheapest rival's where both keep it, geometric mean",
            mean,
            at_most=MEAN_RATIO,
            doubt=doubt,
        ),
        judge(
            "replica-minutes to the cheapest rival's where both keep it, worst",
            [max(ratios)] if ratios else [],
            at_most=WORST_RATIO,
            doubt=doubt,
        ),
    ]
