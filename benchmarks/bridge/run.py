"""Both ways of the bridge: messages/s and CPU, beside a plain loop and the limits of both sides."""

import sys
from dataclasses import asdict
from functools import partial
from statistics import median
from typing import Any

from rich.table import Table

from benchmarks.bridge.faults import Faults, Outcome
from benchmarks.bridge.programs import produce, publish
from benchmarks.bridge.world import Rate, World, world
from benchmarks.harness.bars import Bar, judge
from benchmarks.harness.report import Report, number, table
from benchmarks.harness.session import Session

_PROGRAM = [sys.executable, "-m", "benchmarks.bridge.programs"]
_ROUNDS, _QUICK_ROUNDS = 3, 2
_COUNT, _QUICK_COUNT = 300_000, 60_000
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
            if turn and session.seconds_left < 18:
                break
            done += 1
            for size in sizes:
                session.step(f"NSQ -> Kafka, {size} B")
                for name, rate in _out(made, f"out-{turn}-{size}", count, size).items():
                    found[size].setdefault(name, []).append(rate)
                session.step(f"Kafka -> NSQ, {size} B")
                for name, rate in _in(made, f"in-{turn}-{size}", count, size).items():
                    found[size].setdefault(name, []).append(rate)
    outcomes = {}
    if not session.quick:
        for name, first_too in (("all but the first nsqd", False), ("the first nsqd, too", True)):
            session.step(f"a minute of kill -9: {name}")
            outcomes[name] = Faults(session.folder / f"faults-{first_too}").run(60, first_too)
    return _report(found, outcomes, count, done, session.quick)


def _out(made: World, topic: str, count: int, size: int) -> dict[str, Rate]:
    """NSQ -> Kafka. Each program has a channel of its own with the same messages."""
    arms = ["bridge", "plain", "drain"]
    made.fill(topic, arms, count, size)
    for arm in (*arms, "produce"):
        made.topic(f"{topic}-{arm}")
    nsqd, kafka = made.plain.nsqd_tcp, made.kafka.address
    commands = {
        "bridge": made.bridge_file(
            f"{topic}-bridge",
            {"from": f"nsq:{topic}/bridge", "to": f"kafka:{topic}-bridge", "nsqd": [nsqd]},
        ),
        "plain": [*_PROGRAM, "out", nsqd, topic, "plain", kafka, f"{topic}-plain"],
        "drain": [*_PROGRAM, "drain", nsqd, topic, "drain"],
    }
    found = {}
    for arm in arms:
        progress = partial(_finished, made, topic, arm, count)
        found[f"out {arm}"] = made.trial(commands[arm], progress, count)
        if arm != "drain":
            kept = made.records(f"{topic}-{arm}")
            assert kept >= count, f"{arm} has finished {count}, and Kafka has {kept}"
    seconds = produce(kafka, f"{topic}-produce", count, size)
    found["out produce"] = Rate(count / seconds, {})
    return found


def _finished(made: World, topic: str, channel: str, count: int) -> int:
    return count - made.left(topic, channel)


def _in(made: World, topic: str, count: int, size: int) -> dict[str, Rate]:
    """Kafka -> NSQ, through the gateway. The same topic for each program, with its own group. The
    plain loop needs a part of it only to show its rate."""
    made.topic(topic)
    part, count = count, _TIMES_IN * count
    produce(made.kafka.address, topic, count, size, headers=False)
    gateway, kafka = made.gateway.publish_to, made.kafka.address
    commands = {
        "bridge": made.bridge_file(
            f"{topic}-bridge",
            {
                "from": f"kafka:{topic}",
                "group": f"{topic}-bridge",
                "to": f"nsq:{topic}-bridge",
                "nsqd": [gateway],
            },
        ),
        "plain": [*_PROGRAM, "in", kafka, topic, gateway, f"{topic}-plain"],
    }
    found = {}
    for arm, command in commands.items():
        made.gateway.create(f"{topic}-{arm}")
        progress = partial(made.published, f"{topic}-{arm}")
        found[f"in {arm}"] = made.trial(command, progress, part if arm == "plain" else count)
        made.gateway.empty(f"{topic}-{arm}")
    seconds = publish(gateway, f"{topic}-mpub", count, size)
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
    outcomes: dict[str, Outcome],
    count: int,
    rounds: int,
    quick: bool,
) -> Report:
    shown = table(
        f"{count:,} messages, medians of {rounds}", "", "body", "messages/s", "program us", "all us"
    )
    for size, arms in found.items():
        for name, text in _SHOWN.items():
            rates = arms[name]
            spent = [rate.cpu_us for rate in rates if rate.cpu_us]
            shown.add_row(
                text,
                f"{size} B",
                number(median(rate.per_second for rate in rates)),
                number(median(each["program"] for each in spent) if spent else None),
                number(median(sum(each.values()) for each in spent) if spent else None),
            )
    bars = _bars(found[100], quick) + _fault_bars(outcomes)
    figures: dict[str, Any] = {
        str(size): {
            name: [{"per_second": rate.per_second, "cpu_us": rate.cpu_us} for rate in rates]
            for name, rates in arms.items()
        }
        for size, arms in found.items()
    }
    figures["faults"] = {name: asdict(each) for name, each in outcomes.items()}
    settings = {"messages": count, "rounds": rounds, "sizes": list(found)}
    notes = [
        "what nsqd has delivered without a FIN it keeps in memory only: its own kill -9 forgets it"
    ]
    return Report(settings, figures, bars, [shown, _killed(outcomes)], notes)


def _killed(outcomes: dict[str, Outcome]) -> Table:
    shown = table(
        "a minute of kill -9 at 2,000 messages/s",
        "killed",
        "kills",
        "acknowledged",
        "lost in Kafka",
        "lost in NSQ",
        "twice in Kafka",
        "twice in NSQ",
        "out of order",
    )
    for name, each in outcomes.items():
        shown.add_row(
            name,
            str(sum(each.kills.values())),
            f"{each.acknowledged:,}",
            str(each.lost_in_kafka),
            str(each.lost_in_nsq),
            str(each.twice_in_kafka),
            str(each.twice_in_nsq),
            str(each.out_of_order),
        )
    return shown


def _fault_bars(outcomes: dict[str, Outcome]) -> list[Bar]:
    outcome = outcomes.get("all but the first nsqd")
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

    return [
        judge(
            "NSQ -> Kafka over plain loop",
            ratios("out bridge", "out plain"),
            at_least=3.0,
            quick=quick,
        ),
        judge(
            "NSQ -> Kafka over the slower side alone",
            ratios("out bridge", "out produce", "out drain"),
            at_least=0.4,
            quick=quick,
        ),
        judge(
            "Kafka -> NSQ over plain loop",
            ratios("in bridge", "in plain"),
            at_least=3.0,
            quick=quick,
        ),
        judge(
            "Kafka -> NSQ over MPUB alone",
            ratios("in bridge", "in mpub"),
            at_least=0.5,
            quick=quick,
        ),
    ]
