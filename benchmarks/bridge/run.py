"""Both ways of the bridge: messages/s and CPU, beside a plain loop and the limits of both sides."""

import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from statistics import median
from typing import Any

from rich.table import Table

from benchmarks.bridge.faults import Faults, Outcome
from benchmarks.bridge.latency import RATE, Latency, kafka_to_nsq, nsq_to_kafka
from benchmarks.bridge.programs import produce, publish
from benchmarks.bridge.world import Rate, World, world
from benchmarks.harness.bars import Bar, judge
from benchmarks.harness.report import Report, tabulate
from benchmarks.harness.session import Session

_PROGRAM = [sys.executable, "-m", "benchmarks.bridge.programs"]
_ROUNDS, _QUICK_ROUNDS = 3, 2
_COUNT, _QUICK_COUNT = 150_000, 40_000
_LATENCY_SECONDS, _QUICK_LATENCY_SECONDS = 10.0, 2.0
_SLO = "0.99@50ms"
_PLAIN_PART = 3
"""The plain loop shows its rate with so small a part of the messages."""
_TIMES_IN = 5
"""The way back is that much faster: as many messages more, or its start would be most of it."""


def run(session: Session) -> Report:
    rounds = _QUICK_ROUNDS if session.quick else _ROUNDS
    count = _QUICK_COUNT if session.quick else _COUNT
    sizes = [100] if session.quick else [100, 1000]
    found: dict[int, dict[str, list[Rate]]] = {size: {} for size in sizes}
    session.plan(rounds * len(sizes) * 2)
    done = 0
    with world(session) as made:
        for turn in range(rounds):
            if turn and session.seconds_left < 25:
                break
            done += 1
            for size in sizes:
                session.step(f"NSQ -> Kafka, {size} B")
                for name, rate in _out(made, f"out-{turn}-{size}", count, size).items():
                    found[size].setdefault(name, []).append(rate)
                session.step(f"Kafka -> NSQ, {size} B")
                for name, rate in _in(made, f"in-{turn}-{size}", count, size).items():
                    found[size].setdefault(name, []).append(rate)
        latencies = _latencies(made, sizes, session)
    outcome = None
    if not session.quick:
        session.step("a minute of kill -9")
        outcome = Faults(session.folder / "faults").run(60)
    return _report(found, latencies, outcome, count, done, session.quick)


def _latencies(made: World, sizes: list[int], session: Session) -> dict[int, dict[str, Latency]]:
    """End to end, by size and way."""
    found: dict[int, dict[str, Latency]] = {size: {} for size in sizes}
    seconds = _QUICK_LATENCY_SECONDS if session.quick else _LATENCY_SECONDS
    for size in sizes:
        for arm in ("bridge",) if session.quick else ("bridge", "plain"):
            if session.seconds_left < 2 * seconds + 4:
                break
            session.step(f"end to end, {size} B")
            out, back = f"late-out-{arm}-{size}", f"late-in-{arm}-{size}"
            made.topic(out)
            made.plain.create(out, arm)
            command = _out_commands(made, out, out, arm)[arm]
            found[size][f"out {arm}"] = nsq_to_kafka(made, out, command, size, seconds)
            made.topic(back)
            made.gateway.create(back, "latency")
            command = _in_commands(made, back, back)[arm]
            found[size][f"in {arm}"] = kafka_to_nsq(made, back, command, size, seconds)
    return found


def _out(made: World, topic: str, count: int, size: int) -> dict[str, Rate]:
    """NSQ -> Kafka. Each program has a channel of its own with the same messages."""
    arms = ["bridge", "plain", "drain"]
    made.fill(topic, arms, count, size)
    for arm in (*arms, "produce"):
        made.topic(f"{topic}-{arm}")
    nsqd = made.plain.nsqd_tcp
    found = {}
    for arm in arms:
        command = [*_PROGRAM, "drain", nsqd, topic, "drain"]
        if arm != "drain":
            command = _out_commands(made, topic, f"{topic}-{arm}", arm)[arm]
        progress = partial(made.finished, topic, arm, count)
        wanted = count // _PLAIN_PART if arm == "plain" else count
        found[f"out {arm}"] = made.trial(command, progress, wanted)
        if arm != "drain":
            kept = made.records(f"{topic}-{arm}")
            assert kept >= wanted, f"{arm} has finished {wanted}, and Kafka has {kept}"
    seconds = produce(made.kafka.address, f"{topic}-produce", count, size)
    found["out produce"] = Rate(count / seconds, {})
    return found


def _out_commands(made: World, topic: str, target: str, channel: str) -> dict[str, list[str]]:
    nsqd, kafka = made.plain.nsqd_tcp, made.kafka.address
    route = {"from": f"nsq:{topic}/{channel}", "to": f"kafka:{target}", "nsqd": [nsqd]}
    return {
        "bridge": made.bridge_file(target, route | {"slo": _SLO}),
        "plain": [*_PROGRAM, "out", nsqd, topic, channel, kafka, target],
    }


def _in_commands(made: World, topic: str, target: str) -> dict[str, list[str]]:
    kafka, gateway = made.kafka.address, made.gateway.publish_to
    route = {"from": f"kafka:{topic}", "group": target, "to": f"nsq:{target}", "nsqd": [gateway]}
    return {
        "bridge": made.bridge_file(target, route | {"slo": _SLO}),
        "plain": [*_PROGRAM, "in", kafka, topic, gateway, target],
    }


