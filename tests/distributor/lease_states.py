"""Every order of events of the lease protocol, within bounds: the real service, its store's SQL and
the real gateway's lease, on a clock of whole ticks. No I/O, no sleep, nothing at random.

A world is two gateways of one topic, distributors of which one leads, the store, and the answers
that are on their way. `World.events` are all that may happen next; `explore` follows each of them
from each world that was not seen before. Two worlds are the same if they differ only in what the
clock shows, in how large epochs are, and in names. A chain of events that ends in a fault is the
shortest there is, and replays alone: `replay(events)`. What is not in it: batches, contracts that
change, two processes with one state file, full disks; `lease_faults` has those, at random.

    python -m tests.distributor.lease_states --depth 12 --faults 2
"""

import argparse
import contextlib
import dataclasses
import hashlib
import itertools
import logging
import multiprocessing
import os
import pickle
import sqlite3
import time
import zlib
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from math import inf
from typing import Any, NamedTuple
from unittest.mock import patch

from pydantic import BaseModel

import srtm.gateway.lease
from distributor.api import ShareShown, TopicAsked
from distributor.control import lineage, topics
from distributor.control.lineage import Lineage
from distributor.control.placements import apply
from distributor.control.restored import restored
from distributor.control.service import Distributor
from distributor.control.state import FORMER, ControlState, InForce
from distributor.errors import Conflict, NotFound
from distributor.gateway_api import Desired, Report, TopicReport
from distributor.store import Snapshot, StoreLost
from distributor.store.statements import (
    Statement,
    Value,
    put_epoch,
    put_leader,
    put_lease,
    put_lineage,
)
from distributor.store.store import Store, migrations
from srtm.gateway.lease import Lease, read_desired
from srtm.host.clock import NS
from srtm.text.errors import SrtmError
from tb_adaptor.leases import Holder
from tests.distributor.lease_faults import registration

LEASE = 3.0
"""in ticks: a third of it is one, 4/3 of it are four"""
WAIT = 4 / 3
"""leases for which whoever begins to lead waits"""
TOTAL = 4.0
"""r and b of the contract"""
PLACEMENTS: tuple[Mapping[str, float], ...] = ({"b1": 3, "b2": 1}, {"b1": 1, "b2": 3}, {"b1": 4})
NAMES = ("b1", "b2")
_BEGIN = 1e6
"""What the clock shows first: times are larger than any other number with a fraction."""
_EPOCH = 1_000_000
"""The first epoch: epochs are larger than any other whole number but nanoseconds."""
_ID = "id-"
"""before each name that only has to differ from others"""

Event = tuple[str | int, ...]


class Bounds(NamedTuple):
    """How often things happen in one chain of events, at most."""

    depth: int
    faults: int
    ticks: int = 6
    places: int = 2


class Rows(Store):
    """SQLite in a few bytes, which a world is kept with."""

    def __init__(self, content: bytes) -> None:
        self.database = sqlite3.connect(":memory:", isolation_level=None)
        if content:
            self.database.deserialize(content)

    @classmethod
    def new(cls) -> bytes:
        store = cls(b"")
        store.database.execute("PRAGMA page_size = 512")
        for _, statements in migrations(0):
            for sql in statements:
                store.database.execute(sql)
        store.write([put_epoch(_EPOCH)])
        return store.database.serialize()

    def lead(self, name: str = "") -> bool:
        return True

    def confirm(self) -> None: ...

    def write(self, statements: Sequence[Statement]) -> None:
        self.database.execute("BEGIN")
        for each in statements:
            self.database.executemany(each.sql, each.rows)
        self.database.execute("COMMIT")

    def query(self, sql: str) -> list[tuple[Value, ...]]:
        return self.database.execute(sql).fetchall()

    def close(self) -> None:
        self.database.close()


