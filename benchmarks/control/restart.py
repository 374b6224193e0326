"""A distributor that is killed with a large store: how soon are its gateways served again, and is
anything lost?

A real distributor with its usual lease, the commands that people give it, each as a process of its
own, and the real agents of all gateways, which report all the while. One topic in ten has 60 % of
the load, so that several brokers share it. The distributor is killed and started again at once, and
all agents come back. Then the store is backed up, while further gateways without topics report at
fixed times: a report's wait counts from when it was due. All of it on each kind of store.
"""

import asyncio
import json
import math
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from copy import deepcopy
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import sha256
from math import fsum
from pathlib import Path

import psutil
from rich.table import Table

from benchmarks.control.agents import Held, all_answered, running
from benchmarks.control.gateways import Gateway, Way, is_leading, measure
from benchmarks.control.stores import Kind, stores
from benchmarks.harness.bars import Bar, judge
from benchmarks.harness.machine import cpu_seconds, peak_bytes
from benchmarks.harness.report import Report, tabulate
from benchmarks.harness.session import Session
from benchmarks.harness.world import child, until, write_toml
from distributor.remote import Remote
from srtm.gateway.agent import Agent
from srtm.host.clock import NS, boottime_ns
from srtm.http.client import Endpoint, Kept
from srtm.limits.contract import Limit
from srtm.text.address import free_addresses
from srtm.text.errors import SrtmError, UnavailableError

_MOST_FIRST_SECONDS, _MOST_ALL_SECONDS = 10.0, 30.0
_MOST_LIST_SECONDS = 2.0
_MOST_BYTES = 2e9
_BUSY, _BUSY_RATE, _IDLE_RATE = 10, 6.0, 4 / 9
"""each publisher's messages/s: of one topic in BUSY, and of the others; 1.0 on average"""
_SPARE = 1.25
"""what all brokers hold together, as a multiple of the load"""
_BURST = 200.0
_KEYS = 25
"""correlation keys of a topic"""
_PROBES, _PACE = 40, 10
"""gateways that only measure how long a report waits, and reports of each in a second"""
_LONGEST_SECONDS = 900.0
_SRTM = (sys.executable, "-m", "srtm")


@dataclass(frozen=True, slots=True)
class Size:
    topics: int
    gateways: int
    publishers: int

    @property
    def of_topic(self) -> int:
        """Publishers of a topic."""
        return self.publishers // self.topics

    def rate(self, topic: str) -> float:
        """Messages/s of each publisher of a topic."""
        return _IDLE_RATE if int(topic.removeprefix("t")) % _BUSY else _BUSY_RATE

    def contract(self, topic: str) -> tuple[float, float]:
        """r and b of a topic: r is a tenth more than its publishers declare."""
        return round(1.1 * self.rate(topic) * self.of_topic, 3), _BURST


FULL = Size(topics=2_000, gateways=1_000, publishers=1_000_000)
QUICK = Size(topics=100, gateways=50, publishers=20_000)

_EMPTY = "all gateways register, in an empty store"
_REGISTERED = "srtm topic register of all topics"
_PLACED = "srtm placement apply of all topics"
_WHOLE = "then, until gateways hold all contracts whole"
_LEADS = "from the start again until it leads"
_FIRST = "from the start again until the first gateway has its answer"
_ALL = "from the start again until all gateways have theirs"
_AS_BEFORE = "from the start again until all hold the shares of before"
_CPU = "CPU of the distributor until all gateways had their answers"
_LIST = "srtm topic list"
_BACKUP = "srtm distributor backup"
_P99_BEFORE, _P99 = "p99 of a report's wait before the backup", "p99 of a report's wait meanwhile"
_FIRST_PEAK, _PEAK = "memory at most, before the kill", "memory at most, after it"
_LOST = "topics, with publishers and placement, that are not as before"
_NOT_COPIED = "topics and publishers that the backup lacks"
_MOST_HELD = "most of a contract that was held at any instant"


class Figures:
    """All figures of a run by name, each with its unit, in the order in which they came."""

    def __init__(self) -> None:
        self.all: dict[str, tuple[float, str]] = {}

    def add(self, name: str, value: float, unit: str = "s") -> None:
        self.all[name] = value, unit

    async def timed(self, name: str, doing: Awaitable[object]) -> None:
        begun = time.monotonic()
        await doing
        self.add(name, time.monotonic() - begun)


def run(session: Session) -> Report:
    size = QUICK if session.quick else FULL
    found: dict[Kind, Figures] = {}
    with stores(session.folder) as (places, notes):
        session.plan(6 * len(places))
        for kind, store in places.items():
            found[kind] = Figures()
            asyncio.run(_World(session, size, kind, store, found[kind]).measure())
    return Report(
        settings=asdict(size),
        figures={
            kind: {name: value for name, (value, _) in each.all.items()}
            for kind, each in found.items()
        },
        bars=[bar for kind, each in found.items() for bar in _bars(kind, each)],
        tables=[_table(found)],
        notes=notes,
    )


