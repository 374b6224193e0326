"""The gateway against nsqd alone: throughput, CPU and tail latency, as ratios.

nsqd alone listens on TCP loopback, the one behind the gateway on a unix socket, as `srtm up`
deploys it; else both have the same flags. The topic has a contract far above every load and an
SLO, so that bucket, probe and sketches work. All processes run all the time, and trials take
turns: alone, behind, tunnel, alone, ... `behind` is published to through the gateway and consumed
from nsqd itself, `tunnel` is consumed through the gateway too.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from rich.table import Table

from benchmarks.harness.arms import NSQD_FLAGS, Node, nodes
from benchmarks.harness.bars import Bar, judge
from benchmarks.harness.report import Picture, Report, number, span, table
from benchmarks.harness.session import Session
from benchmarks.harness.trial import (
    OVERHEAD_SECONDS,
    Figure,
    Round,
    Trial,
    as_json,
    of_arm,
    ratios,
    trial,
)
from srtm.limits.contract import Contract
from srtm.limits.slo import SLO

TOPIC, CHANNEL = "bench", "bench"
CONTRACT = Contract(topic=TOPIC, rate=1e6, burst=1e6, slo=SLO(0.99, 0.001))
ARMS = ("alone", "behind", "tunnel")
CARRIED = 0.99
"""The part of the offered load that has to arrive, or the rate is not carried."""
LOWEST, HIGHEST = 10_000, 60_000  # messages/s between which the highest carried rate is sought
_IN_FLIGHT_SECONDS = 0.1
_CONNECTIONS = 1_000


@dataclass(frozen=True, slots=True)
class Workload:
    """closed: a rate is the result; else latency is."""

    name: str
    flags: tuple[str, ...]
    closed: bool


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one trial's sending and of its warm-up; rounds of all trials; bisection steps."""

    closed_seconds: float
    open_seconds: float
    warmup_seconds: float
    rounds: int
    bisection_steps: int


FULL = Timing(
    closed_seconds=4.0, open_seconds=11.0, warmup_seconds=1.0, rounds=3, bisection_steps=6
)
QUICK = Timing(
    closed_seconds=0.8, open_seconds=1.4, warmup_seconds=0.4, rounds=2, bisection_steps=3
)

_1000_BY_1 = ("--publishers=1000", "--max-speed", "--outstanding=1")
_50_BY_20 = ("--publishers=50", "--max-speed", "--outstanding=20")
# The bars are judged with the consumer that the product is for, which asks nsqd for no buffer, so
# that nsqd writes each message at once (10 us of its time); one with nsqd's default buffer is
# shown beside it.
CLOSED = (
    Workload("1,000 connections x 1", _1000_BY_1, closed=True),
    Workload("50 connections x 20", _50_BY_20, closed=True),
    Workload("1,000 x 1, consumer buffered", (*_1000_BY_1, "--consumer-buffer"), closed=True),
    Workload("50 x 20, consumer buffered", (*_50_BY_20, "--consumer-buffer"), closed=True),
)


def open_loop(name: str, rate: float) -> Workload:
    """1,000 Poisson connections with `rate` messages/s together."""
    flags = (f"--publishers={_CONNECTIONS}", f"--rate={rate / _CONNECTIONS:g}", "--drain=3s")
    return Workload(name, flags, closed=False)


Trials = dict[str, list[Round]]
"""rounds by workload: closed loops (the first two are judged), a fixed rate, the highest rate"""

_REPEATS = 2
_OURS = "behind", "alone"
_BUSY = 0.95
"""The part of a core that a generator may take: with more it was itself the limit of a closed
loop."""


def bars(trials: Trials, quick: bool) -> list[Bar]:
    """The consumer on nsqd in both arms; each the median of the rounds' ratios to nsqd alone."""
    one, many, *_ = trials
    *_, fixed, highest = trials

    def throughput(workload: str, at_least: float) -> Bar:
        values = ratios(trials[workload], lambda found: found.acknowledged, *_OURS)
        return judge(
            f"throughput, {workload}",
            values,
            at_least=at_least,
            quick=quick,
            doubt=generator_was_the_limit(trials[workload], values, at_least),
            repeats=_REPEATS,
        )

    def tail(workload: str, at_most: float) -> Bar:
        return judge(
            f"p99 end to end, {workload}",
            ratios(trials[workload], lambda found: found.p99_ms, *_OURS),
            at_most=at_most,
            quick=quick,
            doubt=generator_was_late(trials[workload], at_most),
            repeats=_REPEATS,
        )

    return [
        throughput(one, 1.15),
        throughput(many, 2.2),
        judge(
            f"CPU of a message, {fixed}",
            ratios(trials[fixed], lambda found: found.cpu_us_per_message, *_OURS),
            at_most=1.2,
            quick=quick,
            repeats=_REPEATS,
        ),
        tail(fixed, 1.3),
        tail(highest, 0.7),
    ]


