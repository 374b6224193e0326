"""Does a noisy publisher of a fair topic delay itself, and not the others?

50 quiet publishers send 0.9 of r together, and a noisy one ten times its part of r, which is 1.08
of r in all. Arrivals and token waits are exact, from the gateway's trace. What the same quiet
arrivals wait alone, in order of arrival, is computed from these arrivals: an exact queue, so that a
late generator makes no difference between the two. b = 1: beside a publisher that always has
messages waiting the bucket is empty, whoever is next.

Where the quiet ones send together (a correlation group), they are compared with themselves alone:
the noisy one adds one token to each round of 50. Where they are independent, that would compare
with a share that nobody who shares fairly has: while n of them wait, the noisy one has a right to
one token of n + 1. So they are compared with an ideal server that shares r evenly at every instant
(GPS), on the same arrivals; the waits alone are shown beside it. Jain's index is of 20 publishers
that all send more than their part, at rates from 1.5 to 6 parts.
"""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.table import Table

from benchmarks.gateway.fair_share import ideal_waits, jain
from benchmarks.gateway.record import topic_figures
from benchmarks.harness.arms import Node, nodes
from benchmarks.harness.bars import Bar, judge, judge_worst
from benchmarks.harness.report import Picture, Report, number, span, table
from benchmarks.harness.session import Session
from benchmarks.harness.trial import Round, as_json, gateway_cpu, ratios, take_turns, trial
from benchmarks.harness.world import until
from srtm.audit.folder import read_sessions
from srtm.audit.judge import judge as audit
from srtm.limits.contract import Contract, Fair
from srtm.limits.queueing import Floats, token_waits
from srtm.load import LoadSettings, run_load
from srtm.traces.names import whole_trace

RATE = 500.0
"""messages/s. A burst of all quiet ones takes 100 ms of each 111, so that a generator that is some
milliseconds late does not make two bursts meet."""
QUIET = 50
LOAD = 0.9
"""of r, by the quiet ones together"""
NOISY = 10 * RATE / (QUIET + 1)
CASES = ("together", "independent")
ARMS = ("fair", "in order of arrival")
_ALONE_MS = QUIET / RATE * 1e3
"""p99 of the wait of those who send together, alone, where each burst is over before the next."""
THROTTLED = np.linspace(1.5, 6.0, 20)
"""parts of r that each sends"""
_SPREAD = 1.1
"""the largest ratio of CPU over the least: with more nobody can tell 1 %"""
_COST_FLAGS = ("--publishers=50", "--rate=100")
_NAMES = tuple(f"quiet-{n}" for n in range(QUIET))


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of a trial's sending and of its warm-up; rounds of trials, and of those of CPU."""

    seconds: float
    warmup_seconds: float
    rounds: int
    cost_seconds: float
    cost_rounds: int


FULL = Timing(12.0, 2.0, 3, 8.0, 5)
QUICK = Timing(3.0, 1.0, 1, 2.2, 2)


@dataclass(frozen=True, slots=True)
class Rows:
    """Admitted messages of one trial, in order of arrival: seconds since the first, names, and the
    seconds that each waited for its token."""

    times: Sequence[float]
    publishers: Sequence[str]
    waits: Sequence[float]

    def quiet(self, waits: Sequence[float]) -> tuple[Floats, Floats]:
        """The times of the messages of quiet publishers, and the waits of these, which are given of
        all messages."""
        is_quiet = np.array(self.publishers) != "noisy"
        return np.array(self.times)[is_quiet], np.array(waits)[is_quiet]

    def parts(self, since: float, until: float) -> list[int]:
        """Tokens that each publisher got in that time."""
        got = Counter(dict.fromkeys(self.publishers, 0))
        for at, who, wait in zip(self.times, self.publishers, self.waits, strict=True):
            got[who] += since <= at + wait < until
        return list(got.values())


