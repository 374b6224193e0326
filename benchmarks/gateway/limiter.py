"""Does a bursty topic keep to its contract, and what does keeping to it cost?

Conformance: publishers send bursts of PUBs and MPUBs, half as much again as the contract allows.
The record of bucket times is held against b + r t over every interval; so are the times at which
nsqd received the messages, where a late release may show. Cost: CPU of the gateway for the same
load without contract, under one that is never reached, and with nine messages in ten waiting.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.gateway.record import Record, Recorder, WireClock, record_of, topic_figures
from benchmarks.harness.arms import Node, nodes
from benchmarks.harness.bars import Bar, judge
from benchmarks.harness.report import Picture, Report, span, tabulate
from benchmarks.harness.session import Session
from benchmarks.harness.trial import (
    Figure,
    Generator,
    Round,
    Trial,
    as_json,
    gateway_cpu,
    of_arm,
    ratios,
    take_turns,
    trial,
)
from srtm.limits.contract import Contract
from srtm.limits.excess import worst_excess
from srtm.limits.queueing import Floats
from srtm.text.errors import SrtmError

RATE, BURST = 2_000.0, 100.0  # the contract of the conformance runs
OVERLOAD = 1.5  # offered over contract: the backlog grows while it is sent
_CHANNEL = "wire"
_PUBLISHERS = 10  # of bursts, and as many of MPUBs
_BURST_OF_PUBS = 20

COST_LOAD = 5_000.0  # messages/s from 50 connections, Poisson
_COST_FLAGS = ("--publishers=50", f"--rate={COST_LOAD / 50:g}")
COSTS = {
    "no contract": None,
    "never reached": (1e6, 1e6),
    "most wait": (1.1 * COST_LOAD, 1.0),
}
"""(r, b) by topic. With b = 1 a Poisson message waits with probability 1 / 1.1, and not for long:
the load is the same in all three."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of a conformance run and of a cost trial; rounds of both."""

    conformance_seconds: float
    cost_seconds: float
    cost_warmup: float
    conformance_rounds: int
    cost_rounds: int


FULL = Timing(12.0, 8.0, 1.0, 3, 5)
QUICK = Timing(3.0, 2.2, 0.4, 1, 2)

CASES = {"batches within b": 50, "batches over b": 150}
"""Messages in an MPUB. One that is bigger than b goes when the bucket is full and leaves a debt."""

TOLERANCE = 1e-6 + RATE * 1e-9
"""messages: what a nanosecond brings is in it, since bucket times are whole nanoseconds"""


@dataclass(frozen=True)
class Conformance:
    """One bursty run. Times in seconds since the record's origin.

    on_wire:      nsqd's own time of receipt of each message
    excess:       worst over max(BURST, largest_batch) + RATE * t of any interval, in bucket time
    wire_excess:  the same by nsqd's times
    gateway_time: the gateway's own sketch, from token to nsqd's socket, in seconds
    """

    largest_batch: int
    record: Record
    on_wire: Floats
    excess: float
    wire_excess: float
    gateway_time: dict[str, Any]
    loads: list[dict[str, Any]]

    @property
    def missing_on_wire(self) -> int:
        return int(self.record.admissions.size - self.on_wire.size)

    @property
    def lateness(self) -> Floats:
        """Seconds of each message from its token to nsqd, first in first out; empty when messages
        are missing."""
        if self.missing_on_wire:
            return np.zeros(0)
        return self.on_wire - self.record.admissions

    def late_ms(self, share: float) -> float | None:
        """A quantile of the lateness."""
        late = self.lateness
        return float(np.quantile(late, share)) * 1e3 if late.size else None

    @property
    def explained(self) -> float | None:
        """Messages by which the spread of the lateness can exceed the contract on the wire."""
        late = self.lateness
        return float(np.ptp(late)) * RATE if late.size else None

    @property
    def problems(self) -> list[str]:
        return [problem for load in self.loads for problem in load["problems"]]

    def document(self) -> dict[str, Any]:
        late = self.lateness
        return {
            "messages": int(self.record.admissions.size),
            "waiting_share": float(np.mean(self.record.waits() > 0)),
            "mean_token_wait": float(np.mean(self.record.waits())),
            "excess": self.excess,
            "tolerance": TOLERANCE,
            "wire_excess": self.wire_excess,
            "wire_excess_explained": self.explained,
            "lateness": {
                name: float(np.quantile(late, q)) if late.size else None
                for name, q in (("min", 0.0), ("p50", 0.5), ("p99", 0.99), ("max", 1.0))
            },
            "gateway_time": self.gateway_time,
            "loads": self.loads,
        }


