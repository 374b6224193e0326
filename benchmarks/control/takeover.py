"""Three distributors that are killed, frozen and cut off at random: is anything lost, is a contract
ever exceeded, and how soon are shares granted again?

Real distributors on one store, of which one leads, and real agents of gateways, which reach them
through links that can be cut. Topics are placed and registered all the while. Both kinds of store
are tried, one after the other: on PostgreSQL a frozen leader goes on only once another one leads;
on SQLite, where nobody can take the lead from it, after some seconds.
"""

import asyncio
import random
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from subprocess import Popen

from rich.table import Table

from benchmarks.control.agents import Held, all_answered, running
from benchmarks.control.gateways import is_leading
from benchmarks.control.stores import Kind, stores
from benchmarks.harness.bars import Bar, judge, judge_worst
from benchmarks.harness.report import Report, tabulate
from benchmarks.harness.session import Session
from benchmarks.harness.world import start, until
from distributor.remote import Remote
from srtm.gateway.agent import Agent
from srtm.host.clock import boottime_ns
from srtm.http.client import Endpoint
from srtm.http.service import ClientFiles, service_at
from srtm.text.address import Address, free_addresses
from srtm.text.errors import SrtmError

LEASE_SECONDS = {Kind.SQLITE: 3.0, Kind.POSTGRES: 12.0}
"""A leader that is frozen is noticed after half a lease, but not before 5 s: only with a lease of
10 s or more can another one lead within it."""
RATE, BURST = 1200.0, 240.0
PUBLISHERS = 12
_MOST_AGAIN_SECONDS = 3.0
_SEED = 1


@dataclass(frozen=True, slots=True)
class Size:
    agents: int
    topics: int
    seconds: float


FULL = Size(agents=12, topics=6, seconds=180)
QUICK = Size(agents=6, topics=3, seconds=12)