class Gateway:
    """The gateway under test and what it writes."""

    def __init__(self, node: Node, folder: Path) -> None:
        self.node = node
        self.folder = folder
        self.topics: list[str] = []

    def send(self, topic: str, fair: Fair | None, rates: dict[str, float], **how: Any) -> Rows:
        """One trial over a topic of its own."""
        self.node.create(topic)
        self.node.limit(Contract(topic=topic, rate=RATE, burst=1, fair=fair))
        settings = LoadSettings(
            topic=topic,
            publish_addresses=(self.node.publish_to,),
            publishers=len(rates),
            ids=tuple(rates),
            rates=tuple(rates.values()),
            **how,
        )
        run_load(settings)
        self.topics.append(topic)
        return self._rows(topic)

    def _rows(self, topic: str) -> Rows:
        """Once its last message is in the trace."""
        figures = topic_figures(self.node.admin, topic)
        until(lambda: self._traced(topic) >= figures["offered"], f"{topic} is traced", 30.0)
        found = self._read(topic)
        found = found.filter(pc.equal(found["outcome"], "admitted")).sort_by("time")
        counts = found["messages"].to_numpy()
        times = np.repeat(found["time"].to_numpy(), counts)
        names = np.repeat(np.array(found["publisher"].to_pylist()), counts)
        waits = np.repeat(found["wait"].to_numpy(), counts)
        return Rows(((times - times[:1]) / 1e9).tolist(), names.tolist(), (waits / 1e9).tolist())

    def _traced(self, topic: str) -> int:
        return int(pc.sum(self._read(topic)["messages"]).as_py() or 0)

    def _read(self, topic: str) -> Any:
        files = whole_trace(self.folder / "trace")
        while not files:
            time.sleep(0.1)
            files = whole_trace(self.folder / "trace")
        return pq.read_table(files, filters=[("topic", "=", topic)])

    def excess(self, topic: str) -> float:
        """Messages over b + r t, by the audit of the admission log."""
        found = audit(topic, read_sessions([self.folder / "log"], topic))
        return found.excess if found.messages else float("inf")


@dataclass(frozen=True, slots=True)
class Found:
    """p99 of the quiet ones' token wait, milliseconds, of one round. alone: what the same arrivals
    wait without the noisy one; ideal: beside it, in an ideal fair server"""

    alone: float
    fair: float
    in_order: float
    ideal: float


def run(session: Session) -> Report:
    timing = QUICK if session.quick else FULL
    session.plan(timing.rounds * len(ARMS) * (len(CASES) + 1) + 2 * timing.cost_rounds)
    folder = session.folder / "kept"
    folder.mkdir()
    flags = [
        f"--trace-dir={folder / 'trace'}",
        "--trace-file-age=1s",
        f"--admission-log={folder / 'log'}",
    ]
    with nodes(session.folder, {"fairness": []}, {"fairness": flags}) as started:
        gateway = Gateway(started["fairness"], folder)
        waits: dict[str, list[Found]] = {case: [] for case in CASES}
        evenness: dict[str, list[float]] = {arm: [] for arm in ARMS}
        for number in range(timing.rounds):
            for case in CASES:
                waits[case].append(_waits(session, gateway, case, number, timing))
            for arm in evenness:
                evenness[arm].append(_evenness(session, gateway, arm, number, timing))
        excesses = {topic: gateway.excess(topic) for topic in gateway.topics}
    costs = _costs(session, timing)
    return Report(
        settings={
            "rate_per_second": RATE,
            "burst": 1,
            "quiet_publishers": QUIET,
            "quiet_load": LOAD,
            "noisy_rate_per_second": NOISY,
            "throttled_parts": THROTTLED.tolist(),
            "cost_load_flags": _COST_FLAGS,
            **asdict(timing),
        },
        figures={
            "p99_token_wait_ms": {
                case: [asdict(each) for each in found] for case, found in waits.items()
            },
            "jain": evenness,
            "excess_messages": excesses,
            "cost": as_json(costs),
        },
        bars=bars(waits, evenness["fair"], list(excesses.values()), costs, session.quick),
        tables=[_table(waits), _evenness_table(evenness)],
        notes=[
            "b = 1: beside a publisher that always has messages waiting the bucket is empty, so "
            "with a bigger b the quiet ones lose the burst that they have alone, b / r at most"
        ],
        draw=lambda figure: _draw(figure, waits),
    )


def _waits(session: Session, gateway: Gateway, case: str, number: int, timing: Timing) -> Found:
    """One round: the same schedule in both arms."""
    together = case == "together"
    found = {}
    for arm in ARMS:
        session.step(f"{case}: {arm}, round {number + 1}")
        found[arm] = gateway.send(
            f"{case}-{number}-{ARMS.index(arm)}",
            Fair.PUBLISHER if arm == "fair" else None,
            {**dict.fromkeys(_NAMES, LOAD * RATE / QUIET), "noisy": NOISY},
            arrivals="periodic" if together else "poisson",
            groups=(*(0,) * QUIET, 1) if together else None,
            duration_seconds=timing.seconds,
            seed=number + 1,
            drain_seconds=10.0,
        )

    def p99(times: Floats, waits: Floats) -> float:
        measured = (times >= timing.warmup_seconds) & (times < timing.seconds)
        return float(np.quantile(waits[measured], 0.99)) * 1e3

    fair, in_order = found["fair"], found["in order of arrival"]
    times, waits = fair.quiet(fair.waits)
    ideal = ideal_waits(fair.times, fair.publishers, RATE)
    return Found(
        alone=p99(times, token_waits(times, RATE, 1.0)),
        fair=p99(times, waits),
        in_order=p99(*in_order.quiet(in_order.waits)),
        ideal=p99(*fair.quiet(ideal)),
    )


