"""The gateway against nsqd alone: throughput, CPU and tail latency, as ratios.

nsqd alone listens on TCP loopback, the one behind the gateway on a unix socket, as `srtm up`
deploys it; else both have the same flags. The topic has a contract far above every load and an
SLO, so that bucket, probe and sketches work. All processes run all the time, and trials take
turns: alone, behind, tunnel, alone, ... `behind` is published to through the gateway and consumed
from nsqd itself, `tunnel` is consumed through the gateway too.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.gateway.cost_report import Trials, bars, draw, tables
from benchmarks.harness.arms import NSQD_FLAGS, Node, nodes
from benchmarks.harness.report import Report
from benchmarks.harness.session import Session
from benchmarks.harness.trial import OVERHEAD_SECONDS, Trial, as_json, trial
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
