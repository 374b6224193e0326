"""Real groups under the ramp of ICCBDC section 4.1 and the crowds of Li-Ku, beside the simulator.

Time is compressed to what two cores carry: seconds of the workload are left out, start-up and
hand-overs take what they take. Each event waits 1/mu in its consumer, so what is measured is the
group, not the machine. Latency counts from when an event was to be sent. The simulator is given the
same arrivals, start-up and hand-over times as the live run learnt them, and what Kafka assigned
where it is Kafka that assigns; whether it then says the same is judged. A share group is simulated
as a pool: its consumers take records in turns. Its topic has one partition, as Kafka's assignor
gives consumers whole partitions while there are as many of them, whatever they bring. Its consumers
are also killed, or frozen for longer than a lock, which no simulation is compared with.
"""

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Producer

from benchmarks.autoscaler.live.arms import (
    ARMS,
    KAFKAS_OWN,
    LOAD_AWARE,
    MOST,
    WORKLOADS,
    Arm,
    Fixed,
    Workload,
)
from benchmarks.autoscaler.live.assignments import AsSeen, Assignments
from benchmarks.autoscaler.live.controlled import controlled
from benchmarks.autoscaler.live.troubles import troubled
from benchmarks.autoscaler.live.workers import command, read_batches, write_group
from benchmarks.harness.bars import Bar, judge
from benchmarks.harness.kafka import TOPIC, events_kafka
from benchmarks.harness.machine import load_average
from benchmarks.harness.report import Report, number, tabulate
from benchmarks.harness.session import Session
from benchmarks.harness.world import child, until
from srtm.autoscaler.live.bounds import Within
from srtm.autoscaler.live.choice import make_policy, make_pool_policy
from srtm.autoscaler.pool.simulated import simulate_pool
from srtm.autoscaler.simulator.arrivals import Arrivals
from srtm.autoscaler.simulator.grouping import Parts
from srtm.autoscaler.simulator.run import simulate
from srtm.autoscaler.simulator.setting import Setting
from srtm.consumer.file import GroupTable
from srtm.consumer.share_file import ShareTable
from srtm.text.address import free_addresses
from srtm.text.errors import UnavailableError

_COMPRESS, _QUICK_COMPRESS = 5, 40
_SEEDS = (1, 2, 3)
_POINTS = 3.0
_PERCENT = 10.0
_HEARTBEAT_MS = 500
_PLAIN_MS = ("3000", "45000")
"""heartbeat and session timeout: librdkafka's defaults"""
_BATCH = 50
"""events in hand at most"""
_JOIN_SECONDS = 60.0
_DRAIN_SECONDS = 60.0
_END_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """sla: share of events within the target, of all that were sent; lost: never served, within
    a minute of the last one; startup, rebalance: as learnt live, seconds; parts: as Kafka shared
    them out, where it did; twice: events that were served more than once"""

    sla: float
    replica_minutes: float
    lost: int
    startup: float
    rebalance: float
    parts: tuple[Parts, ...] = ()
    twice: int = 0

    def document(self) -> dict[str, Any]:
        return {
            "sla_percent": 100 * self.sla,
            "replica_minutes": self.replica_minutes,
            "lost": self.lost,
            "twice": self.twice,
            "startup_seconds": self.startup,
            "rebalance_seconds": self.rebalance,
            "parts": self.parts,
        }


def run(session: Session) -> Report:
    quick = session.quick
    cases = [
        (workload, arm, seed)
        for seed in _SEEDS
        for workload in WORKLOADS
        for arm in ARMS
        if arm.only in ("", workload.name)
    ][: 1 if quick else None]
    session.plan(len(cases))
    figures: list[dict[str, Any]] = []
    until_at = time.monotonic() + 60 * (session.minutes or math.inf)
    for index, (workload, arm, seed) in enumerate(cases):
        if figures and seed != figures[-1]["seed"] and time.monotonic() > until_at:
            break
        session.step(f"{workload.name}: {arm.name}")
        arrivals = workload.arrivals(seed, _QUICK_COMPRESS if quick else _COMPRESS)
        figures.append(played(arm, workload, arrivals, session.folder / f"run-{index}", seed))
    agree = [row["agrees"] for row in figures if row["agrees"] is not None]
    share = sum(agree) / len(agree)
    lost = sum(row["live"]["lost"] for row in figures)
    untroubled = [row["live"]["twice"] for row in figures if row["arm"] == "srtm, share group"]
    doubt = "one short run" if quick else ""
    return Report(
        settings={
            "seeds": sorted({row["seed"] for row in figures}),
            "compress": _QUICK_COMPRESS if quick else _COMPRESS,
            "most_consumers": MOST,
            "within": {"sla_points": _POINTS, "replica_minutes_percent": _PERCENT},
        },
        figures={"runs": figures},
        bars=[
            judge("runs that the simulator foretells", [share], at_least=0.8, doubt=doubt),
            judge("events lost", [float(lost)], at_most=0.0),
            judge(
                "share group: events served twice, nobody killed or frozen",
                [float(sum(untroubled))] if untroubled else [],
                at_most=0.0,
            ),
            *iccbdc_bars(figures),
        ],
        tables=[
            tabulate(
                "live, and as simulated",
                figures,
                ("", lambda row: f"{row['workload']}: {row['arm']}"),
                ("seed", lambda row: row["seed"]),
                ("SLA %", lambda row: number(row["live"]["sla_percent"], 4)),
                ("simulated", lambda row: number(row["simulated"]["sla_percent"], 4)),
                ("replica-minutes", lambda row: row["live"]["replica_minutes"]),
                ("simulated", lambda row: row["simulated"]["replica_minutes"]),
                ("lost", lambda row: row["live"]["lost"]),
                ("twice", lambda row: row["live"]["twice"]),
                ("start-up s", lambda row: row["live"]["startup_seconds"]),
                ("t_reb s", lambda row: row["live"]["rebalance_seconds"]),
            )
        ],
        notes=[
            "a second of the table is a second of the clock; the workload's own ran faster",
            "replica-minutes are billed from the launch on; a fixed group has them by definition",
        ],
    )