def _evenness(session: Session, gateway: Gateway, arm: str, number: int, timing: Timing) -> float:
    """Jain's index of the tokens that publishers got who all wait for more."""
    session.step(f"all throttled: {arm}, round {number + 1}")
    part = RATE / len(THROTTLED)
    rows = gateway.send(
        f"throttled-{number}-{len(arm)}",
        Fair.PUBLISHER if arm == "fair" else None,
        {f"p{n}": parts * part for n, parts in enumerate(THROTTLED)},
        duration_seconds=timing.seconds / 2,
        seed=number + 1,
        drain_seconds=0.1,
    )
    return jain(rows.parts(timing.warmup_seconds / 2, timing.seconds / 2))


def _costs(session: Session, timing: Timing) -> list[Round]:
    """CPU of messages that never wait, at a gateway that keeps no trace."""
    topics = {"arrival": None, "fair": Fair.PUBLISHER}
    with nodes(session.folder, {"cost": []}) as started:
        node = started["cost"]
        for topic, fair in topics.items():
            node.create(topic)
            node.limit(Contract(topic=topic, rate=1e6, burst=1e6, fair=fair))
        run_one = partial(trial, node, flags=_COST_FLAGS, seconds=timing.cost_seconds, warmup=1.0)
        return [
            take_turns(session, "CPU", number, list(topics), timing.cost_seconds, run_one)
            for number in range(timing.cost_rounds)
        ]


def bars(
    waits: dict[str, list[Found]],
    evenness: Sequence[float],
    excesses: Sequence[float],
    costs: Sequence[Round],
    quick: bool,
) -> list[Bar]:
    cpu = ratios(costs, gateway_cpu, "fair", "arrival")
    is_noisy = bool(cpu) and max(cpu) > _SPREAD * min(cpu)
    late = [each.alone for each in waits["together"] if each.alone > _ALONE_MS * 1.1]
    return [
        judge(
            "p99 wait beside a noisy one, over alone, quiet ones together",
            [each.fair / each.alone for each in waits["together"] if each.alone],
            at_most=1.1,
            quick=quick,
            doubt=f"the generator was late: alone {max(late):.0f} ms" if late else "",
        ),
        judge(
            "p99 wait beside a noisy one, over an ideal server's, independent",
            [each.fair / each.ideal for each in waits["independent"] if each.ideal],
            at_most=1.1,
            quick=quick,
        ),
        judge("Jain's index, all throttled", evenness, at_least=0.99, quick=quick),
        judge_worst("messages over b + r t, all topics", excesses, at_most=0.0),
        judge(
            "CPU of a message that does not wait, fair over in order",
            cpu,
            at_most=1.01,
            quick=quick,
            repeats=3,
            doubt="the machine was not quiet: rounds differ by more than 10 %" if is_noisy else "",
        ),
    ]


def _table(waits: dict[str, list[Found]]) -> Table:
    made = table(
        "p99 token wait of the quiet ones, ms",
        "quiet ones",
        "alone",
        "beside a noisy one",
        "range",
        "ideal server",
        "in order of arrival",
    )
    for case, found in waits.items():
        made.add_row(
            case,
            number(median(each.alone for each in found)),
            number(median(each.fair for each in found)),
            span([each.fair for each in found]),
            number(median(each.ideal for each in found)),
            number(median(each.in_order for each in found)),
        )
    return made


def _evenness_table(evenness: dict[str, list[float]]) -> Table:
    made = table("Jain's index of what throttled publishers got", "contract", "index", "range")
    for arm, values in evenness.items():
        made.add_row(arm, f"{median(values):.4f}", span(values))
    return made


def _draw(figure: Picture, waits: dict[str, list[Found]]) -> None:
    """p99 by case and arm."""
    for axes, (case, found) in zip(figure.subplots(1, len(waits)), waits.items(), strict=True):
        names = ("alone", "fair", "ideal", "in_order")
        heights = [median(getattr(each, name) for each in found) for name in names]
        axes.bar(range(len(names)), heights)
        axes.set_xticks(range(len(names)), ("alone", "fair", "ideal", "in order"))
        axes.set(title=case, ylabel="p99 token wait of the quiet ones, ms", yscale="log")