@dataclass
class Gateway:
    """A process. shut: it has heard that t has a contract, and is never without a limit again."""

    name: str
    instance: str
    process: str
    lease: Lease = field(default_factory=Lease)
    shut: bool = False
    desired: srtm.gateway.lease.Desired | None = None

    def take(self, desired: Desired, sent_at: float, now: float) -> None:
        """now: when the answer came"""
        document = read_desired(desired.model_dump(mode="json"), self.desired)
        if self.lease.answered(document, int(sent_at * NS)) is not None:
            self.desired = document
            self.shut = self.shut or self.names_t

    @property
    def names_t(self) -> bool:
        return "t" in self.lease.applied or "t" in self.lease.known.names


@dataclass
class Leader:
    """A distributor that leads, or has not found out yet that it does no more."""

    state: ControlState
    term: str
    confirmed_at: float
    longest_until: float


class _Committer:
    """Of one leader: whoever leads after it has taken the row that each write looks at."""

    def __init__(self, world: "World", term: str) -> None:
        self._world, self._term = world, term

    async def write(self, statements: Sequence[Statement]) -> None:
        store = Rows(self._world.disk)
        if store.leader() != self._term:
            raise StoreLost("another one leads")
        store.write(statements)
        self._world.disk = store.database.serialize()


@dataclass
class World:
    """late: by gateway, an answer that is on its way, and when its report was sent; copy: of the
    store; left: how much may still happen."""

    left: Bounds
    now: float = _BEGIN
    disk: bytes = b""
    copy: bytes = b""
    count: int = 0
    leaders: list[Leader] = field(default_factory=list)
    gateways: dict[str, Gateway] = field(default_factory=dict)
    late: dict[str, tuple[float, Desired]] = field(default_factory=dict)

    @classmethod
    def begin(cls, bounds: Bounds) -> "World":
        """Both gateways have their shares of the first placement."""
        world = cls(bounds, disk=Rows.new())
        world.gateways = {name: world.gateway(name) for name in NAMES}
        world.lead()
        for name in NAMES:
            world.report(name, 0, "")
        world.agree()
        world.place(0)
        for name in NAMES * 3:
            world.report(name, 0, "")
        return world

    def id(self, what: str) -> str:
        self.count += 1
        return f"{_ID}{what}{self.count}"

    def gateway(self, name: str, instance: str = "") -> Gateway:
        return Gateway(name, instance or self.id("i"), self.id("p"))

    # --- distributors ---------------------------------------------------------------------------

    def lead(self) -> None:
        """A distributor begins to lead. One that led before, and is frozen, had just confirmed that
        it does."""
        store, term = Rows(self.disk), self.id("term")
        store.write([put_leader("x", term)])
        kept = store.snapshot()
        until = self.now + LEASE * WAIT
        with patch.object(Lineage, "new", lambda: Lineage(self.id("store"), self.id("secret"))):
            state = restored(kept, until)
        store.write([put_lease(LEASE)])
        if kept.lineage is None:
            store.write(put_lineage(state.lineage_row()))
        self.disk = store.database.serialize()
        for each in self.leaders:
            each.confirmed_at = self.now
        self.leaders = [*self.leaders[-1:], Leader(state, term, self.now, until)]

    def call(self, number: int, ask: Any) -> Any:
        """What leader `number` answers. Raises SrtmError; one that has lost the store is gone."""
        leader = self.leaders[number]
        if leader is self.leaders[-1]:
            leader.confirmed_at = self.now
        service = Distributor(
            leader.state,
            _Committer(self, leader.term),  # type: ignore[arg-type]
            LEASE,
            lambda: self.now,
            lambda: 0.0,
            longest_lease=LEASE,
        )
        service.confirmed_at, service._longest_until = leader.confirmed_at, leader.longest_until
        with patch.object(Lineage, "new", lambda: Lineage(self.id("store"), self.id("secret"))):
            return self._run(leader, ask(service))

    def _run(self, leader: Leader, coroutine: Coroutine[Any, Any, Any]) -> Any:
        try:
            coroutine.send(None)
        except StopIteration as done:
            return done.value
        except StoreLost:
            self.leaders.remove(leader)
            raise
        raise AssertionError("nothing here waits")

    def agree(self, grace: float = 0.0) -> None:
        """The contract of t, with its grace in ticks."""
        asked = TopicAsked(rate=TOTAL, burst=TOTAL, lease_grace=grace or None)
        self.call(-1, lambda service: topics.put(service, "t", asked))

    def place(self, number: int) -> None:
        """Placement `number` of t, as somebody applies it."""
        targets = PLACEMENTS[number]

        async def placed(service: Distributor) -> None:
            shares = [
                ShareShown(name=name, rate=part, quota=0.0, publishers=0, r=part, b=part)
                for name, part in targets.items()
            ]
            epoch = service.state.next_epoch()
            await apply(service, "t", InForce(epoch, 0.0, "srtm", tuple(shares), 0, 0.0, ()), {})
            for name in targets:
                service.state.gateways[name].topics.add("t")

        state = self.leaders[-1].state
        if "t" in state.topics and targets.keys() <= state.gateways.keys():
            self.call(-1, placed)

    # --- what happens ---------------------------------------------------------------------------

    def events(self) -> Iterator[Event]:
        """All that may happen next."""
        left = self.left
        if left.depth <= 0:
            return
        for name in NAMES:
            for number in range(len(self.leaders)):
                yield "report", name, number, ""
                yield "report", name, number, "idle"
                if left.faults and name not in self.late:
                    yield "report", name, number, "lost"
                    yield "report", name, number, "late"
            if name in self.late:
                yield "arrive", name
        if left.ticks:
            yield ("tick",)
        yield ("settle",)
        if left.places:
            for number in range(len(PLACEMENTS)):
                yield "place", number
        if left.faults:
            for name in NAMES:
                yield "crash", name, 1
                yield "crash", name, 0
            yield ("kill",)
            yield ("freeze",)
            yield ("lose",)
            if self.copy:
                yield ("old",)
            else:
                yield ("copy",)

    def happens(self, event: Event) -> None:
        what, *about = event
        left = self.left._replace(depth=self.left.depth - 1)
        match what:
            case "report":
                name, number, fate = about
                left = left._replace(faults=left.faults - (fate in ("lost", "late")))
                self.report(str(name), int(number), str(fate))
            case "arrive":
                sent_at, desired = self.late.pop(str(about[0]))
                self.gateways[str(about[0])].take(desired, sent_at, self.now)
            case "tick":
                left = left._replace(ticks=left.ticks - 1)
                self.now += 1.0
            case "settle":
                with contextlib.suppress(SrtmError):
                    self.call(-1, lambda service: service.settle())
            case "place":
                left = left._replace(places=left.places - 1)
                with contextlib.suppress(SrtmError):
                    self.place(int(about[0]))
            case "crash":
                left = left._replace(faults=left.faults - 1)
                self.crash(str(about[0]), keeps=bool(about[1]))
            case "kill" | "freeze":
                left = left._replace(faults=left.faults - 1)
                if what == "kill":
                    self.leaders = []
                self.lead()
            case "grace":
                self.agree(float(about[0]))
            case "copy":
                self.copy = self.disk
            case "old" | "lose":
                left = left._replace(faults=left.faults - 1)
                self.leaders, self.disk = [], self.copy if what == "old" else Rows.new()
                self.lead()
        if not self.leaders:
            self.lead()
        self.left = left
        for each in self.gateways.values():
            each.lease.expire(int(self.now * NS))

    def report(self, name: str, number: int, fate: str) -> None:
        gateway = self.gateways[name]
        lease = gateway.lease
        report = Report(
            applied_epoch=lease.epoch,
            store=lease.known.store,
            process=gateway.process,
            names_version=lease.known.names_version,
            topics=[] if fate == "idle" else [TopicReport(topic="t", offered=1.0)],
            whole=gateway.desired is None,
        )
        try:
            try:
                desired = self.call(number, lambda service: service.report(name, report))
            except NotFound:
                self.register(gateway, number)
                desired = self.call(number, lambda service: service.report(name, report))
        except SrtmError:
            return
        if fate == "late":
            self.late[name] = self.now, desired
        elif fate != "lost":
            self.late.pop(name, None)  # the answer to an older report comes on no connection
            gateway.take(desired, self.now, self.now)

    def register(self, gateway: Gateway, number: int) -> None:
        asked = registration(gateway.lease, gateway.name, gateway.instance, gateway.process)
        try:
            self.call(number, lambda service: service.brokers.register(asked))
        except Conflict:
            gateway.lease.revoke()
            raise

    def crash(self, name: str, keeps: bool) -> None:
        """keeps: its state file is there when it starts again"""
        before = self.gateways[name]
        again = self.gateways[name] = self.gateway(name, before.instance if keeps else "")
        self.late.pop(name, None)
        if keeps:
            again.lease.begin(dict(before.lease.applied), before.lease.known)
            again.shut = before.shut

    # --- what must hold -------------------------------------------------------------------------

    def fault(self) -> str:
        """What does not hold; empty: all does."""
        held = [
            each.lease.applied["t"] for each in self.gateways.values() if "t" in each.lease.applied
        ]
        rate = sum(Fraction(each.rate) for each in held)
        burst = sum(Fraction(each.burst) for each in held)
        if max(rate, burst) > Fraction(TOTAL):
            return f"shares of {float(rate)} messages/s and {float(burst)} messages"
        opened = [each.name for each in self.gateways.values() if each.shut and not each.names_t]
        return f"{opened} dropped the limit" if opened else ""

    def unlively(self) -> str:
        """What is still missing once nothing more has failed for four leases; this ends the
        world."""
        self.late.clear()
        del self.leaders[:-1]
        for _ in range(int(4 * LEASE)):
            self.now += 1.0
            for each in self.gateways.values():
                each.lease.expire(int(self.now * NS))
            for name in NAMES:
                self.report(name, -1, "")
            with contextlib.suppress(SrtmError):
                self.call(-1, lambda service: service.settle())
            if not self.leaders:
                self.lead()
        state = self.leaders[-1].state
        is_kept_back = any(FORMER in name and each.topics for name, each in state.gateways.items())
        if state.unsure:
            return "it is unsure for ever"
        if "t" not in state.topics or is_kept_back:
            return ""  # nobody knows the contract, or somebody has to say that a gateway is gone
        found = {
            name: (share.rate, share.burst)
            for name, each in self.gateways.items()
            if (share := each.lease.applied.get("t")) is not None
        }
        targets = state.leases["t"].targets
        missing = {name for name in targets if name not in found}
        if missing:
            return f"{sorted(missing)} have no share"
        outsiders = found.keys() - targets.keys()
        if not outsiders and any(
            found[name] != (share.rate, share.burst) for name, share in targets.items()
        ):
            return f"shares {found} and not {targets}"
        return ""