def _in(made: World, topic: str, count: int, size: int) -> dict[str, Rate]:
    """Kafka -> NSQ, through the gateway. The same topic for each program, with its own group."""
    made.topic(topic)
    part, count = count // _PLAIN_PART, _TIMES_IN * count
    produce(made.kafka.address, topic, count, size, headers=False)
    found = {}
    for arm in ("bridge", "plain"):
        command = _in_commands(made, topic, f"{topic}-{arm}")[arm]
        made.gateway.create(f"{topic}-{arm}")
        progress = partial(made.published, f"{topic}-{arm}")
        found[f"in {arm}"] = made.trial(command, progress, part if arm == "plain" else count)
        made.gateway.empty(f"{topic}-{arm}")
    seconds = publish(made.gateway.publish_to, f"{topic}-mpub", count, size)
    found["in mpub"] = Rate(count / seconds, {})
    made.gateway.empty(f"{topic}-mpub")
    return found


_SHOWN = {
    "out bridge": "NSQ -> Kafka: bridge",
    "out plain": "plain loop (pynsq, confluent-kafka)",
    "out produce": "produce alone: same headers and callback",
    "out drain": "nsqd drained alone: batched FIN",
    "in bridge": "Kafka -> NSQ: bridge",
    "in plain": "plain loop",
    "in mpub": "MPUB alone through the same gateway",
}


def _report(
    found: dict[int, dict[str, list[Rate]]],
    latencies: dict[int, dict[str, Latency]],
    outcome: Outcome | None,
    count: int,
    rounds: int,
    quick: bool,
) -> Report:
    def spent(rates: list[Rate], of: Callable[[dict[str, float]], float]) -> float | None:
        known = [of(rate.cpu_us) for rate in rates if rate.cpu_us]
        return median(known) if known else None

    shown = tabulate(
        f"{count:,} messages, medians of {rounds}",
        [(text, size, arms[name]) for size, arms in found.items() for name, text in _SHOWN.items()],
        ("", lambda row: row[0]),
        ("body", lambda row: f"{row[1]} B"),
        ("messages/s", lambda row: median(rate.per_second for rate in row[2])),
        ("program us", lambda row: spent(row[2], lambda us: us["program"])),
        ("all us", lambda row: spent(row[2], lambda us: sum(us.values()))),
    )
    bars = _bars(found[100], quick) + _fault_bars(outcome)
    figures: dict[str, Any] = {
        str(size): {name: [asdict(rate) for rate in rates] for name, rates in arms.items()}
        for size, arms in found.items()
    }
    figures["latency"] = {
        str(size): {arm: asdict(each) for arm, each in arms.items()}
        for size, arms in latencies.items()
    }
    figures["faults"] = asdict(outcome) if outcome else None
    settings = {"messages": count, "rounds": rounds, "sizes": list(found)}
    notes = [
        "what nsqd has delivered without a FIN it keeps in memory only: an nsqd is killed while it "
        "has no such message, and its topic takes others"
    ]
    shown_too = [_late(latencies)] + ([_killed(outcome)] if outcome else [])
    return Report(settings, figures, bars, [shown, *shown_too], notes)


def _late(latencies: dict[int, dict[str, Latency]]) -> Table:
    return tabulate(
        f"end to end at {RATE:,} messages/s, from the intended send time to the reader",
        [(size, *each) for size, arms in latencies.items() for each in arms.items()],
        ("", lambda row: _SHOWN[row[1]]),
        ("body", lambda row: f"{row[0]} B"),
        ("messages", lambda row: row[2].count),
        ("p50 ms", lambda row: f"{row[2].p50_ms:.2f}"),
        ("p99 ms", lambda row: f"{row[2].p99_ms:.2f}"),
        ("missing", lambda row: row[2].missing),
    )


def _killed(outcome: Outcome) -> Table:
    return tabulate(
        "a minute of kill -9 at 2,000 messages/s",
        [outcome],
        ("kills", lambda it: ", ".join(f"{name} {count}" for name, count in it.kills.items())),
        ("acknowledged", lambda it: it.acknowledged),
        ("lost in Kafka", lambda it: it.lost_in_kafka),
        ("lost in NSQ", lambda it: it.lost_in_nsq),
        ("twice in Kafka", lambda it: it.twice_in_kafka),
        ("twice in NSQ", lambda it: it.twice_in_nsq),
        ("out of order", lambda it: it.out_of_order),
    )


def _fault_bars(outcome: Outcome | None) -> list[Bar]:
    doubt = "" if outcome else "it takes minutes"
    lost = [outcome.lost_in_kafka + outcome.lost_in_nsq] if outcome else []
    broken = [outcome.out_of_order] if outcome else []
    return [
        judge("lost in a minute of kill -9", lost, at_most=0, doubt=doubt),
        judge("out of order there", broken, at_most=0, doubt=doubt),
    ]


def _bars(arms: dict[str, list[Rate]], quick: bool) -> list[Bar]:
    def ratios(one: str, *others: str) -> list[float]:
        """Round by round, over the slowest of the others."""
        rows = zip(arms[one], *(arms[other] for other in others), strict=True)
        return [row[0].per_second / min(each.per_second for each in row[1:]) for row in rows]

    def bar(name: str, at_least: float, one: str, *others: str) -> Bar:
        repeats = _QUICK_ROUNDS if quick else 1
        return judge(name, ratios(one, *others), at_least=at_least, quick=quick, repeats=repeats)

    return [
        bar("NSQ -> Kafka over plain loop", 3.0, "out bridge", "out plain"),
        bar(
            "NSQ -> Kafka over the slower side alone", 0.4, "out bridge", "out produce", "out drain"
        ),
        bar("Kafka -> NSQ over plain loop", 3.0, "in bridge", "in plain"),
        bar("Kafka -> NSQ over MPUB alone", 0.5, "in bridge", "in mpub"),
    ]
