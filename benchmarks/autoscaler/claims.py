"""What a paper says of the order of its runs, held against ours: rows of data, and one judge.

Figures of another workload, machine or setting cannot be repeated; what a table shows is who has
more and who has less. Each ordering is a row, also where ours comes out the other way round.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rich.table import Table

from benchmarks.autoscaler.scaling import Outcome
from benchmarks.harness.bars import Bar
from benchmarks.harness.report import number, table

TITLES = {
    "sla": "in time, %",
    "late": "late, %",
    "minutes": "replica-minutes",
    "ups": "scale-ups",
    "downs": "scale-downs",
    "mean_ms": "time in the system, ms",
    "throughput": "throughput, events/s",
}


@dataclass(frozen=True, slots=True)
class Claim:
    """where: table, figure or section; figure: of TITLES; order: runs, from the most of it to the
    least; printed: the paper's figures in that order, in any unit; why: what ours hangs on, or why
    it comes out otherwise"""

    where: str
    figure: str
    order: tuple[str, ...]
    printed: tuple[float, ...] = ()
    why: str = ""

    @property
    def name(self) -> str:
        return f"{self.where}: {TITLES[self.figure]}: {' > '.join(self.order)}"

    def judged(self, outcomes: Mapping[str, Outcome], by_mean: bool) -> "Judged":
        found = [outcomes[run] for run in self.order if run in outcomes]
        ours = [each.mean(self.figure) if by_mean else each.median(self.figure) for each in found]
        return Judged(self, tuple(ours) if len(ours) == len(self.order) else ())


@dataclass(frozen=True, slots=True)
class Judged:
    """ours: figures in the paper's order; empty where a run is missing"""

    claim: Claim
    ours: tuple[float, ...]

    @property
    def reversed(self) -> list[str]:
        """Neighbours of which the second has as much or more."""
        names = pairwise(self.claim.order)
        return [
            f"{less} over {more}"
            for (more, less), (high, low) in zip(names, pairwise(self.ours), strict=True)
            if low >= high
        ]

    @property
    def verdict(self) -> str:
        if not self.ours:
            return "not run"
        return f"reversed: {', '.join(self.reversed)}" if self.reversed else "reproduced"

    def bar(self, doubt: str) -> Bar:
        if not self.ours:
            return Bar(self.claim.name, None, None, None, None, 0.0, None, doubt or "not run")
        count = float(len(self.reversed))
        met = None if doubt else not count
        why = doubt or (self.claim.why if count else "")
        return Bar(self.claim.name, count, count, count, None, 0.0, met, why)


def judge_claims(
    claims: Iterable[Claim],
    outcomes: Sequence[Outcome],
    doubt: str = "",
    by_mean: bool = False,
) -> tuple[Table, list[Bar]]:
    """A row and a bar for each: how many neighbours of its order are the other way round.

    doubt: why this run cannot tell; by_mean: over the seeds, as the paper's are; else medians
    """
    named = {outcome.case.name: outcome for outcome in outcomes}
    found = [claim.judged(named, by_mean) for claim in claims]
    made = table(
        "the papers' orderings, each from the most to the least",
        *("where", "figure", "order", "paper", "ours", "verdict", "why"),
    )
    for each in found:
        claim = each.claim
        made.add_row(
            claim.where,
            TITLES[claim.figure],
            " > ".join(claim.order),
            " > ".join(number(value, 4) for value in claim.printed) or "-",
            ", ".join(number(value, 4) for value in each.ours) or "-",
            each.verdict,
            claim.why,
        )
    return made, [each.bar(doubt) for each in found]
