"""Does a deployment over several hosts keep its promises, whatever is done to one of them?

Four hosts that are network namespaces: two brokers, the distributor, publishers. Each fault of
`srtm testbed fault` by itself, under load: half of the publishers keep to their contract and are
judged by the SLO, half always have more to send than theirs allows. In the end each message is
looked for at nsqd itself, and the admission logs are audited.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from benchmarks.faults.world import PRESSED, STEADY, TOPICS, World
from benchmarks.harness.bars import Bar, judge
from benchmarks.harness.report import Report, tabulate
from benchmarks.harness.session import Session
from srtm.host.clock import NS
from srtm.testbed.faults import Asked, begin
from srtm.text.errors import SrtmError

LATE_SECONDS, SHARE = 0.25, 0.95
"""the SLO: 0.95@250ms from the intended time to the OK. It is wide, as generator, brokers and the
faults themselves share a machine; what a fault breaks is late by seconds, or lost."""
WINDOW_SECONDS = 1.0
STEP_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Row:
    """One steady message. latency: from its intended time to its OK, None without one."""

    at: float
    latency: float | None

    @property
    def is_late(self) -> bool:
        return self.latency is None or self.latency > LATE_SECONDS


@dataclass(frozen=True, slots=True)
class Around:
    """before: did the SLO hold when the fault began? late: share of the messages while it lasted;
    back_after: seconds from its end until the SLO held again, None: not within what was seen."""

    before: bool
    late: float
    back_after: float | None
    messages: int


def rows_of(messages: Sequence[tuple[str, int, bool, int]]) -> list[Row]:
    """The rows of steady messages, in seconds of the monotonic clock."""
    return [Row(at / NS, (ok - at) / NS if ok else None) for _, at, _, ok in messages]


def around(rows: Sequence[Row], began: float, ended: float, until: float) -> Around:
    """What the messages show around a fault from `began` to `ended`; what was intended after
    `until` is not looked at."""
    during = [row for row in rows if began <= row.at < ended]
    late = sum(row.is_late for row in during) / len(during) if during else 0.0
    return Around(
        before=holds(rows, began - WINDOW_SECONDS, began),
        late=late,
        back_after=back_after(rows, ended, until),
        messages=len(during),
    )


def back_after(rows: Sequence[Row], ended: float, until: float) -> float | None:
    """Seconds from the end of the fault until the SLO holds in a window, and over all that was seen
    from there on: a lease may end seconds after its fault."""
    steps = int((until - WINDOW_SECONDS - ended) / STEP_SECONDS + 1e-9)
    for step in range(steps + 1):
        since = ended + step * STEP_SECONDS
        if holds(rows, since, since + WINDOW_SECONDS) and holds(rows, since, until):
            return step * STEP_SECONDS
    return None


def holds(rows: Sequence[Row], since: float, until: float) -> bool:
    """Over the messages intended in this time; without any it does not."""
    found = [row for row in rows if since <= row.at < until]
    return bool(found) and sum(row.is_late for row in found) <= (1 - SHARE) * len(found)


_LASTS_SECONDS, _AFTER_SECONDS = 60.0, 15.0
_QUICK_LASTS_SECONDS, _QUICK_AFTER_SECONDS = 1.5, 3.5
BACK_SECONDS = 10.0
_SLO = f"{SHARE:g}@{LATE_SECONDS * 1e3:g}ms"
_BEFORE_SECONDS = 1.5


@dataclass(frozen=True, slots=True)
class Case:
    """quick: it is in the short form too."""

    name: str
    fault: str
    asked: Asked
    quick: bool = False


CASES = (
    Case("kill -9 gateway", "kill", Asked("h1", "b1-gateway"), quick=True),
    Case("kill -9 nsqd", "kill", Asked("h1", "b1-nsqd")),
    Case("kill -9 distributor", "kill", Asked("h3", "distributor")),
    Case("SIGSTOP gateway", "freeze", Asked("h1", "b1-gateway")),
    Case("SIGSTOP nsqd", "freeze", Asked("h1", "b1-nsqd")),
    Case("SIGSTOP distributor", "freeze", Asked("h3", "distributor")),
    Case("partition", "partition", Asked("h1"), quick=True),
    Case("partition from the distributor", "partition", Asked("h1", other="h3")),
    Case("one-way partition", "one-way", Asked("h1", other="h3")),
    Case("slow link", "slow-link", Asked("h1")),
    Case("half-open connections", "half-open", Asked("h1"), quick=True),
    Case("slow reader", "slow-reader", Asked("h1", other="h4", topic="steady", channel="slow")),
    Case("disk full", "disk-full", Asked("h1")),
    Case("clock step", "clock-step", Asked("h1")),
    Case("two distributors", "second-distributor", Asked("h1", other="h4")),
    Case("lost and reordered reports", "reports", Asked("h1"), quick=True),
    Case("torn store", "torn-store", Asked("h3")),  # last: topics have to be placed again
)


@dataclass(frozen=True, slots=True)
class Run:
    """began and ended: seconds of the monotonic clock; why: it could not be carried out."""

    case: Case
    what: str = ""
    began: float = 0.0
    ended: float = 0.0
    until: float = 0.0
    why: str = ""


def run(session: Session) -> Report:
    cases = [each for each in CASES if each.quick or not session.quick]
    session.plan(len(cases) + 2)
    session.step("bringing up four hosts")
    runs: list[Run] = []
    with World(session.folder) as world:
        time.sleep(_BEFORE_SECONDS)
        for case in cases:
            session.step(case.name)
            after = _QUICK_AFTER_SECONDS if session.quick else _AFTER_SECONDS
            runs.append(_carry_out(world, case, _lasts(session), after))
        session.step("looking for every message")
        messages = world.end_publishing()
        stored = {topic: world.stored(topic) for topic in TOPICS}
        audits = {topic: world.audit(topic) for topic in TOPICS}
    rows = rows_of(messages["steady"])
    seen = {
        each.case.name: around(rows, each.began, each.ended, each.until)
        for each in runs
        if not each.why
    }
    counts: dict[str, int] = {}
    lost: list[str] = []
    unexpected: list[str] = []
    late_lost: dict[str, int] = {each.case.name: 0 for each in runs}
    for topic, sent in messages.items():
        acknowledged = {body: at for body, at, _, ok in sent if ok}
        gone = acknowledged.keys() - stored[topic]
        lost += sorted(gone)
        unexpected += sorted(stored[topic] - {body for body, _, was_sent, _ in sent if was_sent})
        counts[topic] = len(acknowledged)
        for body in gone:
            late_lost[_during(runs, acknowledged[body] / 1e9)] += 1
    over = {topic: found.excess if found.is_exceeded else 0.0 for topic, found in audits.items()}
    figures = {
        "acknowledged": counts,
        "stored": {topic: len(found) for topic, found in stored.items()},
        "lost": lost[:100],
        "unexpected": unexpected[:100],
        "excess": over,
        "faults": [_document(each, seen.get(each.case.name)) for each in runs],
    }
    return Report(
        settings={"seconds": _lasts(session), "steady": STEADY, "pressed": PRESSED, "slo": _SLO},
        figures=figures,
        bars=_bars(runs, seen, lost, unexpected, over, session.quick),
        tables=[_table(runs, seen, late_lost)],
        notes=[
            f"{sum(counts.values()):,} messages acknowledged; SLO {_SLO} "
            "from the intended time to the OK, over one second",
            *(f"{each.case.name}: {each.why}" for each in runs if each.why),
        ],
    )  # fmt: skip


def _lasts(session: Session) -> float:
    """`--minutes` are shared out among the cases."""
    if session.quick:
        return _QUICK_LASTS_SECONDS
    if session.minutes is None:
        return _LASTS_SECONDS
    return max(_QUICK_LASTS_SECONDS, 60 * session.minutes / len(CASES) - _AFTER_SECONDS)


def _carry_out(world: World, case: Case, lasts: float, after: float) -> Run:
    is_reader = case.fault == "slow-reader"
    try:
        if is_reader:  # to have something to read
            world.pause("steady", "b1", paused=False)
        began = time.monotonic()
        with begin(world.testbed, case.fault, case.asked) as what:
            began = time.monotonic()
            if case.fault not in ("kill", "torn-store"):  # these are over at once
                time.sleep(lasts)
        ended = time.monotonic()
    except SrtmError as error:
        return Run(case, why=str(error))
    finally:
        if is_reader:
            world.pause("steady", "b1", paused=True)
    time.sleep(after)
    return Run(case, what, began, ended, time.monotonic() - 2 * LATE_SECONDS)


def _during(runs: list[Run], at: float) -> str:
    """The fault in whose time, or after which, a message was meant to be sent."""
    before = [each for each in runs if not each.why and each.began <= at]
    return (before or runs)[-1].case.name if before else runs[0].case.name


def _bars(
    runs: list[Run],
    seen: dict[str, Around],
    lost: list[str],
    unexpected: list[str],
    over: dict[str, float],
    quick: bool,
) -> list[Bar]:
    found = [
        judge("acknowledged and lost", [len(lost)], at_most=0),
        judge("stored and never sent", [len(unexpected)], at_most=0),
    ]
    found += [
        judge(f"{topic}: messages over the contract", [excess], at_most=0)
        for topic, excess in over.items()
    ]
    named = {each.case.name: each for each in runs}
    for case in CASES:
        values, doubt = _back(named.get(case.name), seen.get(case.name), quick)
        name = f"{case.name}: SLO holds again after, s"
        found.append(judge(name, values, at_most=BACK_SECONDS, doubt=doubt))
    return found


def _back(run: Run | None, after: Around | None, quick: bool) -> tuple[list[float], str]:
    """Seconds until the SLO held again, and why they tell nothing."""
    if run is None:
        return [], "not in --quick"
    if after is None:
        return [], run.why
    if not after.before:
        return [], "the SLO did not hold before it began"
    if after.back_after is None:
        return [float("inf")], "not seen for long enough" if quick else ""
    return [after.back_after], ""


def _document(each: Run, after: Around | None) -> dict[str, Any]:
    return {
        "name": each.case.name,
        "what": each.what,
        "why_not": each.why,
        "seconds": each.ended - each.began,
        "late_share": after and after.late,
        "back_after_seconds": after and after.back_after,
    }


def _table(runs: list[Run], seen: dict[str, Around], lost: dict[str, int]) -> Table:
    def known(show: Callable[[Around], str], without: str = "-") -> Callable[[Run], str]:
        """What is shown of a fault that was carried out, and without one."""
        return lambda run: show(seen[run.case.name]) if run.case.name in seen else without

    def back(after: Around) -> str:
        return "not seen" if after.back_after is None else f"{after.back_after:.1f}"

    return tabulate(
        "faults, each by itself",
        runs,
        ("fault", lambda run: run.case.name),
        ("lasts, s", lambda run: "-" if run.why else f"{run.ended - run.began:.1f}"),
        ("late meanwhile, %", known(lambda it: f"{100 * it.late:.1f}" if it.messages else "-")),
        ("SLO holds again after, s", known(back, "undecided")),
        ("acknowledged and lost", lambda run: "-" if run.why else lost[run.case.name]),
    )