def played(
    arm: Arm, workload: Workload, arrivals: Arrivals, folder: Path, seed: int
) -> dict[str, Any]:
    """One live run beside the simulator's, for JSON. agrees: None where consumers are killed or
    frozen, which the simulator does not know. Raises UnavailableError."""
    load = load_average()
    live = play(arm, workload, arrivals, folder, seed)
    predicted = predict(arm, workload, arrivals, live)
    later = predict(arm, workload, arrivals, live, lag_phase=0.5)
    return {
        "workload": workload.name,
        "arm": arm.name,
        "seed": seed,
        "events": arrivals.events,
        "live": live.document(),
        "simulated": predicted.document(),
        "simulated_half_a_second_later": later.document(),
        "agrees": None if arm.trouble else agrees(live, predicted),
        "load_average": load,
    }


def iccbdc_bars(figures: Sequence[Mapping[str, Any]]) -> list[Bar]:
    """ICCBDC 4.1: how much partitions by load gain, by seed."""
    shares = {(row["arm"], row["seed"]): row["live"]["sla_percent"] for row in figures}
    gains = [
        sla - shares[KAFKAS_OWN, seed]
        for (arm, seed), sla in shares.items()
        if arm == LOAD_AWARE and (KAFKAS_OWN, seed) in shares
    ]
    name = "ICCBDC 4.1: points of SLA that partitions by load gain over Kafka's own"
    return [judge(name, gains, at_least=0.0)] if gains else []


def agrees(live: Outcome, predicted: Outcome) -> bool:
    """Within 3 points of SLA and 10 % of replica-minutes?"""
    points = 100 * abs(live.sla - predicted.sla)
    percent = 100 * abs(live.replica_minutes / max(predicted.replica_minutes, 1e-9) - 1)
    return bool(points <= _POINTS and percent <= _PERCENT)


def predict(
    arm: Arm, workload: Workload, arrivals: Arrivals, live: Outcome, lag_phase: float = 0.1
) -> Outcome:
    """The simulator's, with the phases that the live run had, and Kafka's own assignments.
    lag_phase: when in a second it looks"""
    setting = Setting(
        workload.slo,
        mu=workload.mu,
        rebalance_seconds=live.rebalance,
        handover=arm.simulated,
        startup_seconds=live.startup,
        heartbeat_seconds=_HEARTBEAT_MS / 1e3,
        max_poll=_BATCH,
        initial=1 if arm.policy else workload.fixed(arrivals),
        lag_phase=lag_phase,
    )
    policy: Any = Fixed(workload.fixed(arrivals))
    if arm.shares:
        shared = ShareTable.model_validate(
            {"topic": TOPIC, "id": "workers", **_group(arm, workload, 1, MOST)}
        )
        policy = make_pool_policy(arm.policy, shared, workload.mu)
        times = np.sort(np.concatenate(arrivals.times))
        run = simulate_pool(Within(policy, 1, MOST), times, arrivals.seconds, setting, MOST)
        return Outcome(run.sla_share, run.replica_minutes, run.unserved, live.startup, 0.0)
    if arm.policy:
        group = GroupTable.model_validate(
            {"topic": TOPIC, "id": "workers", **_group(arm, workload, 1, MOST)}
        )
        policy = make_policy(arm.policy, group, workload.mu)
    if arm.handover == "kip-848":
        policy = AsSeen(policy, live.parts)
    run = simulate(policy, arrivals, setting)
    return Outcome(run.sla_share, run.replica_minutes, run.unserved, live.startup, live.rebalance)