# --- which worlds are the same --------------------------------------------------------------------


class _Plain:
    """A world as a row of plain values: times as they are from now on, epochs by their order, names
    by where they come first."""

    def __init__(self, now: float) -> None:
        self._now = now
        self._names: dict[str, int] = {}
        self._done: dict[int, tuple[int, int]] = {}
        self._alive: list[Any] = []  # so that no other value gets the id of one that was done
        self.row: list[Any] = []

    def add(self, value: Any) -> None:
        row, kind = self.row, type(value)
        if value is None or kind in (bool, bytes):
            row.append(value)
        elif kind is float:
            row.append(self._time(value - self._now) if _BEGIN / 2 < value < inf else value)
        elif kind is int:
            row.append(self._whole(value))
        elif kind is str:
            for part in value.split(FORMER) if _ID in value else [value]:
                named = _ID in part
                row.append(self._names.setdefault(part, len(self._names)) if named else part)
        elif isinstance(value, str):
            row.append(str(value))
        elif id(value) in self._done:  # it stands somewhere else too
            begin, end = self._done[id(value)]
            row += row[begin:end]
        else:
            begin = len(row)
            self._add_all(value)
            self._done[id(value)] = begin, len(row)
            self._alive.append(value)

    def _add_all(self, value: Any) -> None:
        self.row.append("(")
        if isinstance(value, ControlState):
            for registered in value.topics.values():
                if registered.in_force:
                    self.add(registered.in_force.epoch)
        if isinstance(value, dict):
            for key in sorted(value):
                self.add(key)
                self.add(value[key])
        elif isinstance(value, set | frozenset):
            for each in sorted(value):
                self.add(each)
        elif isinstance(value, tuple | list):
            for each in value:
                self.add(each)
        else:
            for name in _fields(type(value)):
                self.add(getattr(value, name))
        self.row.append(")")

    def _whole(self, value: int) -> Any:
        if value >= _BEGIN / 2 * NS:
            return self._time(value / NS - self._now)
        return _Epoch(value) if value >= _EPOCH / 2 else value

    @staticmethod
    def _time(seconds: float) -> str:
        return f"in {max(seconds, -2 * LEASE)}"


