"""Whom does a gateway delay that is late to read, by the source of its arrival times?

Publishers keep to their contract while the gateways are stopped, or crowded out of their core, for
1 to 50 ms at a time. A message is conformant when the arrival times of the segments, as a packet
capture has them, fit the bucket; it is delayed when the gateway's bucket makes it wait for a token,
for longer than the stamp may be off by its own bar.
SRTM section 5.2 tells the fault: a time taken late, at the read, delays conformant messages. The
stamps are held against the sender's clock and against the capture, in order of time. Then the cost
of each source: CPU of the gateway process for the same load, in turns.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from statistics import median

import numpy as np
from rich.table import Table

from benchmarks.gateway.record import Record, Recorder, record_of
from benchmarks.gateway.stalls import (
    PATTERNS,
    Crowded,
    Pattern,
    Staller,
    Stopped,
    drive,
    message_bytes,
    pinned,
)
from benchmarks.harness.arms import Node, nodes
from benchmarks.harness.bars import Bar, judge
from benchmarks.harness.capture import Capture, message_times
from benchmarks.harness.report import Picture, Report, number, table, tabulate
from benchmarks.harness.session import Session
from benchmarks.harness.trial import (
    Figure,
    Round,
    Trial,
    as_json,
    gateway_cpu,
    of_arm,
    ratios,
    take_turns,
    trial,
)
from kernel import SourceUnavailable, choose_source
from srtm.host.clock import WallClock
from srtm.limits.contract import Contract
from srtm.limits.queueing import Floats, token_waits
from srtm.text.errors import UnavailableError

SOURCES = ("ebpf", "sockopt", "clock")
STALLS_MS = (1, 5, 20, 50)
_ROUNDING_SECONDS = 1e-6  # of float times; a token takes 900 us

COST_LOAD = 10_000.0  # messages/s from 100 connections, Poisson
_COST_CONNECTIONS = 100
_COST_FLAGS = (
    f"--publishers={_COST_CONNECTIONS}",
    f"--rate={COST_LOAD / _COST_CONNECTIONS:g}",
)
_COST = Contract(topic="cost", rate=1e6, burst=1e6)


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of a stalled run and of a cost trial; rounds of both."""

    stalled_seconds: float
    cost_seconds: float
    cost_warmup: float
    stalled_rounds: int
    cost_rounds: int


FULL = Timing(3.0, 6.0, 1.0, 3, 7)
QUICK = Timing(0.6, 1.8, 0.4, 1, 3)

STOPPED, NEIGHBOUR = "stopped", "busy neighbour"
MAX_STAMP_ERROR_US = 100.0
MAX_COST_RATIO = 1.15
_COST_ROUNDS = 2  # fewer ratios have no range


@dataclass(frozen=True, slots=True)
class Held:
    """One source in one stalled run. kind: how it was held up.

    conformant: messages that need not wait by the segments' own arrival times
    delayed:    of those, the ones that waited for a token
    sender_us:  stamp minus time of sending: median, and p99 of the distance
    capture_us: stamp minus time of the packet capture, likewise; None without a capture
    """

    source: str
    kind: str
    pattern: str
    stall_ms: int
    messages: int
    conformant: int
    delayed: int
    longest_wait_ms: float
    sender_us: tuple[float, float]
    capture_us: tuple[float, float] | None


def bars(held: Sequence[Held], costs: Sequence[Round], quick: bool, doubt: str) -> list[Bar]:
    """doubt: why ebpf could not be measured at all"""
    exact = [each for each in held if each.source == "ebpf"]
    captured = [each for each in exact if each.capture_us is not None]
    unseen = doubt or ("no packet capture" if len(captured) < len(exact) else "")
    made = [
        judge(
            f"conformant messages delayed, ebpf, {stall_ms} ms",
            [float(sum(each.delayed for each in exact if each.stall_ms == stall_ms))],
            at_most=0,
            doubt=unseen,
        )
        for stall_ms in sorted({each.stall_ms for each in held})
    ]
    made.append(
        judge(
            "stamp of ebpf to the packet capture, p99, us",
            [each.capture_us[1] for each in captured if each.capture_us is not None],
            at_most=MAX_STAMP_ERROR_US,
            doubt=unseen,
        )
    )
    made.append(
        judge(
            "CPU per message, ebpf / clock",
            ratios(costs, gateway_cpu, "ebpf", "clock"),
            at_most=MAX_COST_RATIO,
            quick=quick,
            doubt=doubt,
            repeats=_COST_ROUNDS,
        )
    )
    return made


