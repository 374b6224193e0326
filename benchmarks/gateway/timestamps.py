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
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from statistics import median

import numpy as np

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
from benchmarks.gateway.timestamps_report import (
    MAX_STAMP_ERROR_US,
    NEIGHBOUR,
    STOPPED,
    Held,
    bars,
    draw,
    tables,
)
from benchmarks.harness.arms import Node, nodes
from benchmarks.harness.capture import Capture, message_times
from benchmarks.harness.report import Report
from benchmarks.harness.session import Session
from benchmarks.harness.trial import Trial, as_json, take_turns, trial
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
