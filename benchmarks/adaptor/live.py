"""A swap of traffic between two real brokers under load, by each policy at once.

One topic for each policy, with one contract and the same messages at the same instants through the
same two gateways: what the machine does to one it does to all. Token waits are those that the
gateways recorded. The simulator is given the arrivals that were recorded, and says what it would
have made of them.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.adaptor.scenarios import LOAD, Scenario, steps
from benchmarks.gateway.record import Recorder, record_of
from benchmarks.harness.bars import Bar, judge
from benchmarks.harness.report import number, table
from benchmarks.harness.session import Session
from benchmarks.harness.world import brokers_up, distributor_of, until
from distributor.remote import Remote
from srtm.audit.folder import read_sessions
from srtm.audit.judge import judge as audited
from srtm.deployment.admin import topics_of
from srtm.deployment.document import DeployedBroker
from srtm.limits.queueing import Floats
from srtm.nsq.commands import pub
from srtm.nsq.connection import Connection
from tb_adaptor.share import Part
from tb_adaptor.simulator.judge import nearest_rank
from tb_adaptor.simulator.run import Arrivals, simulate

CONTRACT = Part(500.0, 25.0)
SHIFT_SECONDS, SECONDS = 20.0, 45.0
POLICIES = {"srtm": "srtm", "paper": "paper", "rate-only": "rate-only", "static": "off"}
"""as the simulator names it -> as the distributor does"""
SWAP = Scenario(
    "swap, live",
    {
        "b1": steps((0, 0.85), (SHIFT_SECONDS, 0.15)),
        "b2": steps((0, 0.15), (SHIFT_SECONDS, 0.85)),
    },
    (SHIFT_SECONDS,),
    CONTRACT,
)
_BODY = bytes(100)
_READ_BYTES = 1 << 16
_RECORD_SECONDS = 10.0
_READY_SECONDS = 30.0
_SHOWN = (0, 1, 2, 3, 5, 8, 12, 18, 24)
"""seconds since the shift, in the table"""


@dataclass(frozen=True)
class Live:
    """One policy. p99 of the token wait in ms: over the whole run, and by the second of arrival;
    simulated: of the recorded arrivals. excess: messages over the contract by the admission logs,
    surely: beyond what clocks and rounding may feign."""

    policy: str
    p99_ms: float
    by_second: list[float]
    simulated_p99_ms: float
    simulated_by_second: list[float]
    messages: int
    excess: float
    surely_exceeded: bool
    rescales: int


Recorded = dict[str, tuple[Floats, Floats]]
"""broker -> arrivals and admissions, in seconds since the first was to be sent"""


def live(session: Session, seed: int = 0) -> list[Live]:
    """What each policy did on the real brokers; all of them ran side by side."""
    logs = session.folder / "admissions"
    folder, names = session.folder / "swap", list(SWAP.brokers)
    came: dict[str, Recorded] = {topic: {} for topic in POLICIES}
    with brokers_up(folder, names, capacity=100_000, admission_log=str(logs)) as deployment:
        remote, brokers = distributor_of(deployment), deployment.brokers
        _place(remote)
        _wait_for_shares(brokers)
        recorders = {
            (topic, broker.name): Recorder(broker.admin_socket, topic)
            for topic in POLICIES
            for broker in brokers
        }
        began_at = asyncio.run(_send(brokers, list(recorders.values()), seed))
        for (topic, name), recorder in recorders.items():
            record = record_of(recorder.documents, began_at)
            record.waits()  # raises where it is not complete
            came[topic][name] = record.arrivals, record.admissions
        rescales = {
            topic: len(remote.call("GET", "topics", topic, "adaptation")["rescales"])
            for topic in POLICIES
        }
    return [_judged(name, came[name], rescales[name], logs) for name in POLICIES]


def _place(remote: Remote) -> None:
    """Place each topic evenly over both brokers."""
    for topic, policy in POLICIES.items():
        body: dict[str, Any] = {"rate": CONTRACT.rate, "burst": CONTRACT.burst}
        remote.call("PUT", "topics", topic, body=body)
        remote.call("PUT", "topics", topic, "adaptation", body={"policy": policy})
        rows = [{"id": f"p{n}", "rate": LOAD * CONTRACT.rate / 2} for n in range(2)]
        remote.call("POST", "topics", topic, "publishers", body={"publishers": rows})
        remote.call("POST", "topics", topic, "placements", body={"policy": "lb"})


def _wait_for_shares(brokers: Sequence[DeployedBroker]) -> None:
    """Wait until each bucket is full with half of the contract. Raises SrtmError."""
    half = CONTRACT.rate / len(brokers), CONTRACT.burst / len(brokers)

    def are_full() -> bool:
        rows = [topics_of(broker).get(topic, {}) for broker in brokers for topic in POLICIES]
        return all((row.get("rate"), row.get("tokens")) == half for row in rows)

    until(are_full, "live: brokers have their shares of the topics", _READY_SECONDS)


async def _send(brokers: Sequence[DeployedBroker], recorders: Sequence[Recorder], seed: int) -> int:
    """When the first was due, in ns of the monotonic clock. Each instant's messages go to all
    topics of its broker."""
    arrivals = SWAP.arrivals(seed)
    due = sorted(
        chain.from_iterable(
            ((at, name) for at in each.times.tolist() if at < SECONDS)
            for name, each in arrivals.items()
        )
    )
    commands = {topic: pub(topic.encode(), _BODY) for topic in POLICIES}
    async with AsyncExitStack() as stack:
        writers = {
            (broker.name, topic): await _connected(broker, stack)
            for broker in brokers
            for topic in POLICIES
        }
        recording = asyncio.create_task(_record(recorders))
        stack.callback(recording.cancel)
        loop = asyncio.get_running_loop()
        began_ns, began_at = time.monotonic_ns(), loop.time()
        for at, name in due:
            wait = began_at + at - loop.time()
            if wait > 0:
                await asyncio.sleep(wait)
            for topic, command in commands.items():
                writers[name, topic].write(command)
        await asyncio.sleep(1.0)  # the last have come
        recording.cancel()
        for each in recorders:  # a client that goes takes those along that wait
            await asyncio.to_thread(each.finish)
    return began_ns


async def _connected(broker: DeployedBroker, stack: AsyncExitStack) -> asyncio.StreamWriter:
    host, port = broker.tcp_address.reachable
    reader, writer = await asyncio.open_connection(host, port)
    Connection(writer.write, {"heartbeat_interval": -1}, _READ_BYTES)
    reading = asyncio.create_task(_read(reader))
    stack.callback(reading.cancel)
    stack.callback(writer.close)
    return writer


async def _read(reader: asyncio.StreamReader) -> None:
    """Answers are not looked at: what was admitted is recorded."""
    while await reader.read(_READ_BYTES):
        pass


async def _record(recorders: Sequence[Recorder]) -> None:
    """A gateway forgets what nobody asks for within 30 s."""
    while True:
        await asyncio.sleep(_RECORD_SECONDS)
        for each in recorders:
            await asyncio.to_thread(each.take)


# --- judged -----------------------------------------------------------------------------------


def _judged(policy: str, came: Recorded, rescales: int, logs: Any) -> Live:
    times = np.concatenate([arrived for arrived, _ in came.values()])
    waits = np.concatenate([admitted - arrived for arrived, admitted in came.values()])
    arrivals = {
        name: Arrivals(arrived, np.ones(arrived.size)) for name, (arrived, _) in came.items()
    }
    predicted = simulate(policy, CONTRACT, arrivals).waits
    audit = audited(policy, read_sessions([logs], policy), (CONTRACT.rate, CONTRACT.burst))
    return Live(
        policy,
        nearest_rank(waits, 0.99) * 1e3,
        by_second(times, waits, SECONDS).tolist(),
        nearest_rank(predicted, 0.99) * 1e3,
        by_second(times, predicted, SECONDS).tolist(),
        audit.messages,
        audit.excess,
        audit.is_exceeded,
        rescales,
    )


def by_second(times: Floats, waits: Floats, seconds: float) -> Floats:
    """p99 in ms of what came in each second."""
    found = np.zeros(int(seconds))
    for second in range(found.size):
        there = waits[(times >= second) & (times < second + 1)]
        found[second] = nearest_rank(there, 0.99) * 1e3 if there.size else 0.0
    return found


def live_table(runs: Sequence[Live]) -> Table:
    made = table(
        "live: a swap between two brokers, p99 of the token wait in ms by seconds since it",
        *("policy", "", *(f"{second} s" for second in _SHOWN), "whole run", "excess", "rescales"),
    )
    for run in runs:
        excess = f"{run.excess:g} of {run.messages:,}"
        for what, seconds, whole, *more in (
            ("live", run.by_second, run.p99_ms, excess, str(run.rescales)),
            ("simulated", run.simulated_by_second, run.simulated_p99_ms, "", ""),
        ):
            shown = (number(seconds[int(SHIFT_SECONDS) + each]) for each in _SHOWN)
            made.add_row(run.policy, what, *shown, number(whole), *map(str, more))
    return made


def live_bars(runs: Sequence[Live]) -> list[Bar]:
    by_name = {run.policy: run for run in runs}
    over = [run.excess if run.surely_exceeded else 0.0 for run in runs]
    ours = by_name["srtm"].p99_ms
    better = min(by_name["paper"].p99_ms, by_name["static"].p99_ms)
    late = max(0.0, ours - max(1.1 * better, better + 1))
    return [
        judge("live: messages over the contract, any policy", [max(over)], at_most=0),
        judge("live: p99 of srtm over the better of paper and static, ms", [late], at_most=0),
    ]
