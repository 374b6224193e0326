"""SRTM section 5.3: does an nsqd that collects garbage less often have the shorter tail?

Go collects garbage when the heap has grown by GOGC per cent, and once in two minutes anyhow. The
paper allocates less and turns the second off; an unmodified nsqd can only be told to collect less
often, by GOGC and GOMEMLIMIT (`gogc` and `gomemlimit` of a `[[broker]]`). nsqd alone, with and
without messages that wait in memory, takes the same open load in turns; latency is from the
intended time to the consumer. Bars judge the tail against Go's defaults, round by round.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median

from rich.table import Table

from benchmarks.harness.arms import Node, nodes
from benchmarks.harness.bars import Bar, judge
from benchmarks.harness.report import Picture, Report, span, tabulate
from benchmarks.harness.session import Session
from benchmarks.harness.trial import (
    Round,
    Timing,
    Trial,
    as_json,
    of_arm,
    percentile_ms,
    ratios,
    take_turns,
)
from benchmarks.harness.trial import trial as one_trial
from srtm.http.client import Endpoint, call, get_json
from srtm.http.nsqd import stats_path
from srtm.text.errors import UnavailableError

TOPIC, WAITING_TOPIC = "bench", "waiting"
DEFAULT = "default"
ARMS: dict[str, dict[str, str]] = {
    DEFAULT: {},
    "gogc 400": {"GOGC": "400"},
    "off, 1 GiB": {"GOGC": "off", "GOMEMLIMIT": "1GiB"},
}
HEAPS = {"idle": 0, "100,000 waiting": 100_000}
"""Messages that wait in memory, of a topic that nobody consumes."""
SIZE = 200
"""bytes of a message's body"""
LOAD = ("--publishers=100", "--rate=20", f"--message-size={SIZE}")
_LATE_SHARE = 0.1
"""A generator that was late by more than this share of the tail says nothing of the broker."""
_REPEATS = 5
_AT_ONCE = 10_000


FULL, QUICK = Timing(10.0, 1.0, 8), Timing(2.0, 0.5, 1)
Trials = dict[str, list[Round]]
"""rounds by heap"""


def run(session: Session) -> Report:
    timing = QUICK if session.quick else FULL
    session.plan(timing.rounds * len(HEAPS) * len(ARMS))
    trials: Trials = {heap: [] for heap in HEAPS}
    collected: dict[tuple[str, str], list[float]] = {}
    with nodes(session.folder, dict.fromkeys(ARMS), environments=ARMS) as started:
        for node in started.values():
            node.create(TOPIC)
        for heap, waiting in HEAPS.items():
            for node in started.values():
                _fill(node, waiting)
            for number in range(timing.rounds):
                play = partial(_trial, started, timing, heap, collected)
                trials[heap].append(
                    take_turns(session, heap, number, list(ARMS), timing.seconds, play)
                )
    return Report(
        settings={"load": LOAD, "arms": ARMS, "heaps": HEAPS, "seconds": timing.seconds},
        figures={heap: as_json(rounds) for heap, rounds in trials.items()},
        bars=bars(trials, session.quick),
        tables=[_table(trials, collected)],
        notes=["collections: of a trial, median; nsqd counts them"],
        draw=lambda figure: _draw(figure, trials),
    )


def _fill(node: Node, count: int) -> None:
    body = b"\n".join([b"x" * SIZE] * min(count, _AT_ONCE))
    for _ in range(0, count, _AT_ONCE):
        path = f"/mpub?topic={WAITING_TOPIC}"
        answer = asyncio.run(call(Endpoint(node.nsqd_http), "POST", path, body))
        if answer.status != 200:
            raise UnavailableError(f"{node.nsqd_http}: /mpub: {answer.error}")


def _collections(node: Node) -> int:
    found = get_json(node.nsqd_http, stats_path("none", memory=True))
    return int(found["memory"]["gc_total_runs"])


def _trial(
    started: Mapping[str, Node],
    timing: Timing,
    heap: str,
    collected: dict[tuple[str, str], list[float]],
    arm: str,
) -> Trial:
    node = started[arm]
    before = _collections(node)
    found = one_trial(
        node,
        TOPIC,
        LOAD,
        seconds=timing.seconds,
        warmup=timing.warmup_seconds,
        consume_from=node.nsqd_tcp,
    )
    collected.setdefault((heap, arm), []).append(_collections(node) - before)
    return found


def tail(name: str, of: str = "end_to_end_latency") -> Callable[[Trial], float]:
    """of: what in the generator's document has the percentile"""
    return lambda found: percentile_ms(found.document[of], name)


def bars(trials: Trials, quick: bool) -> list[Bar]:
    """A bar is undecided where the generator itself was late by a part of the tail."""
    found = []
    for heap, rounds in trials.items():
        for arm in ARMS:
            if arm == DEFAULT:
                continue
            for name in ("p99", "p99.9"):
                lag = median(of_arm(rounds, tail(name, "send_lag"), DEFAULT) or [0.0])
                whole = median(of_arm(rounds, tail(name), DEFAULT) or [1.0])
                late = f"the generator itself was {lag:.2f} ms late at {name}, of {whole:.2f} ms"
                found.append(
                    judge(
                        f"{heap}: {name} with {arm} over Go's default",
                        ratios(rounds, tail(name), arm, DEFAULT),
                        at_most=1.0,
                        quick=quick,
                        doubt=late if lag > _LATE_SHARE * whole else "",
                        repeats=_REPEATS,
                    )
                )
    return found


def _table(trials: Trials, collected: Mapping[tuple[str, str], Sequence[float]]) -> Table:
    rows = [(heap, arm, rounds) for heap, rounds in trials.items() for arm in ARMS]

    def figure(name: str) -> Callable[[tuple[str, str, list[Round]]], float | None]:
        def cell(row: tuple[str, str, list[Round]]) -> float | None:
            values = of_arm(row[2], tail(name), row[1])
            return median(values) if values else None

        return cell

    def over(row: tuple[str, str, list[Round]]) -> str:
        values = ratios(row[2], tail("p99.9"), row[1], DEFAULT)
        return span(values) if values and row[1] != DEFAULT else "-"

    return tabulate(
        "nsqd alone, 2,000 messages/s; ms",
        rows,
        ("heap", lambda row: row[0]),
        ("garbage", lambda row: row[1]),
        ("collections", lambda row: median(collected.get((row[0], row[1]), [0.0]))),
        ("p50", figure("p50")),
        ("p99", figure("p99")),
        ("p99.9", figure("p99.9")),
        ("p99.9 over the default's", over),
    )


def _draw(figure: Picture, trials: Trials) -> None:
    """p99 and p99.9 of each round."""
    for axes, (heap, rounds) in zip(figure.subplots(1, len(trials)), trials.items(), strict=True):
        for place, arm in enumerate(ARMS):
            for name, marker in (("p99", "o"), ("p99.9", "x")):
                values = of_arm(rounds, tail(name), arm)
                label = f"{arm}, {name}"
                axes.plot([place] * len(values), values, marker, label=label, color=f"C{place}")
        axes.set(yscale="log", ylabel="ms", title=heap)
        axes.legend(fontsize="x-small")