class _Epoch(int):
    """Told apart from others by their order, and by how far they are, as long as the events that
    are left could come that far."""


_FIELDS: dict[type, list[str]] = {Holder: ["granted", "lease_ends_at", "had_all"]}
_LEFT_OUT = {"history", "term", "look_at"}
"""of a topic: its targets stand; of a gateway: when its lease ends does; and no world is so old
that shares that rest are looked at all the same"""


def _fields(kind: type) -> list[str]:
    if kind not in _FIELDS:
        names = (
            list(kind.model_fields)
            if issubclass(kind, BaseModel)
            else [each.name for each in dataclasses.fields(kind)]
        )
        _FIELDS[kind] = [each for each in names if each not in _LEFT_OUT]
    return _FIELDS[kind]


@lru_cache(maxsize=10_000)
def _content(disk: bytes) -> tuple[Snapshot, str] | None:
    """What a store has, and who leads with it."""
    if not disk:
        return None
    store = Rows(disk)
    return store.snapshot(), store.leader()


def key_of(world: World) -> bytes:
    """The same for worlds that are the same."""
    plain = _Plain(world.now)
    plain.add(
        [
            world.leaders,
            world.gateways,
            world.late,
            _content(world.disk),
            _content(world.copy),
            list(world.left[1:]),
        ]
    )
    places: dict[_Epoch, int] = {}
    place = before = 0
    for epoch in sorted({each for each in plain.row if type(each) is _Epoch}):
        place += min(epoch - before, 3 * world.left.depth + 3)
        places[epoch], before = place, epoch
    row = [f"e{places[each]}" if type(each) is _Epoch else each for each in plain.row]
    return hashlib.blake2b(repr(row).encode(), digest_size=16).digest()


