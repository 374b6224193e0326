"""Do sums hold where several leaders share one store, and what do shards cost in concentration?

In virtual time. Leaders place 10,000 topics on 1,000 brokers by the product's placement, each by
what it has read, and other leaders write between its reading and its writing. Some rates change,
some brokers are drained or lost, and leaders are killed or frozen and followed by others, each
shard's twice. Shares of each topic are leased by the product's leases; answers are lost or late.
All leaders have more to do than they can, so stale decisions are as frequent as they can be.

Two cuts: `hash`, a shard is the topics of a hash and all shards share the brokers' capacity by
rows; `groups`, a shard is a group of brokers, and a topic is in one group. After each write the
brokers' sums are looked at, after each answer the topic's shares. Control arms leave out the check
of capacity, or of who leads.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial

from rich.table import Table

from benchmarks.control.shards.rows import BOTH, Checks
from benchmarks.control.shards.world import Case, Outcome, simulate
from benchmarks.harness.bars import Bar, judge_worst
from benchmarks.harness.report import Report, span, tabulate
from benchmarks.harness.session import Session, side_by_side


@dataclass(frozen=True, slots=True)
class Size:
    brokers: int
    topics: int
    shards: tuple[int, ...]
    loads: tuple[float, ...]
    seeds: tuple[int, ...]


FULL = Size(1_000, 10_000, (1, 2, 4, 8, 16), (0.5, 0.85), (1, 2))
QUICK = Size(100, 1_000, (1, 2, 4), (0.85,), (1, 2))
_CONTROLS = (Checks(capacity=False), Checks(leader=False))
_MOST_BROKERS = 1.1
"""over those of one leader"""


@dataclass(frozen=True, slots=True)
class Ran:
    """One case, and the same topics under one leader."""

    case: Case
    outcome: Outcome
    alone: Outcome

    @property
    def brokers(self) -> float:
        return self.outcome.brokers_of_topics / self.alone.brokers_of_topics

    @property
    def placed(self) -> float:
        return self.outcome.placed / self.alone.placed

    @property
    def wrong(self) -> int:
        """Violations; a run that does not end is one."""
        return sum(self.outcome.violations.values()) + (not self.outcome.is_over)


def run(session: Session) -> Report:
    size = QUICK if session.quick else FULL
    cases = list(_cases(size))
    session.plan(len(cases))
    outcomes: dict[Case, Outcome] = {}
    jobs = [partial(simulate, case) for case in cases]
    for case, outcome in zip(cases, side_by_side(jobs, session.processes), strict=True):
        session.step(f"{case.shards} shards, load {case.load:.0%}, seed {case.seed}")
        outcomes[case] = outcome
    found = [Ran(case, outcome, outcomes[_alone(case)]) for case, outcome in outcomes.items()]
    arms = [[each for each in found if each.case.checks == checks] for checks in _CONTROLS]
    checked = [each for each in found if each.case.checks == BOTH]
    return Report(
        settings=asdict(size),
        figures={"runs": [asdict(each.case) | asdict(each.outcome) for each in found]},
        bars=_bars(checked, *arms),
        tables=[_table(checked), _controls(found)],
        notes=[
            "Brokers and placed are over one leader's, of the same topics; brokers are the sum "
            "over topics of the brokers of each, as a topic's concentration is what is to be kept.",
        ],
    )


def _cases(size: Size) -> Iterator[Case]:
    for load in size.loads:
        for seed in size.seeds:
            for shards in size.shards:
                case = Case(shards, size.brokers, size.topics, load, seed)
                yield case
                if shards > 1:
                    yield replace(case, grouped=True)
    for checks in _CONTROLS:
        for seed in size.seeds:
            most = Case(size.shards[-1], size.brokers, size.topics, size.loads[-1], seed)
            yield replace(most, checks=checks)


def _alone(case: Case) -> Case:
    return replace(case, shards=1, grouped=False, checks=BOTH)


def _table(found: Iterable[Ran]) -> Table:
    rows: dict[tuple[float, bool, int], list[Ran]] = {}
    for each in found:
        rows.setdefault((each.case.load, each.case.grouped, each.case.shards), []).append(each)
    return tabulate(
        "shards, range over seeds",
        [rows[key] for key in sorted(rows)],
        ("cut", lambda runs: _cut(runs[0].case)),
        ("load", lambda runs: f"{runs[0].case.load:.0%}"),
        ("shards", lambda runs: runs[0].case.shards),
        ("placements", lambda runs: span([each.outcome.placements for each in runs])),
        ("stale, %", lambda runs: span([100 * _stale(each.outcome) for each in runs])),
        ("most retries", lambda runs: max(each.outcome.most_retries for each in runs)),
        ("fenced", lambda runs: span([each.outcome.fenced for each in runs])),
        ("passed on", lambda runs: span([each.outcome.passed_on for each in runs])),
        ("brokers", lambda runs: span([each.brokers for each in runs])),
        ("placed", lambda runs: f"{min(each.placed for each in runs):.4f}"),
        (
            "shards of a gateway",
            lambda runs: span([each.outcome.shards_of_gateway for each in runs]),
        ),
        ("violations", lambda runs: sum(each.wrong for each in runs)),
    )


def _cut(case: Case) -> str:
    if case.shards == 1:
        return "one leader"
    return "groups" if case.grouped else "hash"


def _stale(outcome: Outcome) -> float:
    return outcome.stale / max(1, outcome.placements)


def _controls(found: Iterable[Ran]) -> Table:
    """The violations of each kind, with and without the checks."""
    arms = {"both": BOTH, "no capacity": _CONTROLS[0], "no leader": _CONTROLS[1]}
    counts: dict[str, dict[str, int]] = {}
    for each in found:
        for kind, count in each.outcome.violations.items():
            row = counts.setdefault(kind, dict.fromkeys(arms, 0))
            name = next(name for name, checks in arms.items() if checks == each.case.checks)
            row[name] += count
    return tabulate(
        "violations by what transactions check, all runs",
        sorted(counts),
        ("violation", lambda kind: kind),
        ("both", lambda kind: counts[kind]["both"]),
        ("no capacity", lambda kind: counts[kind]["no capacity"]),
        ("no leader", lambda kind: counts[kind]["no leader"]),
    )


def _bars(checked: list[Ran], unchecked: list[Ran], unfenced: list[Ran]) -> list[Bar]:
    """checked, unchecked, unfenced: runs with both checks, without capacity's, without leader's"""
    bars = [
        judge_worst("violations", [each.wrong for each in checked], at_most=0),
        judge_worst(
            "violations without the check of capacity",
            [sum(each.wrong for each in unchecked)],
            at_least=1,
        ),
        judge_worst(
            "violations without the check of who leads",
            [sum(each.wrong for each in unfenced)],
            at_least=1,
        ),
    ]
    for cut in ("hash", "groups"):
        runs = [each for each in checked if _cut(each.case) == cut]
        placed, brokers = [each.placed for each in runs], [each.brokers for each in runs]
        bars += [
            judge_worst(f"placed over one leader's, {cut}", placed, at_least=1.0),
            judge_worst(f"brokers over one leader's, {cut}", brokers, at_most=_MOST_BROKERS),
        ]
    return bars
