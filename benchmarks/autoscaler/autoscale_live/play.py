"""One arm under one workload: on Kafka, and in the simulator."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.autoscaler.autoscale_live.arms import MOST, Arm, Fixed, Workload
from benchmarks.autoscaler.autoscale_live.assignments import AsSeen, Assignments
from benchmarks.autoscaler.autoscale_live.workers import BATCH, command
from srtm.autoscaler.live.choice import make_policy
from srtm.autoscaler.simulator.arrivals import Arrivals
from srtm.autoscaler.simulator.grouping import Parts
from srtm.autoscaler.simulator.run import simulate
from srtm.autoscaler.simulator.setting import Setting
from srtm.consumer.file import GroupTable
from srtm.http.client import get_json
from srtm.kafka.server import kafka
from srtm.text.address import free_addresses
from srtm.text.errors import UnavailableError

_HEARTBEAT_MS = 500
_JOIN_SECONDS = 60.0
_DRAIN_SECONDS = 60.0
_BROKER = {
    "group.consumer.heartbeat.interval.ms": str(_HEARTBEAT_MS),
    "group.consumer.min.heartbeat.interval.ms": str(_HEARTBEAT_MS),
    # Tests want a broker that is missed soon; here it would be put out where cores are short.
    "broker.session.timeout.ms": "30000",
    "broker.heartbeat.interval.ms": "2000",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """sla: share of events within the target, of all that were sent; lost: never served, within
    a minute of the last one; startup, rebalance: as learnt live, seconds; parts: as Kafka shared
    them out, where it did"""

    sla: float
    replica_minutes: float
    lost: int
    startup: float
    rebalance: float
    parts: tuple[Parts, ...] = ()


def predict(arm: Arm, workload: Workload, arrivals: Arrivals, live: Outcome) -> Outcome:
    """The simulator's, with the phases that the live run had, and Kafka's own assignments."""
    setting = Setting(
        workload.slo,
        mu=workload.mu,
        rebalance_seconds=live.rebalance,
        handover=arm.simulated,
        startup_seconds=live.startup,
        heartbeat_seconds=_HEARTBEAT_MS / 1e3,
        max_poll=BATCH,
        initial=1 if arm.policy else workload.fixed(arrivals),
    )
    group = GroupTable.model_validate({**_group(arm, workload, 1, MOST)})
    policy: Any = Fixed(workload.fixed(arrivals))
    if arm.policy:
        policy = make_policy(arm.policy, group, workload.mu)
    if arm.handover == "kip-848":
        policy = AsSeen(policy, live.parts)
    run = simulate(policy, arrivals, setting)
    return Outcome(run.sla_share, run.replica_minutes, run.unserved, live.startup, live.rebalance)


def _group(arm: Arm, workload: Workload, least: int, most: int) -> dict[str, Any]:
    target = round(1e3 * workload.slo.target_seconds)
    return {
        "topic": "events",
        "id": "workers",
        "slo": f"{workload.slo.percentile}@{target}ms",
        "policy": arm.policy or "linear",
        "handover": arm.handover,
        "mu": workload.mu,
        "min": least,
        "max": most,
    }


def play(arm: Arm, workload: Workload, arrivals: Arrivals, folder: Path) -> Outcome:
    """Raises UnavailableError, TimeoutError."""
    folder.mkdir(parents=True)
    count = workload.fixed(arrivals)
    with ExitStack() as stack:
        server = stack.enter_context(kafka(folder / "kafka", _BROKER))
        admin = AdminClient({"bootstrap.servers": server.address, "log_level": 0})
        new = NewTopic("events", len(arrivals.times), 1)
        admin.create_topics([new])["events"].result(20)
        kafkas = stack.enter_context(
            Assignments(server.address, "workers", len(arrivals.times)).watching()
        )
        if arm.plain:
            worker = command(folder, True, workload.mu, server.address)
            for _ in range(count):
                _start(stack, worker, folder)
            _wait(lambda: kafkas.is_whole(count), "all have joined")
            kafkas.begin()
            _produce(server.address, arrivals)
            _drain(folder, arrivals)
            minutes = count * arrivals.seconds / 60
            served = _served(folder, arrivals, workload, minutes)
            return Outcome(*served, 0.0, 0.0, tuple(kafkas.seen))
        least, most = (1, MOST) if arm.policy else (count, count)
        address = str(free_addresses(1)[0])
        file = _write(folder, arm, workload, server.address, address, least, most)
        run = (sys.executable, "-m", "srtm", "autoscale", "run", str(file))
        stack.callback(_stop_group, file)
        controller = _start(stack, run, folder)

        def stats() -> dict[str, Any]:
            if controller.poll() is not None:
                raise UnavailableError((folder / "run.log").read_text()[-500:])
            try:
                found: dict[str, Any] = get_json(address, "/stats")
            except UnavailableError:
                return {}
            return found

        _wait(lambda: stats().get("consumers") == least, f"{least} consumers are there")
        _wait(lambda: stats().get("state") == "sentinel", "nothing is under way")
        kafkas.begin()
        before = float(stats()["replica_seconds"])
        _produce(server.address, arrivals)
        after = stats()
        minutes = (float(after["replica_seconds"]) - before) / 60
        _drain(folder, arrivals)
        phases = (float(after["startup_seconds"]), float(after["rebalance_seconds"]))
        served = _served(folder, arrivals, workload, minutes)
        return Outcome(*served, *phases, tuple(kafkas.seen))


def _start(stack: ExitStack, argv: tuple[str, ...], folder: Path) -> subprocess.Popen[bytes]:
    log = stack.enter_context((folder / "run.log").open("ab"))
    child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def end() -> None:
        child.terminate()
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()

    stack.callback(end)
    return child


def _stop_group(file: Path) -> None:
    """Stop the group after its controller has ended."""
    stop = (sys.executable, "-m", "srtm", "autoscale", "stop", str(file))
    subprocess.run(stop, capture_output=True, timeout=60, check=False)


def _wait(there: Callable[[], bool], what: str, seconds: float = _JOIN_SECONDS) -> None:
    until = time.monotonic() + seconds
    while not there():
        if time.monotonic() > until:
            raise TimeoutError(f"not within {seconds:g} s: {what}")
        time.sleep(0.1)


def _write(
    folder: Path, arm: Arm, workload: Workload, kafka: str, address: str, least: int, most: int
) -> Path:
    file = folder / "group.toml"
    worker = command(folder, False, workload.mu, str(file))
    tables = {
        "kafka": {"bootstrap-servers": kafka},
        "group": _group(arm, workload, least, most),
        "consumer": {"process": "given:here", "batch": BATCH, "wait": "5ms"},
        "executor": {"command": list(worker), "log-folder": "logs"},
        "controller": {"http-address": address},
    }
    lines = []
    for name, table in tables.items():
        lines += [f"[{name}]", *(f"{key} = {json.dumps(each)}" for key, each in table.items())]
    file.write_text("\n".join(lines) + "\n")
    return file


def _produce(address: str, arrivals: Arrivals) -> None:
    """Open loop: each event says when it was to be sent."""
    partitions = np.concatenate(
        [np.full(len(times), p) for p, times in enumerate(arrivals.times)]
    ).astype(int)
    times = np.concatenate(arrivals.times)
    order = times.argsort(kind="stable")
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0})
    begun = time.clock_gettime(time.CLOCK_BOOTTIME)
    for number in order:
        due = begun + float(times[number])
        wait = due - time.clock_gettime(time.CLOCK_BOOTTIME)
        if wait > 0:
            producer.poll(0)
            time.sleep(wait)
        body = f"{number} {due:.6f}".encode()
        producer.produce("events", body, partition=int(partitions[number]))
    left_over = producer.flush(_DRAIN_SECONDS)
    if left_over:
        raise TimeoutError(f"Kafka did not take {left_over} events within {_DRAIN_SECONDS:g} s")
    left = begun + arrivals.seconds - time.clock_gettime(time.CLOCK_BOOTTIME)
    time.sleep(max(left, 0.0))


def _done(folder: Path) -> dict[int, float]:
    """Event -> seconds that it stayed; of one that came twice the first time."""
    found: dict[int, float] = {}
    for file in folder.glob("done-*.jsonl"):
        for line in file.read_text().splitlines():
            body, done = json.loads(line)
            number, due = body.split()
            found[int(number)] = min(done - float(due), found.get(int(number), np.inf))
    return found


def _drain(folder: Path, arrivals: Arrivals) -> None:
    until = time.monotonic() + _DRAIN_SECONDS
    while len(_done(folder)) < arrivals.events and time.monotonic() < until:
        time.sleep(0.5)


def _served(
    folder: Path, arrivals: Arrivals, workload: Workload, minutes: float
) -> tuple[float, float, int]:
    done = _done(folder)
    in_time = sum(stayed <= workload.slo.target_seconds for stayed in done.values())
    return in_time / arrivals.events, minutes, arrivals.events - len(done)