class Link:
    """A way to a server that can be cut: what is sent meanwhile arrives once it is whole again."""

    def __init__(self, here: Address, there: Address) -> None:
        self._here, self._there = here, there
        self._whole = asyncio.Event()
        self._whole.set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Link":
        self._server = await asyncio.start_server(self._accept, self._here.host, self._here.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for each in list(self._tasks):
            each.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def cut(self, seconds: float) -> None:
        self._whole.clear()
        await asyncio.sleep(seconds)
        self._whole.set()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._carry(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            to, out = await asyncio.open_connection(self._there.host, self._there.port)
        except OSError:
            writer.close()
            return
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass(reader, out))
                both.create_task(self._pass(to, writer))
        except* OSError:
            pass
        finally:
            writer.close()
            out.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Until one side ends; then the other one is told."""
        while data := await reader.read(1 << 16):
            await self._whole.wait()
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError


class Distributors:
    """Programs on one store."""

    def __init__(self, folder: Path, addresses: Sequence[Address], kind: Kind, store: str) -> None:
        self.addresses = addresses
        self.lease_seconds = LEASE_SECONDS[kind]
        self.takes_over_frozen = kind is Kind.POSTGRES
        self._folder, self._store = folder, store
        self._processes = {each: self._start(each) for each in addresses}

    def _start(self, address: Address) -> Popen[bytes]:
        flags = (
            f"--http-address={address}",
            f"--store={self._store}",
            f"--lease-duration={self.lease_seconds:g}s",
        )
        command = [sys.executable, "-m", "srtm", "distributor", *flags]
        return start(command, self._folder / f"{address.port}.log")

    def leader(self) -> Address | None:
        return next((each for each in self.addresses if is_leading(str(each))), None)

    def kill(self, address: Address) -> None:
        self._processes[address].kill()
        self._processes[address].wait()

    def start_again(self, address: Address) -> None:
        self._processes[address] = self._start(address)

    def signal(self, address: Address, number: signal.Signals) -> None:
        self._processes[address].send_signal(number)

    def end(self) -> None:
        for each in self._processes.values():
            each.send_signal(signal.SIGCONT)
            each.kill()
            each.wait()


@dataclass
class Outcome:
    """again: seconds from each kill of a leader until every agent had an answer again; first: until
    one had; frozen: seconds from each freeze of a leader until every agent had; kept, lost: topics
    whose registration was acknowledged, and those of them that are not there in the end; refused:
    requests without an answer"""

    kills: int = 0
    freezes: int = 0
    cuts: int = 0
    again: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    frozen: list[float] = field(default_factory=list)
    placements: int = 0
    refused: int = 0
    kept: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of the distributors of one store."""

    kind: Kind
    held: Held
    outcome: Outcome


def run(session: Session) -> Report:
    size = QUICK if session.quick else FULL
    with stores(session.folder) as (places, notes):
        session.plan(len(places) * (2 + round(size.seconds)))
        trials = [_tried(session, size, kind, store) for kind, store in places.items()]
    return Report(
        settings={**asdict(size), "lease_seconds": LEASE_SECONDS, "seed": _SEED},
        figures={
            each.kind: {
                "most_held": each.held.most,
                "changes": each.held.changes,
                **asdict(each.outcome),
            }
            for each in trials
        },
        bars=[bar for each in trials for bar in _bars(each, session.quick)],
        tables=[_table(trials)],
        notes=notes,
    )


def _tried(session: Session, size: Size, kind: Kind, store: str) -> Trial:
    trial = Trial(kind, Held(lambda topic: (RATE, BURST)), Outcome())
    addresses = free_addresses(6)
    distributors = Distributors(session.folder, addresses[:3], kind, store)
    try:
        until(lambda: distributors.leader(), "a distributor leads", 30)
        session.step(f"a distributor leads on {kind}")
        asyncio.run(_measure(session, size, distributors, addresses[3:], trial))
    finally:
        distributors.end()
    return trial


async def _measure(
    session: Session,
    size: Size,
    distributors: Distributors,
    ways: Sequence[Address],
    trial: Trial,
) -> None:
    held, outcome = trial.held, trial.outcome
    links = {
        there: Link(way, there) for way, there in zip(ways, distributors.addresses, strict=True)
    }
    remote = Remote(_any_of(distributors.addresses))
    drawn = random.Random(_SEED)
    async with AsyncExitStack() as up:
        for each in links.values():
            await up.enter_async_context(each)
        agents = await up.enter_async_context(
            running(partial(_any_of, ways), size.agents, 1000, held)
        )
        await all_answered(agents, boottime_ns(), 30.0)
        for topic in range(size.topics):
            await asyncio.to_thread(_register, remote, f"t{topic}")
        session.step("topics are placed")
        ends = time.monotonic() + size.seconds
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(_ask(remote, size.topics, random.Random(_SEED + 1), outcome))
            ticking = group.create_task(_tick(session, size.seconds))
            while time.monotonic() < ends:
                await _harm(distributors, links, agents, drawn, outcome, size.seconds)
                await asyncio.sleep(drawn.uniform(1.0, 3.0))
            for task in (asking, ticking):
                task.cancel()
        await all_answered(agents, boottime_ns(), 30.0)
        found = await asyncio.to_thread(remote.call, "GET", "topics")
        there = {each["topic"] for each in found["topics"]}
        outcome.lost = [each for each in outcome.kept if each not in there]


def _any_of(addresses: Sequence[Address]) -> Endpoint:
    return service_at(",".join(map(str, addresses)), ClientFiles(), "")


async def _tick(session: Session, seconds: float) -> None:
    for second in range(round(seconds)):
        session.step(f"second {second + 1} of {seconds:g}")
        await asyncio.sleep(1.0)


def _register(remote: Remote, topic: str) -> None:
    """Raises SrtmError."""
    remote.call("PUT", "topics", topic, body={"rate": RATE, "burst": BURST})
    publishers = [{"id": f"p{n}", "rate": 150.0, "key": f"k{n % 2}"} for n in range(PUBLISHERS)]
    remote.call("POST", "topics", topic, "publishers", body={"publishers": publishers})
    remote.call("POST", "topics", topic, "placements", body={"policy": "max-min"})


async def _ask(remote: Remote, topics: int, drawn: random.Random, outcome: Outcome) -> None:
    """Place topics anew, and register others, until it is cancelled."""
    number = 0
    while True:
        number += 1
        extra = f"extra-{number}"
        topic = f"t{drawn.randrange(topics)}"
        policy = drawn.choice(["max-min", "srtm", "lb"])
        try:
            await asyncio.to_thread(
                remote.call, "PUT", "topics", extra, body={"rate": 1.0, "burst": 1.0},
                timeout_seconds=4.0,
            )  # fmt: skip
            outcome.kept.append(extra)
            await asyncio.to_thread(
                remote.call, "POST", "topics", topic, "placements", body={"policy": policy},
                timeout_seconds=4.0,
            )  # fmt: skip
            outcome.placements += 1
        except SrtmError:
            outcome.refused += 1
        await asyncio.sleep(0.3)


async def _harm(
    distributors: Distributors,
    links: dict[Address, Link],
    agents: Sequence[Agent],
    drawn: random.Random,
    outcome: Outcome,
    longest: float,
) -> None:
    """longest: seconds of a cut"""
    leader, lease = await asyncio.to_thread(distributors.leader), distributors.lease_seconds
    if leader is None:
        return
    kind = drawn.choice(["kill", "kill", "freeze", "cut"])
    if kind == "kill":
        distributors.kill(leader)
        killed_at = boottime_ns()
        outcome.kills += 1
        first, all_ = await all_answered(agents, killed_at, 30.0)
        outcome.first.append(first)
        outcome.again.append(all_)
        await asyncio.sleep(drawn.uniform(0.0, 2.0))
        distributors.start_again(leader)
    elif kind == "freeze":
        outcome.freezes += 1
        distributors.signal(leader, signal.SIGSTOP)
        if distributors.takes_over_frozen:
            _, all_ = await all_answered(agents, boottime_ns(), 2 * lease)
            outcome.frozen.append(all_)
        else:
            await asyncio.sleep(drawn.uniform(0.5, 2 * lease))
        distributors.signal(leader, signal.SIGCONT)
    else:
        outcome.cuts += 1
        chosen = drawn.choice([leader, drawn.choice(list(links))])
        await links[chosen].cut(drawn.uniform(0.5, min(2 * lease, longest)))


def _bars(trial: Trial, quick: bool) -> list[Bar]:
    kind, outcome = trial.kind, trial.outcome
    found = [
        judge(
            f"{kind}: most of a contract that was held at any instant",
            [trial.held.most],
            at_most=1.0,
        ),
        judge(
            f"{kind}: topics that were registered and are not there",
            [len(outcome.lost)],
            at_most=0,
        ),
    ]
    harms = [("kill", outcome.again, _MOST_AGAIN_SECONDS)]
    if kind is Kind.POSTGRES:
        harms.append(("freeze", outcome.frozen, LEASE_SECONDS[kind]))
    for harm, seconds, most in harms:
        name = f"{kind}: from a {harm} of the leader until all gateways have an answer again, s"
        longest = f"{kind}: the longest of these after a {harm}, s"
        found += [
            judge(name, seconds, at_most=most, quick=quick),
            judge_worst(longest, seconds, at_most=most),
        ]
    return found


def _table(trials: Sequence[Trial]) -> Table:
    def middle(values: list[float]) -> float | None:
        return median(values) if values else None

    return tabulate(
        "three distributors",
        trials,
        ("store", lambda each: each.kind),
        ("kills", lambda each: each.outcome.kills),
        ("freezes", lambda each: each.outcome.freezes),
        ("cuts", lambda each: each.outcome.cuts),
        ("changes of shares", lambda each: each.held.changes),
        ("placements", lambda each: each.outcome.placements),
        ("registered", lambda each: len(each.outcome.kept)),
        ("lost", lambda each: len(each.outcome.lost)),
        ("unanswered", lambda each: each.outcome.refused),
        ("first s after a kill", lambda each: middle(each.outcome.first)),
        ("all s", lambda each: middle(each.outcome.again)),
        ("all s after a freeze", lambda each: middle(each.outcome.frozen)),
    )
