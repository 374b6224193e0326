"""What a paper says of the order of its runs, held against ours: rows of data, and one judge.

Figures of another workload, machine or setting cannot be repeated; what a table shows is who has
more and who has less. Each ordering is a row, also where ours comes out the other way round.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from rich.table import Table

from benchmarks.autoscaler.scaling import Outcome
from benchmarks.harness.bars import Bar, judge
from benchmarks.harness.report import number, tabulate

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
        count = [float(len(self.reversed))] if self.ours else []
        unsure = doubt or ("" if count else "not run")
        bar = judge(self.claim.name, count, at_most=0.0, doubt=unsure)
        return replace(bar, why=self.claim.why) if bar.met is False else bar


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
    made = tabulate(
        "the papers' orderings, each from the most to the least",
        found,
        ("where", lambda each: each.claim.where),
        ("figure", lambda each: TITLES[each.claim.figure]),
        ("order", lambda each: " > ".join(each.claim.order)),
        ("paper", lambda each: " > ".join(number(v, 4) for v in each.claim.printed) or "-"),
        ("ours", lambda each: ", ".join(number(v, 4) for v in each.ours) or "-"),
        ("verdict", lambda each: each.verdict),
        ("why", lambda each: each.claim.why),
    )
    return made, [each.bar(doubt) for each in found]
