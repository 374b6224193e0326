"""`python -m benchmarks tune`: the constants of the policy `srtm`, chosen on cases of their own.

The objective, smaller is better, is a mean over the cases of

    ln(replica-minutes / those of the mean rate at mu) + WORTH * ln(late events / allowed ones)

where fewer late events than allowed count as the allowed ones. So one per cent of replica time is
worth as much as one per cent of the late events that are too many times 1 / WORTH, whatever the
load and the percentile. No rival is looked at, and none of the reported cases.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from rich.table import Table

from benchmarks.autoscaler.rivals import OURS
from benchmarks.autoscaler.unseen.cases import TUNING_SEEDS, Case, generated
from benchmarks.autoscaler.unseen.run import Result, play_all
from benchmarks.harness.report import table
from srtm.autoscaler.policies.srtm.tuning import TUNING, Tuning
from srtm.text.errors import UsageError

WORTH = 0.5


@dataclass(frozen=True, slots=True)
class Score:
    """How one tuning does over all cases. minutes, late: the means of the objective's two parts."""

    name: str
    minutes: float
    late: float

    @property
    def objective(self) -> float:
        return self.minutes + WORTH * self.late


def cases(every: int = 1) -> list[Case]:
    """The tuning cases, or each `every`-th of them."""
    return list(generated(TUNING_SEEDS))[::every]


def score(name: str, tuning: Tuning, cases: Sequence[Case], processes: int) -> Score:
    played = play_all([(case, (OURS,)) for case in cases], processes, tuning)
    parts = [parts_of(case, result) for case, (result,) in zip(cases, played, strict=True)]
    minutes, late = zip(*parts, strict=True)
    return Score(name, math.fsum(minutes) / len(cases), math.fsum(late) / len(cases))


def parts_of(case: Case, result: Result) -> tuple[float, float]:
    """The two logarithms of the objective."""
    least = float(case.rates.sum()) / case.setting.mu / 60
    late = (1.0 - result.share) / case.setting.slo.allowed_late_share
    return math.log(result.minutes / least), math.log(max(1.0, late))


def choices(texts: Iterable[str]) -> dict[str, tuple[float, ...]]:
    """`price=20,28` of each text. Raises UsageError for a constant that is none, or no number."""
    known = {f.name for f in fields(Tuning) if isinstance(getattr(TUNING, f.name), int | float)}
    found = {}
    for text in texts:
        name, _, values = text.partition("=")
        if name not in known:
            raise UsageError(f"--try {name}: not one of the constants {', '.join(sorted(known))}")
        try:
            found[name] = tuple(float(value) for value in values.split(","))
        except ValueError:
            raise UsageError(f"--try {text}: write {name}=1,2.5") from None
    return found


def changed(tuning: Tuning, name: str, value: float) -> Tuning:
    whole = isinstance(getattr(tuning, name), int)
    changes: dict[str, Any] = {name: int(value) if whole else value}
    return replace(tuning, **changes)


def tune(
    tries: dict[str, tuple[float, ...]], cases: Sequence[Case], processes: int
) -> tuple[Tuning, list[Score]]:
    """One constant after the other: each takes the value that scores best with those before it."""
    best, scores = TUNING, [score("as it is", TUNING, cases, processes)]
    least = scores[0].objective
    for name, values in tries.items():
        chosen = best
        for value in values:
            tuning = changed(best, name, value)
            scores.append(score(f"{name} {value:g}", tuning, cases, processes))
            if scores[-1].objective < least - 1e-12:
                least, chosen = scores[-1].objective, tuning
        best = chosen
    return best, scores


def table_of(scores: Sequence[Score]) -> Table:
    made = table("tuning cases: smaller is better", "constants", "minutes", "late", "objective")
    for each in scores:
        made.add_row(each.name, f"{each.minutes:.4f}", f"{each.late:.4f}", f"{each.objective:.4f}")
    return made