def generator_was_late(rounds: Sequence[Round], at_most: float) -> str:
    """Could the generator's own lateness turn the verdict? A p99 from the intended send time has
    in it anything from nothing to all of the p99 of the send lag."""
    pairs = [(found["alone"], found["behind"]) for found in rounds if "behind" in found]
    if not pairs:
        return ""
    least = median(_less_lag(ours) / theirs.p99_ms for theirs, ours in pairs)
    most = median(ours.p99_ms / max(_less_lag(theirs), 1e-6) for theirs, ours in pairs)
    if (least <= at_most) == (most <= at_most):
        return ""
    lags = [median(each.lag_p99_ms for each in column) for column in zip(*pairs, strict=True)]
    return (
        f"the generator was late itself (p99 {lags[0]:.2f} and {lags[1]:.2f} ms): the ratio lies "
        f"between {least:.2f} and {most:.2f}"
    )


def _less_lag(found: Trial) -> float:
    return max(found.p99_ms - found.lag_p99_ms, 0.0)


def generator_was_the_limit(
    rounds: Sequence[Round], values: Sequence[float], at_least: float
) -> str:
    """A closed loop that misses its bar while the generator has no CPU left shows nothing."""
    if not values or median(values) >= at_least:
        return ""
    busy = median(of_arm(rounds, _busy, "behind"))
    return f"the generator took {busy:.0%} of its core" if busy > _BUSY else ""


def _busy(found: Trial) -> float:
    generator = found.document["generator"]
    return float(generator["cpu_seconds"] / generator["seconds"])


def _lag(found: Trial) -> float:
    return found.lag_p99_ms


def _is_closed(found: Trial) -> bool:
    """A closed loop sends when it is answered: it has no lag to show."""
    return found.document["settings"]["outstanding"] is not None


_ROWS: tuple[tuple[str, Figure], ...] = (
    ("acknowledged/s", lambda found: found.acknowledged),
    ("p99, ms", lambda found: found.p99_ms),
    ("CPU, us/msg", lambda found: found.cpu_us_per_message),
    ("send lag p99, ms", _lag),
    ("generator CPU, us/msg", lambda found: found.generator_cpu_us),
)


def tables(trials: Trials) -> list[Table]:
    """Medians of the rounds, and the range of their ratios; one table for each place of the
    consumer."""
    return [
        _table(trials, "behind", "consumer on nsqd itself in both"),
        _table(trials, "tunnel", "consumer behind the gateway's tunnel"),
    ]


def _table(trials: Trials, arm: str, title: str) -> Table:
    made = table(title, "load", "figure", "nsqd alone", "with gateway", "ratio", "range")
    for workload, rounds in trials.items():
        both = [found for found in rounds if arm in found]
        for name, figure in _ROWS if both else ():
            values = ratios(both, figure, arm, "alone")
            if not values or (figure is _lag and _is_closed(both[0][arm])):
                continue
            made.add_row(
                workload if name == _ROWS[0][0] else "",
                name,
                number(median(of_arm(both, figure, "alone"))),
                number(median(of_arm(both, figure, arm))),
                number(median(values)),
                span(values),
            )
        made.add_section()
    return made


def draw(figure: Picture, trials: Trials) -> None:
    """Throughput of the closed loops, p99 of the open ones."""
    left, right = figure.subplots(1, 2)
    names = list(trials)
    shown: tuple[tuple[Any, list[str], Figure, str], ...] = (
        (left, names[:-2], lambda found: found.acknowledged, "acknowledged messages/s"),
        (right, names[-2:], lambda found: found.p99_ms, "p99 end to end, ms"),
    )
    for axes, workloads, value, label in shown:
        for place, (arm, title) in enumerate(
            (("alone", "nsqd alone"), ("behind", "with gateway"), ("tunnel", "with tunnel"))
        ):
            columns = [of_arm(trials[workload], value, arm) for workload in workloads]
            there = [position for position, column in enumerate(columns) if column]
            middle = [median(columns[position]) for position in there]
            low = [height - min(columns[at]) for at, height in zip(there, middle, strict=True)]
            high = [max(columns[at]) - height for at, height in zip(there, middle, strict=True)]
            moved = [position + 0.27 * (place - 1) for position in there]
            axes.bar(moved, middle, 0.25, yerr=[low, high], capsize=3, label=title)
        axes.set_xticks(range(len(workloads)), workloads)
        axes.set(ylabel=label, ylim=(0, None))
        axes.legend()