def _group(arm: Arm, workload: Workload, least: int, most: int) -> dict[str, Any]:
    target = round(1e3 * workload.slo.target_seconds)
    return ({} if arm.shares else {"handover": arm.handover}) | {
        "slo": f"{workload.slo.percentile}@{target}ms",
        "policy": arm.policy or "linear",
        "mu": workload.mu,
        "min": least,
        "max": most,
    }


def play(arm: Arm, workload: Workload, arrivals: Arrivals, folder: Path, seed: int) -> Outcome:
    """Raises UnavailableError."""
    folder.mkdir(parents=True)
    count, partitions = workload.fixed(arrivals), 1 if arm.shares else len(arrivals.times)
    each_event = 1 / workload.mu
    log = folder / "run.log"
    with ExitStack() as stack:
        server = stack.enter_context(events_kafka(folder / "kafka", partitions, _HEARTBEAT_MS))
        watched = Assignments(server.address, "workers", partitions)
        kafkas = stack.enter_context(watched.watching())
        if arm.plain:
            how = (server.address, "cooperative-sticky", *_PLAIN_MS, "stays")
            worker = command(folder, "confluent-kafka", 0.0, each_event, *how)
            for _ in range(count):
                stack.enter_context(child(worker, log, _END_SECONDS))
            until(lambda: kafkas.is_whole(count), "all have joined", _JOIN_SECONDS)
            kafkas.begin()
            _produce(server.address, arrivals, partitions)
            sla, lost, twice = _served(folder, arrivals, workload)
            minutes = count * arrivals.seconds / 60
            return Outcome(sla, minutes, lost, 0.0, 0.0, tuple(kafkas.seen), twice)
        least, most = (1, MOST) if arm.policy else (count, count)
        address = str(free_addresses(1)[0])
        file = write_group(
            folder,
            server.address,
            _group(arm, workload, least, most),
            {"batch": workload.share_batch} if arm.shares else {"batch": _BATCH, "wait": "5ms"},
            (0.0, each_event),
            {"http-address": address},
            "share" if arm.shares else "consumer",
        )
        group = stack.enter_context(controlled(file, address, log))
        group.settle(least)
        kafkas.begin()
        before = float(group.stats()["replica_seconds"])
        with troubled(group.process.pid, arm.trouble, seed):
            _produce(server.address, arrivals, partitions)
        after = group.stats()
        minutes = (float(after["replica_seconds"]) - before) / 60
        phases = (float(after["startup_seconds"]), float(after.get("rebalance_seconds", 0.0)))
        sla, lost, twice = _served(folder, arrivals, workload)
        return Outcome(sla, minutes, lost, *phases, tuple(kafkas.seen), twice)


def _produce(address: str, arrivals: Arrivals, count: int) -> None:
    """Open loop: each event says when it was to be sent. count: partitions of the topic"""
    partitions = np.concatenate(
        [np.full(len(times), p % count) for p, times in enumerate(arrivals.times)]
    ).astype(int)
    times = np.concatenate(arrivals.times)
    order = times.argsort(kind="stable")
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0})
    begun = time.clock_gettime(time.CLOCK_BOOTTIME)
    for event in order:
        due = begun + float(times[event])
        wait = due - time.clock_gettime(time.CLOCK_BOOTTIME)
        if wait > 0:
            producer.poll(0)
            time.sleep(wait)
        producer.produce(TOPIC, f"{event} {due:.6f}".encode(), partition=int(partitions[event]))
    left_over = producer.flush(_DRAIN_SECONDS)
    if left_over:
        raise UnavailableError(f"Kafka did not take {left_over} events in {_DRAIN_SECONDS:g} s")
    left = begun + arrivals.seconds - time.clock_gettime(time.CLOCK_BOOTTIME)
    time.sleep(max(left, 0.0))


def _served(folder: Path, arrivals: Arrivals, workload: Workload) -> tuple[float, int, int]:
    """The share of the events within the target, how many were never served, within a minute, and
    how many more than once. Of an event that came twice the first time counts."""
    last = time.monotonic() + _DRAIN_SECONDS
    while True:
        stayed: dict[int, float] = {}
        count = 0
        for body, done in (each for batch in read_batches(folder) for each in batch.events):
            event, due = body.split()
            stayed[int(event)] = min(done - float(due), stayed.get(int(event), np.inf))
            count += 1
        if len(stayed) >= arrivals.events or time.monotonic() > last:
            in_time = sum(each <= workload.slo.target_seconds for each in stayed.values())
            lost = arrivals.events - len(stayed)
            return in_time / arrivals.events, lost, count - len(stayed)
        time.sleep(0.5)