class _World:
    """One distributor on one store, its gateways, and what is asked of it."""

    def __init__(
        self, session: Session, size: Size, kind: Kind, store: str, figures: Figures
    ) -> None:
        self._session, self._size, self._figures = session, size, figures
        self._kind, self._store = kind, store
        self._names = [f"t{number}" for number in range(size.topics)]
        [self._address] = map(str, free_addresses(1))
        self._remote = Remote(Endpoint(self._address))
        self._held = Held(size.contract)

    async def measure(self) -> None:
        size, figures = self._size, self._figures
        capacity = math.ceil(_SPARE * size.publishers / size.gateways)
        with ExitStack() as up:
            self._session.step(f"{self._kind}: {size.gateways:,} gateways register")
            process = up.enter_context(self._distributor())
            await asyncio.to_thread(self._wait_leading)
            service = partial(Endpoint, self._address)
            async with running(service, size.gateways, capacity, self._held) as agents:
                _, all_ = await all_answered(agents, boottime_ns(), _LONGEST_SECONDS)
                figures.add(_EMPTY, all_)
                await self._place()
                held, kept = deepcopy(self._held.of), await asyncio.to_thread(self._kept)
                figures.add(_FIRST_PEAK, peak_bytes(process.pid) / 1e6, "MB")
                self._session.step("the distributor is killed and started again")
                process.kill()
                process.wait()
                started_at = boottime_ns()
                process = up.enter_context(self._distributor())
                of = psutil.Process(process.pid)
                await self._begin_again(of, started_at, agents, held)
                await self._look()
                await self._back_up(of)
                self._session.step("what is there is compared with what was there")
                found = await asyncio.to_thread(self._kept)
        figures.add(_LOST, sum(found[each] != kept[each] for each in self._names), "topics")
        figures.add(_MOST_HELD, self._held.most, "")

    async def _place(self) -> None:
        """Register and place all topics; return once gateways hold all of their contracts."""
        self._session.step(f"{self._size.publishers:,} publishers register")
        file = await asyncio.to_thread(self._write_files)
        await self._figures.timed(_REGISTERED, self._asked("topic", "register", str(file)))
        self._session.step(f"{self._size.topics:,} topics are placed")
        await self._figures.timed(_PLACED, self._asked("placement", "apply", *self._names))
        await self._figures.timed(_WHOLE, _come(self._are_whole))

    async def _begin_again(
        self,
        of: psutil.Process,
        started_at: int,
        agents: Sequence[Agent],
        held: dict[str, dict[str, Limit]],
    ) -> None:
        """started_at: nanoseconds since boot; held: what gateways held before"""
        figures = self._figures

        def since() -> float:
            return (boottime_ns() - started_at) / NS

        async def lead() -> None:
            await asyncio.to_thread(self._wait_leading)
            figures.add(_LEADS, since())

        leading = asyncio.create_task(lead())
        first, all_ = await all_answered(agents, started_at, _LONGEST_SECONDS)
        spent = cpu_seconds(of)
        await leading
        figures.add(_FIRST, first)
        figures.add(_ALL, all_)
        figures.add(_CPU, spent)
        await _come(lambda: self._held.of == held)
        figures.add(_AS_BEFORE, since())
        figures.add(_PEAK, peak_bytes(of.pid) / 1e6, "MB")

    async def _look(self) -> None:
        """What people ask, by command and by API."""
        self._session.step("people look")
        topic = self._names[0]
        commands = (
            ("topic", "list"),
            ("broker", "list"),
            ("topic", "describe", topic),
            ("placement", "plan", topic),
        )
        for command in commands:
            words = command if len(command) == 2 else (*command[:2], "TOPIC")
            await self._figures.timed(f"srtm {' '.join(words)}", self._asked(*command))
        for path in ("topics", "brokers"):
            asking = asyncio.to_thread(self._remote.call, "GET", path)
            await self._figures.timed(f"GET /v1/{path}", asking)

    async def _back_up(self, of: psutil.Process) -> None:
        """A first backup tells for how long reports are to be measured during the second."""
        self._session.step("the store is backed up")
        probes = [Gateway(Endpoint(self._address), f"probe{n}", _PACE) for n in range(_PROBES)]
        for each in probes:
            await asyncio.to_thread(each.register, self._remote)
        begun = time.monotonic()
        copied = json.loads(await self._copy("first.db"))
        seconds = max(1, round(time.monotonic() - begun))
        waiting = partial(measure, probes, Way.LINE, seconds, lambda: cpu_seconds(of))
        _, before = await waiting()
        copy = self._figures.timed(_BACKUP, self._copy("second.db"))
        (_, meanwhile), _ = await asyncio.gather(waiting(), copy)
        self._figures.add(_P99_BEFORE, 1e3 * _p99(before), "ms")
        self._figures.add(_P99, 1e3 * _p99(meanwhile), "ms")
        lacks = self._size.topics - copied["topics"] + self._size.publishers - copied["publishers"]
        self._figures.add(_NOT_COPIED, lacks, "")

    # --- parts of it --------------------------------------------------------------------------

    def _distributor(self) -> AbstractContextManager[subprocess.Popen[bytes]]:
        flags = (f"--http-address={self._address}", f"--store={self._store}")
        return child([*_SRTM, "distributor", *flags], self._session.folder / "log", 10)

    def _wait_leading(self) -> None:
        """Raises UnavailableError."""
        until(lambda: is_leading(self._address), "the distributor leads", _LONGEST_SECONDS, 0.02)

    def _write_files(self) -> Path:
        """The files of `srtm topic register`: the topics', and one of each topic's publishers."""
        folder, size, topics = self._session.folder, self._size, []
        for name in self._names:
            rate, burst = size.contract(name)
            publishers = f"{name}.csv"
            topics.append(
                {
                    "name": name,
                    "rate": rate,
                    "burst": burst,
                    "slo": "0.99@5ms",
                    "publishers": publishers,
                }
            )
            rows = (f"p{n},k{n % _KEYS},{size.rate(name):.6f}" for n in range(size.of_topic))
            (folder / publishers).write_text("\n".join(["id,key,rate", *rows, ""]))
        return write_toml(folder / "topics.toml", {"topic": topics})

    async def _asked(self, *words: str) -> str:
        """What a command prints. Raises SrtmError."""
        return await _printed(*words, f"--distributor-address={self._address}")

    async def _copy(self, file: str) -> str:
        path = str(self._session.folder / f"{self._kind}-{file}")
        return await _printed("distributor", "backup", f"--store={self._store}", path, "--json")

    def _are_whole(self) -> bool:
        """Do gateways hold all of each contract, but for roundings?"""
        held = self._held.of
        return all(
            fsum(each.rate for each in held.get(name, {}).values())
            > (1 - 1e-9) * self._size.contract(name)[0]
            for name in self._names
        )

    def _kept(self) -> dict[str, str]:
        """By topic: its contract, publishers and placement, as a digest of what the API tells."""
        kept = Kept(Endpoint(self._address))
        try:
            found = {}
            for each in kept.get("/v1/topics").json()["topics"]:
                path = f"/v1/topics/{each['topic']}"
                told = [json.dumps(each).encode()]
                told += [
                    kept.get(f"{path}/{part}").body for part in ("publishers", "placements/current")
                ]
                found[each["topic"]] = sha256(b"\n".join(told)).hexdigest()
            return found
        finally:
            kept.close()