def tables(held: Sequence[Held], costs: Sequence[Round]) -> list[Table]:
    sources = list(dict.fromkeys(each.source for each in held))
    shares = table(
        "conformant messages delayed", "held up", "stall, ms", "publishers", "conformant", *sources
    )
    runs: dict[tuple[str, int, str], list[Held]] = {}
    for each in held:
        runs.setdefault((each.kind, each.stall_ms, each.pattern), []).append(each)
    for (kind, stall_ms, pattern), found in runs.items():
        by_source = {name: [each for each in found if each.source == name] for name in sources}
        first = by_source[sources[0]]
        kept = sum(each.conformant for each in first) / sum(each.messages for each in first)
        shares.add_row(
            kind,
            str(stall_ms),
            pattern,
            f"{kept:.1%}",
            *(f"{delayed_share(each):.2%}" for each in by_source.values()),
        )
    errors = table(
        "error of the stamp, us, worst run", "source", "sender p50", "sender p99", "capture p50",
        "capture p99",
    )  # fmt: skip
    for name in sources:
        ours = [each for each in held if each.source == name]
        sender = [max(each.sender_us[at] for each in ours) for at in (0, 1)]
        known = [each.capture_us for each in ours if each.capture_us is not None]
        capture = [max(each[at] for each in known) if known else None for at in (0, 1)]
        errors.add_row(name, *map(number, (*sender, *capture)))

    def middle(figure: Figure) -> Callable[[str], float | None]:
        return lambda name: _middle(of_arm(costs, figure, name))

    spent = tabulate(
        "CPU per message, us",
        sources,
        ("source", lambda name: name),
        ("gateway", middle(gateway_cpu)),
        ("nsqd", middle(lambda found: found.cpu_us["nsqd"])),
        ("generator", middle(lambda found: found.generator_cpu_us)),
        ("over clock", lambda name: _middle(ratios(costs, gateway_cpu, name, "clock"))),
    )
    return [shares, errors, spent]


def delayed_share(held: Sequence[Held]) -> float:
    """The part of the conformant messages that were delayed."""
    return sum(each.delayed for each in held) / max(sum(each.conformant for each in held), 1)