# --- all of them ----------------------------------------------------------------------------------


@dataclass
class Found:
    """worlds: different ones; events: that were followed; faults: shortest chains, with what does
    not hold at their ends; lively: worlds from which four quiet leases were played"""

    worlds: int = 1
    events: int = 0
    lively: int = 0
    faults: list[tuple[tuple[Event, ...], str]] = field(default_factory=list)


_Kept = tuple[tuple[Event, ...], bytes]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Nothing is logged, and nothing proved: proofs are for liars, of which there is none here."""
    logging.disable(logging.CRITICAL)
    try:
        with patch.object(lineage, "_proof", lambda secret, epoch: "p"):
            yield
    finally:
        logging.disable(logging.NOTSET)


def _pack(world: World) -> bytes:
    return zlib.compress(pickle.dumps(world, pickle.HIGHEST_PROTOCOL), 1)


def _unpack(kept: bytes) -> World:
    found: World = pickle.loads(zlib.decompress(kept))
    return found


def _follow(part: tuple[list[_Kept], int]) -> tuple[int, int, list[Any], list[tuple[Any, str]]]:
    """All that may happen next in these worlds: how many events, how many were played on, new
    worlds by key, and faults. Of every `each`-th world it is seen whether it goes on."""
    kept, each = part
    events = lively = 0
    seen: dict[bytes, _Kept] = {}
    faults: list[tuple[Any, str]] = []
    for chain, packed in kept:
        for event in _unpack(packed).events():
            world = _unpack(packed)
            world.happens(event)
            events += 1
            fault = world.fault()
            if fault:
                faults.append(((*chain, event), fault))
                continue
            key = key_of(world)
            if key in seen:
                continue
            seen[key] = (*chain, event), _pack(world)
            if int.from_bytes(key[:4], "big") % each == 0:
                lively += 1
                fault = world.unlively()
                if fault:
                    faults.append(((*chain, event), fault))
    return events, lively, list(seen.items()), faults


@_quiet()
def explore(
    bounds: Bounds,
    first: Sequence[Event] = (),
    each: int = 10,
    workers: int = 1,
    most: int = 10**9,
) -> Found:
    """Follow all events that may come after those of `first`, which the bounds do not count. each:
    it is looked whether one in so many worlds goes on; most: worlds, after which it stops though
    there are more"""
    world = _after(first)
    world.left = bounds
    found, visited = Found(), {key_of(world)}
    level: list[_Kept] = [(tuple(first), _pack(world))]
    context = multiprocessing.get_context("fork")
    with context.Pool(workers) if workers > 1 else contextlib.nullcontext() as pool:
        while level and not found.faults and found.worlds < most:
            parts = [(list(part), each) for part in _parts(level, 200)]
            results: Iterable[Any] = (
                pool.imap_unordered(_follow, parts) if pool else map(_follow, parts)
            )
            level = []
            for events, lively, new, faults in results:
                found.events += events
                found.lively += lively
                found.faults += faults
                for key, kept in new:
                    if key not in visited:
                        visited.add(key)
                        level.append(kept)
            found.worlds = len(visited)
    return found


def _parts(level: Sequence[_Kept], size: int) -> Iterator[Sequence[_Kept]]:
    iterator = iter(level)
    while part := list(itertools.islice(iterator, size)):
        yield part


def _after(events: Sequence[Event]) -> World:
    """The world after these events. Raises AssertionError where something does not hold."""
    world = World.begin(Bounds(*[len(events)] * 4))
    for event in events:
        world.happens(event)
        fault = world.fault()
        assert not fault, fault
    return world


@_quiet()
def replay(events: Sequence[Event]) -> None:
    """Raises AssertionError where something does not hold on the way, or does not come back once
    all is quiet."""
    fault = _after(events).unlively()
    assert not fault, fault


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--faults", type=int, default=2)
    parser.add_argument("--ticks", type=int, default=6)
    parser.add_argument("--places", type=int, default=2)
    parser.add_argument("--most", type=int, default=10**9)
    given = parser.parse_args()
    began = time.monotonic()
    bounds = Bounds(given.depth, given.faults, given.ticks, given.places)
    found = explore(bounds, workers=os.cpu_count() or 1, most=given.most)
    seconds = time.monotonic() - began
    print(f"{found.worlds:,} worlds, {found.events:,} events, {seconds:.0f} s; ", end="")
    print(f"{found.lively:,} played on; {len(found.faults)} faults")
    for chain, fault in sorted(found.faults, key=lambda each: len(each[0]))[:3]:
        print(fault, *chain, sep="\n  ")


if __name__ == "__main__":
    _main()