async def _printed(*words: str) -> str:
    """Raises SrtmError."""
    done = await asyncio.to_thread(
        subprocess.run,
        [*_SRTM, *words],
        capture_output=True,
        text=True,
        timeout=_LONGEST_SECONDS,
    )
    if done.returncode:
        raise SrtmError(f"srtm {' '.join(words[:2])}: {done.stderr[-500:]}")
    return done.stdout


async def _come(condition: Callable[[], bool]) -> None:
    """Wait for the condition, beside the agents. Raises UnavailableError."""
    deadline = time.monotonic() + _LONGEST_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise UnavailableError(f"not within {_LONGEST_SECONDS:g} s: gateways have their shares")
        await asyncio.sleep(0.1)


def _p99(waits: Sequence[float]) -> float:
    return sorted(waits)[math.ceil(0.99 * len(waits)) - 1]


def _bars(kind: Kind, figures: Figures) -> list[Bar]:
    limits = (
        (_FIRST, _MOST_FIRST_SECONDS),
        (_ALL, _MOST_ALL_SECONDS),
        (_LIST, _MOST_LIST_SECONDS),
        (_FIRST_PEAK, _MOST_BYTES / 1e6),
        (_PEAK, _MOST_BYTES / 1e6),
        (_LOST, 0),
        (_NOT_COPIED, 0),
        (_MOST_HELD, 1),
    )
    found = []
    for name, most in limits:
        value, unit = figures.all[name]
        found.append(judge(f"{kind}: {name}{unit and f', {unit}'}", [value], at_most=most))
    return found


def _table(found: Mapping[Kind, Figures]) -> Table:
    first = next(iter(found.values()))
    kinds = [(str(kind), partial(_value, each)) for kind, each in found.items()]
    return tabulate(
        "restart",
        first.all,
        ("what", lambda name: name),
        ("unit", lambda name: first.all[name][1]),
        *kinds,
    )


def _value(figures: Figures, name: str) -> float:
    return figures.all[name][0]