Conformances = Mapping[str, Sequence[Conformance]]


def bars(conformances: Conformances) -> list[Bar]:
    return [
        judge(
            f"worst excess in bucket time, {name}, messages",
            [each.excess for each in found],
            at_most=TOLERANCE,
        )
        for name, found in conformances.items()
    ]


def tables(conformances: Conformances, costs: Sequence[Round]) -> list[Table]:
    runs = [(name, each) for name, found in conformances.items() for each in found]
    kept = tabulate(
        "over the contract, worst interval of all, messages",
        runs,
        ("load", lambda run: run[0]),
        ("messages", lambda run: run[1].record.admissions.size),
        ("waited", lambda run: f"{np.mean(run[1].record.waits() > 0):.0%}"),
        ("bucket time", lambda run: run[1].excess),
        ("on the wire", lambda run: run[1].wire_excess),
        ("explained by lateness", lambda run: run[1].explained),
        ("late p99, ms", lambda run: run[1].late_ms(0.99)),
        ("max, ms", lambda run: run[1].late_ms(1.0)),
    )

    def middle(figure: Figure) -> Callable[[str], float]:
        return lambda name: median(of_arm(costs, figure, name))

    def over_none(name: str) -> list[float]:
        return ratios(costs, gateway_cpu, name, "no contract")

    names = dict.fromkeys(name for found in costs for name in found)
    spent = tabulate(
        "CPU of the gateway",
        [name for name in names if over_none(name)],
        ("topic", lambda name: name),
        ("us/msg", middle(gateway_cpu)),
        ("ratio", lambda name: median(over_none(name))),
        ("range", lambda name: span(over_none(name))),
        ("nsqd, us/msg", middle(lambda found: found.cpu_us["nsqd"])),
        ("generator, us/msg", middle(lambda found: found.generator_cpu_us)),
        ("lag p99, ms", middle(lambda found: found.lag_p99_ms)),
    )
    return [kept, spent]


def draw(figure: Picture, conformances: Conformances) -> None:
    """How near the contract each message came, in two clocks."""
    axes = figure.subplots(1, len(conformances), sharey=False, squeeze=False)[0]
    for each_axes, (name, found) in zip(axes, conformances.items(), strict=True):
        if not found:
            continue
        run = found[0]
        allowance = max(BURST, run.largest_batch)
        for label, times in (("on the wire", run.on_wire), ("bucket time", run.record.admissions)):
            before = np.arange(times.size) - RATE * (times - times[:1])
            used = before + 1 - np.minimum.accumulate(before)
            each_axes.plot(times, used, linewidth=0.7, label=label)
        each_axes.axhline(allowance, color="black", linestyle="--", label="max(b, largest batch)")
        each_axes.set(title=name, xlabel="s", ylabel="messages over r t, worst interval up to here")
        each_axes.legend(loc="lower right")