def run(session: Session) -> Report:
    timing = QUICK if session.quick else FULL
    closed = CLOSED[:2] if session.quick else CLOSED
    workloads = [*closed, open_loop("10,000 msg/s", 10_000)]
    session.plan(timing.bisection_steps + timing.rounds * (len(workloads) + 1) * len(ARMS))
    with nodes(session.folder, {"alone": None, "behind": [CONTRACT]}) as started:
        for node in started.values():
            node.create(TOPIC, CHANNEL)
        probes: list[dict[str, Any]] = []

        def carries(rate: float) -> bool:
            session.step(f"nsqd alone at {rate:,.0f} msg/s")
            found = _trial(started["alone"], open_loop("search", rate), timing, False)
            carried = is_carried(found)
            probes.append({"rate": rate, "carried": carried, **asdict(found)})
            return carried

        rate = bisect(LOWEST, HIGHEST, timing.bisection_steps, carries)
        workloads.append(open_loop("highest rate of nsqd alone", rate))
        trials: Trials = {workload.name: [] for workload in workloads}
        for number in range(timing.rounds):
            for workload in workloads:
                found: dict[str, Trial] = {}
                for arm in _arms(session, number, workload, timing):
                    session.step(f"{workload.name}: {arm} ({number + 1}/{timing.rounds})")
                    node = started["alone" if arm == "alone" else "behind"]
                    found[arm] = _trial(node, workload, timing, arm == "tunnel")
                trials[workload.name].append(found)
    notes = _notes(session.quick, timing, probes, rate, trials)
    return Report(
        settings={
            "nsqd_flags": NSQD_FLAGS,
            "contract": CONTRACT.document(),
            **asdict(timing),
            "load_flags": {workload.name: workload.flags for workload in workloads},
        },
        figures={
            "highest_rate": {"rate": rate, "probes": probes},
            "trials": {name: as_json(rounds) for name, rounds in trials.items()},
        },
        bars=bars(trials, session.quick),
        tables=tables(trials),
        notes=notes,
        draw=lambda figure: draw(figure, trials),
    )


def _trial(node: Node, workload: Workload, timing: Timing, tunnel: bool) -> Trial:
    return trial(
        node,
        TOPIC,
        workload.flags,
        seconds=timing.closed_seconds if workload.closed else timing.open_seconds,
        warmup=timing.warmup_seconds,
        channel=CHANNEL,
        consume_from=node.gateway_tcp if tunnel else node.nsqd_tcp,
    )


def _arms(session: Session, number: int, workload: Workload, timing: Timing) -> tuple[str, ...]:
    """The arms of one round: all of them; --quick looks at the tunnel in the last round only, and
    leaves out what it has no time for."""
    if not session.quick:
        return ARMS
    seconds = timing.closed_seconds if workload.closed else timing.open_seconds
    arms = ARMS if number == timing.rounds - 1 else ARMS[:2]
    affordable = int(session.seconds_left / (seconds + OVERHEAD_SECONDS))
    return arms[:affordable] if affordable > 1 else ()


def is_carried(found: Trial) -> bool:
    """Did 99 % of what was offered arrive in the window, the rest being no growing backlog?

    1 % of ten seconds is what a tenth of a second brings: a shorter window is allowed as much, or
    a delivery that is on its way at its end would fail it.
    """
    rates = found.document["rates_per_second"]
    settings = found.document["settings"]
    window = settings["duration_seconds"] - settings["warmup_seconds"]
    missing = (rates["offered"] - rates["received"]) * window
    allowed = max((1 - CARRIED) * window, _IN_FLIGHT_SECONDS) * rates["offered"]
    return bool(missing <= allowed and found.waiting_grew <= allowed)


def bisect(low: float, high: float, steps: int, carries: Callable[[float], bool]) -> float:
    """The highest rate found that is carried, to (high - low) / 2**steps; `low` is not tried."""
    for _ in range(steps):
        middle = (low + high) / 2
        if carries(middle):
            low = middle
        else:
            high = middle
    return low


def _notes(
    quick: bool,
    timing: Timing,
    probes: list[dict[str, Any]],
    rate: float,
    trials: Trials,
) -> list[str]:
    step = (HIGHEST - LOWEST) / 2**timing.bisection_steps
    notes = [
        f"highest rate of nsqd alone: {rate:,.0f} msg/s, to {step:,.0f}; {CARRIED:.0%} of the load "
        f"arrived for {timing.open_seconds - timing.warmup_seconds:g} s without a growing backlog"
    ]
    if not any(probe["carried"] for probe in probes):
        notes.append(f"no rate that was tried is carried, and {LOWEST:,} was not tried")
    if all(probe["carried"] for probe in probes):
        notes.append("every rate that was tried is carried: nsqd alone may carry more")
    if quick:
        notes.append(
            f"--quick: {timing.bisection_steps} steps of bisection and {timing.rounds} rounds of "
            f"trials of {timing.closed_seconds:g} and {timing.open_seconds:g} s"
        )
    problems = {
        f"{name}, {arm}: {problem}"
        for name, rounds in trials.items()
        for found in rounds
        for arm, each in found.items()
        for problem in each.document["problems"]
    }
    return notes + sorted(problems)