def _middle(values: Sequence[float]) -> float | None:
    return sorted(values)[len(values) // 2] if values else None


def draw(figure: Picture, held: Sequence[Held]) -> None:
    """Share of conformant messages delayed against the length of the stall, by source."""
    kinds = list(dict.fromkeys((each.kind, each.pattern) for each in held))
    axes = figure.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
    for ax, (kind, pattern) in zip(axes, kinds, strict=True):
        ours = [each for each in held if (each.kind, each.pattern) == (kind, pattern)]
        for source in dict.fromkeys(each.source for each in ours):
            stalls = sorted({each.stall_ms for each in ours})
            shares = [
                delayed_share(
                    [each for each in ours if each.source == source and each.stall_ms == stall]
                )
                for stall in stalls
            ]
            ax.plot(stalls, [100 * share for share in shares], "o-", label=source)
        ax.set(title=f"{kind}, {pattern}", xlabel="stall, ms")
    axes[0].set_ylabel("conformant messages delayed, %")
    axes[0].legend()


def run(session: Session) -> Report:
    timing = QUICK if session.quick else FULL
    sources, notes, doubt = _sources()
    held: list[Held] = []
    stalled = timing.stalled_rounds * 2 * len(PATTERNS) * len(STALLS_MS)
    session.plan(stalled + timing.cost_rounds * len(sources))
    flags = {name: [f"--timestamps={name}"] for name in sources}
    with nodes(session.folder, {name: [] for name in sources}, flags) as started:
        every = list(started.values())
        for kind, make in _stallers(every, notes).items():
            with ExitStack() as stack:
                staller = make(stack)
                for number in range(timing.stalled_rounds):
                    for pattern in PATTERNS:
                        for stall_ms in STALLS_MS:
                            session.step(f"{kind} {stall_ms} ms, {pattern.name} ({number + 1})")
                            seconds = max(timing.stalled_seconds, 4 * stall_ms / 1e3)
                            topic = f"held-{len(held)}"
                            held += _stalled(
                                every, topic, pattern, staller, kind, stall_ms, seconds, notes
                            )
        for node in every:
            node.create(_COST.topic)
            node.limit(_COST)

        def cost(name: str) -> Trial:
            seconds, warmup = timing.cost_seconds, timing.cost_warmup
            return trial(started[name], _COST.topic, _COST_FLAGS, seconds=seconds, warmup=warmup)

        costs = [
            take_turns(session, "cost", number, sources, timing.cost_seconds, cost)
            for number in range(timing.cost_rounds)
        ]
    lags = [each.lag_p99_ms for found in costs for each in found.values()]
    if lags:
        notes.append(f"cost: send lag p99 of the generator {median(lags):.2f} ms in the middle")
    return Report(
        settings=_settings(timing),
        figures={
            "held": [asdict(each) for each in held],
            "cost": as_json(costs),
        },
        bars=bars(held, costs, session.quick, doubt),
        tables=tables(held, costs),
        notes=list(dict.fromkeys(notes)),
        draw=lambda figure: draw(figure, held),
    )


def _sources() -> tuple[tuple[str, ...], list[str], str]:
    """The sources that work here; notes; why the bars cannot be judged, or nothing."""
    try:
        choose_source(WallClock(), "ebpf").close()
    except SourceUnavailable as error:
        return SOURCES[1:], [str(error)], str(error)
    return SOURCES, [], ""


def _stallers(every: list[Node], notes: list[str]) -> dict[str, Callable[[ExitStack], Staller]]:
    """How to begin with each kind of stall; what it changes is undone with the stack."""

    def stopped(stack: ExitStack) -> Staller:
        return Stopped(every)

    def crowded(stack: ExitStack) -> Staller:
        core = max(os.sched_getaffinity(0))
        neighbour = stack.enter_context(closing(Crowded(core)))
        stack.enter_context(pinned(every, core))
        if neighbour.priority != "real-time":
            notes.append("the neighbour has no real-time priority: its stalls may be shorter")
        return neighbour

    kinds: dict[str, Callable[[ExitStack], Staller]] = {STOPPED: stopped}
    if len(os.sched_getaffinity(0)) > 1:
        kinds[NEIGHBOUR] = crowded
    else:
        notes.append("one core only: no neighbour on the gateway's core")
    return kinds


def _stalled(
    every: list[Node],
    topic: str,
    pattern: Pattern,
    staller: Staller,
    kind: str,
    stall_ms: int,
    seconds: float,
    notes: list[str],
) -> list[Held]:
    """One run of all sources on the same arrivals."""
    contract = Contract(topic=topic, rate=pattern.rate, burst=pattern.burst)
    recorders = {}
    for node in every:
        node.limit(contract)
        recorders[node.name] = Recorder(node.admin, topic)
    ports = {node.name: int(node.gateway_tcp.rpartition(":")[2]) for node in every}
    try:
        capture: Capture | None = Capture(list(ports.values()))
    except UnavailableError as error:
        capture = None
        notes.append(f"{error}: conformance is judged by the sender's clock")
    try:
        sent = drive(every, topic, pattern, staller, stall_ms, seconds)
        segments = capture.finish() if capture is not None else None
    finally:
        if capture is not None:
            capture.close()
    found = []
    for node in every:
        record = record_of(recorders[node.name].finish())
        by_sender = (np.array(sent[node.name], dtype=np.int64) - record.origin_ns) / 1e9
        captured = None
        if segments is not None:
            times = message_times(segments, ports[node.name], message_bytes(topic))
            captured = (times - record.origin_ns) / 1e9
        found.append(_held(node.name, kind, pattern, stall_ms, record, by_sender, captured))
    return found


def _held(
    source: str,
    kind: str,
    pattern: Pattern,
    stall_ms: int,
    record: Record,
    by_sender: Floats,
    captured: Floats | None,
) -> Held:
    """The figures of one source; times in seconds since the record's origin, sorted."""
    arrivals = captured if captured is not None else by_sender
    exact = token_waits(arrivals - arrivals[0], pattern.rate, pattern.burst)
    conformant = exact <= _ROUNDING_SECONDS
    waits = record.waits()
    delayed = conformant & (waits > MAX_STAMP_ERROR_US / 1e6)
    return Held(
        source=source,
        kind=kind,
        pattern=pattern.name,
        stall_ms=stall_ms,
        messages=int(arrivals.size),
        conformant=int(conformant.sum()),
        delayed=int(delayed.sum()),
        longest_wait_ms=float(waits.max()) * 1e3,
        sender_us=_spread(record.arrivals - by_sender),
        capture_us=None if captured is None else _spread(record.arrivals - captured),
    )


def _spread(errors: Floats) -> tuple[float, float]:
    """(median, p99 of the distance), microseconds."""
    return float(np.median(errors)) * 1e6, float(np.quantile(np.abs(errors), 0.99)) * 1e6


def _settings(timing: Timing) -> dict[str, object]:
    return {
        "stalls_ms": STALLS_MS,
        "patterns": [
            {
                "name": pattern.name,
                "rate_per_second": pattern.rate,
                "burst": pattern.burst,
                "publishers": pattern.publishers,
                "period_ms": pattern.period_ns / 1e6,
                "groups": pattern.groups,
            }
            for pattern in PATTERNS
        ],
        "stalled_seconds": timing.stalled_seconds,
        "stalled_rounds": timing.stalled_rounds,
        "cost_load_per_second": COST_LOAD,
        "cost_connections": _COST_CONNECTIONS,
        "cost_seconds": timing.cost_seconds,
        "cost_rounds": timing.cost_rounds,
    }