def run(session: Session) -> Report:
    timing = QUICK if session.quick else FULL
    session.plan(len(CASES) * timing.conformance_rounds + len(COSTS) * timing.cost_rounds)
    conformances: dict[str, list[Conformance]] = {name: [] for name in CASES}
    with nodes(session.folder, {"limiter": []}) as started:
        node = started["limiter"]
        for number in range(timing.conformance_rounds):
            for at, (name, batch) in enumerate(CASES.items()):
                session.step(f"{name} ({number + 1}/{timing.conformance_rounds})")
                topic = f"conformance-{number}-{at}"
                conformances[name].append(
                    _conformance(node, topic, batch, timing.conformance_seconds)
                )
        topics = {name: f"cost-{at}" for at, name in enumerate(COSTS)}
        for name, contract in COSTS.items():
            node.create(topics[name])
            if contract is not None:
                rate, burst = contract
                node.limit(Contract(topic=topics[name], rate=rate, burst=burst))

        def cost(name: str) -> Trial:
            seconds, warmup = timing.cost_seconds, timing.cost_warmup
            return trial(node, topics[name], _COST_FLAGS, seconds=seconds, warmup=warmup)

        costs = [
            take_turns(session, "cost", number, list(COSTS), timing.cost_seconds, cost)
            for number in range(timing.cost_rounds)
        ]
        waited = {
            name: topic_figures(node.admin, topic)["token_wait"]
            for name, topic in topics.items()
            if any(name in each for each in costs)  # the gateway knows no other
        }
    return Report(
        settings=_settings(timing),
        figures={
            "conformance": {
                name: [each.document() for each in found] for name, found in conformances.items()
            },
            "cost": as_json(costs),
            "cost_token_wait": waited,
        },
        bars=bars(conformances),
        tables=tables(conformances, costs),
        notes=_notes(conformances, costs),
        draw=lambda figure: draw(figure, conformances),
    )


def _conformance(node: Node, topic: str, batch: int, seconds: float) -> Conformance:
    """Bursts of PUBs and MPUBs over one contract, until the last of them is with nsqd."""
    node.create(topic, _CHANNEL)
    node.limit(Contract(topic=topic, rate=RATE, burst=BURST))
    recorder = Recorder(node.admin, topic)
    wire = WireClock(node.nsqd_tcp, topic, _CHANNEL)
    try:
        each = OVERLOAD * RATE / 2 / _PUBLISHERS
        common = [
            f"--nsqd-tcp-address={node.publish_to}",
            f"--topic={topic}",
            "--no-consumer",
            f"--publishers={_PUBLISHERS}",
            f"--rate={each:g}",
            "--drain=20s",
        ]
        generators = [
            Generator([*common, f"--batch={_BURST_OF_PUBS}", "--seed=1"], seconds),
            Generator([*common, f"--batch={batch}", "--mpub", "--seed=2"], seconds),
        ]
        documents = []
        try:
            documents = [generator.result() for generator in generators]
        finally:
            for generator in generators[len(documents) :]:
                generator.stop()
        record = record_of(recorder.finish())
        on_wire = wire.finish(record.admissions.size, record.origin_ns)
    finally:
        wire.close()
    if wire.clock_moved:
        raise SrtmError(f"{topic}: the wall clock was stepped during the run: run it again")
    allowance = max(BURST, batch)
    return Conformance(
        largest_batch=batch,
        record=record,
        on_wire=on_wire,
        excess=worst_excess(record.admissions, RATE, allowance),
        wire_excess=worst_excess(on_wire, RATE, allowance),
        gateway_time=topic_figures(node.admin, topic)["gateway_time"],
        loads=documents,
    )


def _settings(timing: Timing) -> dict[str, Any]:
    return {
        "rate_per_second": RATE,
        "burst": BURST,
        "overload": OVERLOAD,
        "publishers_of_each_kind": _PUBLISHERS,
        "burst_of_pubs": _BURST_OF_PUBS,
        "messages_in_an_mpub": CASES,
        "conformance_seconds": timing.conformance_seconds,
        "conformance_rounds": timing.conformance_rounds,
        "cost_load_per_second": COST_LOAD,
        "cost_contracts": COSTS,
        "cost_seconds": timing.cost_seconds,
        "cost_rounds": timing.cost_rounds,
    }


def _notes(conformances: dict[str, list[Conformance]], costs: list[Round]) -> list[str]:
    notes = [
        "on the wire a late release is followed by a shorter interval: at most r times the spread "
        "of the lateness is over the contract there"
    ]
    for name, found in conformances.items():
        missing = [each.missing_on_wire for each in found if each.missing_on_wire]
        if missing:
            notes.append(f"{name}: {missing} messages were not seen on the wire")
        notes += [f"{name}: {problem}" for each in found for problem in each.problems]
    lags = [each.lag_p99_ms for found in costs for each in found.values()]
    if lags:
        notes.append(f"cost: send lag p99 of the generator {median(lags):.2f} ms in the middle")
    return notes
