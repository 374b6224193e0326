"""The lease protocol with everything against it, by a seed: the real service, its store's SQL and
the real gateway's lease and bucket, on a network, clocks and disks made up here. No I/O, no sleep:
a run is a number, and replays alone (`python -m tests.distributor.lease_faults SEED`).

At every instant the shares sum to the contract at most, and over every interval the messages that
get tokens to b + r*t, and what batches bigger than their bucket may exceed that by.
"""

import contextlib
import logging
import random
import sqlite3
import sys
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from distributor.api import AdaptationAsked, TopicAsked
from distributor.api_fields import PublisherAsked
from distributor.control import topics
from distributor.control.placement_inputs import (
    asked_of,
    decide,
    in_force,
    moves,
    require_applicable,
)
from distributor.control.placements import apply
from distributor.control.restored import restored
from distributor.control.service import Distributor
from distributor.control.state import FORMER, UNHEARD
from distributor.errors import Conflict, NotFound
from distributor.gateway_api import BrokerAsked, Desired, Report, TopicReport
from distributor.store import StoreError, StoreLost
from distributor.store.statements import Statement, Value, put_leader, put_lease, put_lineage
from distributor.store.store import Store, migrations
from srtm.gateway.lease import Lease, read_desired
from srtm.host.clock import NS
from srtm.limits.bucket import TokenBucket
from srtm.limits.excess import Contracts, Worst, worst_interval
from srtm.text.errors import SrtmError

LEASE = 10.0
NAMES = ("b1", "b2", "b3")
STEPS = 45
BACKLOG = 1_000_000
"""messages of a publisher that always has more"""
BATCH = 30


class Disk(Store):
    """SQLite without a disk. A copy of it is a back-up; a new one is a lost store."""

    def __init__(self) -> None:
        self.database = sqlite3.connect(":memory:", isolation_level=None)
        self.full = False

    def copy(self) -> "Disk":
        other = Disk()
        self.database.backup(other.database)
        return other

    def lead(self, name: str = "") -> bool:
        if not self.database.execute("PRAGMA user_version").fetchone()[0]:
            for number, statements in migrations(0):
                for sql in statements:
                    self.database.execute(sql)
                self.database.execute(f"PRAGMA user_version = {number}")
        return True

    def confirm(self) -> None: ...

    def write(self, statements: Sequence[Statement]) -> None:
        if self.full:
            raise StoreError("the disk is full")
        self.database.execute("BEGIN")
        for each in statements:
            self.database.executemany(each.sql, each.rows)
        self.database.execute("COMMIT")

    def query(self, sql: str) -> list[tuple[Value, ...]]:
        return self.database.execute(sql).fetchall()

    def close(self) -> None:
        self.database.close()


class Committer:
    """Of one leader: whoever leads after it has taken the row that each write looks at."""

    def __init__(self, disk: Disk, term: str) -> None:
        self.disk = disk
        self.term = term
        self.dies: str | None = None  # in the next write: "before" or "after" it is kept

    async def write(self, statements: Sequence[Statement]) -> None:
        if self.disk.leader() != self.term:
            raise StoreLost("another one leads")
        if self.dies == "before":
            raise StoreLost("killed before the write")
        self.disk.write(statements)
        if self.dies == "after":
            raise StoreLost("killed after the write")


class Admissions:
    """Of all gateways, in bucket time. limits: contracts, each from when it was asked for; rows:
    (first, step, messages) in nanoseconds; debts: by instance, the most that a batch left"""

    def __init__(self) -> None:
        self.limits: list[tuple[int, float, float]] = []
        self.rows: list[tuple[int, float, int]] = []
        self.debts: dict[str, float] = {}

    def worst(self) -> Worst | None:
        if not self.rows:
            return None
        times = np.concatenate(
            [first + (step * np.arange(count)).astype(np.int64) if step else np.array([first])
             for first, step, count in self.rows]
        )  # fmt: skip
        counts = np.concatenate(
            [np.ones(count, dtype=np.int64) if step else np.array([count])
             for _, step, count in self.rows]
        )  # fmt: skip
        order = np.argsort(times, kind="stable")
        since, rates, bursts = (np.array(each) for each in zip(*self.limits, strict=True))
        return worst_interval(times[order], counts[order], Contracts(since, rates, bursts))


@dataclass
class Gateway:
    """A process. name: of its broker; two may have the same. clock: of its host, never compared.

    bucket:  of its share; None without one, `debt` is kept then
    hungry:  since when messages wait for tokens, in nanoseconds; None: none do
    """

    name: str
    instance: str
    process: str
    admissions: Admissions
    lease: Lease = field(default_factory=Lease)
    shut: bool = False
    """It has heard that t has a contract; from then on it is never without a limit."""
    bucket: TokenBucket | None = None
    debt: float = 0.0
    hungry: int | None = None
    served_at: int = 0

    def take(self, desired: Desired, sent_at: float, now: float) -> None:
        self.advance(int(now * NS))
        document = read_desired(desired.model_dump(mode="json"))
        if self.lease.answered(document, int(sent_at * NS)) is not None:
            self.shut = self.shut or self.names_t
        self.fit(int(now * NS))

    def advance(self, now: int) -> None:
        """Messages get tokens until now; the lease ends when it ends, and so does a grace."""
        ends_at = self.lease.ends_at
        graces = {0.0, *(limit.lease_grace or 0.0 for limit in self.lease.applied.values())}
        for grace in sorted(graces if ends_at is not None and not self.lease.is_over else ()):
            at = max((ends_at or 0) + int(grace * NS), self.served_at)
            if at <= now:
                self.serve(at)
                self.lease.expire(at)
                self.fit(at)
        self.serve(now)

    def serve(self, until: int) -> None:
        while self.bucket is not None and self.hungry is not None:
            taken, first, step_ns = self.bucket.take_waiting(BACKLOG, self.hungry, until)
            if not taken:
                break
            self.admissions.rows.append((first, step_ns, taken))
        self.served_at = until

    def send_batch(self, count: int, now: int) -> None:
        """It goes at once, or somebody has sent it in vain."""
        bucket = self.bucket
        if bucket is not None and bucket.take(count, now) is not None:
            self.admissions.rows.append((now, 0.0, count))
            debts, left = self.admissions.debts, max(0.0, count - bucket.burst)
            debts[self.instance] = max(left, debts.get(self.instance, 0.0))

    def fit(self, now: int) -> None:
        """The bucket is as the share; as `srtm.gateway.topics` does. A new one begins empty."""
        share = self.lease.applied.get("t")
        if share is None:
            if self.bucket is not None:
                self.debt, self.bucket = min(0.0, self.bucket.level(now)), None
        elif self.bucket is None:
            self.bucket = TokenBucket(share.rate, share.burst, now, self.debt)
            self.debt = 0.0
        elif (self.bucket.rate, self.bucket.burst) != (share.rate, share.burst):
            self.bucket.rescale(share.rate, share.burst, now)

    @property
    def names_t(self) -> bool:
        return "t" in self.lease.applied or "t" in self.lease.known.names


def registration(lease: Lease, name: str, instance: str, process: str) -> BrokerAsked:
    """What a gateway with this lease says as it registers."""
    return BrokerAsked.model_validate(
        {
            "name": name,
            "tcp_address": f"{process}:1",
            "http_address": "h:2",
            "capacity": 60.0,
            "instance": instance,
            "process": process,
            "store": lease.known.store,
            "applied_epoch": lease.epoch,
            "newest": max(lease.epoch, lease.known.newest),
            "proof": lease.known.proof,
            "lease_seconds": lease.lease_seconds,
            "held": lease.held(),
            "names": sorted(lease.known.names),
        },
        strict=False,
    )


@dataclass
class Leader:
    service: Distributor
    committer: Committer
    deposed: bool = False


class World:
    """Gateways, distributors and what is on its way between them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.traffic = random.Random(f"traffic of {seed}")
        self.clock = random.Random(f"clock of {seed}")
        self.stepped = 0.0  # seconds by which somebody has set the distributor's wall clock
        self.admissions = Admissions()
        self.has_batches = seed % 3 == 1
        self.grace = LEASE if seed % 4 == 2 else 0.0
        """for which brokers keep their shares after a lease, seconds"""
        self.seed = seed
        self.lowers = seed % 5 == 4
        """Its contract is lowered too, and its store is never lost: an older one knows a larger
        contract, and where nobody else remembers, that is the contract again."""
        self.was_lowered = False
        self.former: list[tuple[float, tuple[float, float]]] = []
        self.now = 1000.0
        self.disk = Disk()
        self.copies: list[Disk] = []
        self.count = 0
        self.gateways = [self.gateway(name) for name in NAMES]
        self.late: list[tuple[Gateway, float, Desired]] = []
        self.limit = (100.0, 20.0)
        self.admissions.limits.append((0, *self.limit))
        self.adapted = 0  # rescales
        self.trace: list[str] = []
        self.leaders: list[Leader] = []
        self.lead()

    # --- who is there ---------------------------------------------------------------------------

    def gateway(self, name: str, instance: str = "") -> Gateway:
        self.count += 1
        started_at = int(self.now * NS)
        return Gateway(
            name,
            instance or f"i{self.count}",
            f"p{self.count}",
            self.admissions,
            served_at=started_at,
        )

    def lead(self) -> None:
        """A distributor begins to lead; those before it find out with their next write, or stop a
        third of a lease after they last confirmed that they lead."""
        self.disk.lead()
        self.disk.full = False  # who finds it full waits until it is not
        for each in self.leaders:
            each.deposed = True
        self.count += 1
        term = f"term {self.count}"
        self.disk.write([put_leader("x", term)])
        kept = self.disk.snapshot()
        lease = LEASE / 5 if (self.seed + self.count) % 3 == 0 else LEASE
        longest = max(lease, kept.lease_seconds)
        state = restored(kept, self.now + longest * 4 / 3)
        self.disk.write([put_lease(longest)])
        if kept.lineage is None:
            self.disk.write(put_lineage(state.lineage_row()))
        committer = Committer(self.disk, term)
        wall = self.random.uniform(-1e6, 1e9)
        service = Distributor(
            state,
            committer,  # type: ignore[arg-type]
            lease,
            lambda: self.now,
            lambda: self.now + wall + self.stepped,
            longest_lease=longest,
        )
        self.leaders = [*self.leaders[-1:], Leader(service, committer)]
        self.led_at = self.now
        self.former = [(self.now + LEASE * 8 / 3, limit) for _, limit in self.former]

    @property
    def leader(self) -> Leader:
        return self.leaders[-1]

    def call(self, leader: Leader, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run it to its end. Raises SrtmError; a leader whose store is lost leads no more."""
        if not leader.deposed:
            leader.service.confirmed_at = self.now
        try:
            coroutine.send(None)
        except StopIteration as done:
            return done.value
        except StoreLost:
            self.leaders = [each for each in self.leaders if each is not leader]
            if not self.leaders or self.leaders[-1].deposed:
                self.lead()
            raise
        raise AssertionError("nothing here waits")

    # --- what happens ---------------------------------------------------------------------------

    def prepare(self) -> None:
        for each in self.gateways:
            self.exchange(each, "")
        rate, burst = self.limit
        self.call(self.leader, topics.put(self.leader.service, "t", self.asked(rate, burst)))
        policy = self.random.choice(["srtm", "paper"])
        settings = AdaptationAsked(policy=policy, window="10s", every="1s")
        self.call(self.leader, self.leader.service.set_adaptation("t", settings))
        self.place("srtm")
        for _ in range(3):
            for each in self.gateways:
                self.exchange(each, "")

    def asked(self, rate: float, burst: float) -> TopicAsked:
        return TopicAsked(rate=rate, burst=burst, lease_grace=self.grace or None)

    def place(self, policy: str) -> None:
        service = self.leader.service
        if "t" not in service.state.topics:
            return
        drained = self.random.choice([None, None, *NAMES])
        publishers = [PublisherAsked(id=f"p{n}", rate=7.0) for n in range(12)]
        try:
            if not service.state.topics["t"].publishers:
                self.call(self.leader, service.registrations.register("t", publishers))
            for name in service.state.gateways:
                if FORMER not in name:
                    self.call(self.leader, service.brokers.drain(name, name == drained))
            topic, leases = service.state.topics["t"], service.state.leases["t"]
            asked = asked_of(service.state, "t", self.now, LEASE)
            placement = decide(policy, asked, keep=False)
            require_applicable(placement, leases, topic.contract, self.now)
            moved = moves(placement.assignment, placement.unplaced, topic)
            applied = in_force(placement, topic, service.state.next_epoch(), self.now)
            self.call(self.leader, apply(service, "t", applied, moved))
        except SrtmError:
            pass  # nobody is registered, or b is too small

    def register(self, gateway: Gateway, leader: Leader) -> None:
        asked = registration(gateway.lease, gateway.name, gateway.instance, gateway.process)
        try:
            self.call(leader, leader.service.brokers.register(asked))
        except Conflict:
            gateway.advance(int(self.now * NS))
            gateway.lease.revoke()
            raise

    def exchange(self, gateway: Gateway, fate: str) -> None:
        """A report and its answer. fate: "lost", "late", or it arrives."""
        leader = self.random.choice(self.leaders)
        self.trace[-1:] = [f"{line} {gateway.process} {fate}" for line in self.trace[-1:]]
        busy = self.random.random() < 0.4
        arrivals = [(float(self.random.randrange(1000)), self.random.choice([5.0, 200.0]))]
        arrivals = arrivals if busy else []
        waiting = float(busy and self.random.randrange(50))
        topics = [TopicReport(topic="t", offered=float(busy), arrivals=arrivals, waiting=waiting)]
        lease, sent_at = gateway.lease, self.now
        report = Report(
            applied_epoch=lease.epoch,
            store=lease.known.store,
            process=gateway.process,
            names_version=lease.known.names_version,
            topics=topics,
        )
        self.now += self.random.choice([0.0, 0.01, 0.5])
        try:
            try:
                desired = self.call(leader, leader.service.report(gateway.name, report))
            except NotFound:
                self.register(gateway, leader)
                desired = self.call(leader, leader.service.report(gateway.name, report))
        except SrtmError as error:
            self.trace.append(f"  {gateway.process}: {error}")
            return
        if fate == "late":
            self.late.append((gateway, sent_at, desired))
        elif fate != "lost":
            gateway.take(desired, sent_at, self.now)

    def step(self) -> None:
        chance = self.random.choice
        what = chance(
            ["exchange"] * 12
            + ["wait", "wait", "arrive", "place", "contract", "settle", "settle", "adapt", "adapt"]
            + [
                "crash",
                "restart",
                "takeover",
                "lose",
                "copy",
                "old",
                "second",
                "lie",
                "die",
                "full",
                "forget",
            ]
        )
        self.trace.append(f"{self.now:.2f} {what}")
        match what:
            case "exchange":
                self.exchange(chance(self.gateways), chance(["", "", "", "lost", "late"]))
            case "wait":
                self.now += chance([0.1, 1.0, 4.0, LEASE - 0.1, LEASE, 14.0])
            case "arrive" if self.late:
                gateway, sent_at, desired = self.late.pop(chance(range(len(self.late))))
                if gateway in self.gateways and self.now - sent_at < 2:  # else it has given up
                    gateway.take(desired, sent_at, self.now)
            case "place":
                self.place(chance(["srtm", "lb", "conc", "single"]))
            case "contract":
                self.grow()
            case "settle":
                with contextlib.suppress(SrtmError):
                    self.call(self.leader, self.leader.service.settle())
            case "adapt":
                self.adapt()
            case "crash":
                self.crash(chance(self.gateways), keeps=chance([True, True, False]))
            case "restart" | "takeover":
                if what == "restart":
                    self.leaders = []
                self.lead()
            case "lose" | "copy" | "old" | "lie" if self.lowers:
                self.lower()
            case "lose":
                self.replaced_by(Disk())
            case "copy":
                self.copies = [*self.copies[-2:], self.disk.copy()]
            case "old" if self.copies:
                self.replaced_by(chance(self.copies).copy())
            case "second":
                self.gateways = [*self.gateways[:5], self.gateway(chance(NAMES))]
            case "lie":
                self.lie()
            case "die":
                self.leader.committer.dies = chance(["before", "after"])
            case "forget":
                self.forget()
            case "full":
                self.disk.full = not self.disk.full

    def adapt(self) -> None:
        """All report for some seconds, at times in vain, and shares follow what came."""
        for _ in range(3):
            self.now += self.random.choice([0.1, 1.5])
            for each in list(self.gateways):
                self.exchange(each, self.random.choice(["", "", "", "", "lost"]))
            service = self.leader.service
            before = service.adaptor.rescales
            with contextlib.suppress(SrtmError):
                self.call(self.leader, service.adapt())
            self.adapted += service.adaptor.rescales - before

    def grow(self) -> None:
        service, (rate, burst) = self.leader.service, self.limit
        known = service.state.topics.get("t")
        if known is None or (known.contract.rate, known.contract.burst) != self.limit:
            return  # it has to learn first; a contract made smaller is another promise
        grown = (rate * 1.37, burst + 3)
        self.limit = grown  # a write whose outcome is unknown may be kept
        self.allowed()
        self.admissions.limits.append((int(self.now * NS), *self._largest()))
        try:
            self.call(self.leader, topics.put(service, "t", self.asked(*grown)))
        except StoreLost:
            pass
        except SrtmError:
            self.limit = (rate, burst)
            self.admissions.limits.pop()

    def lower(self) -> None:
        """To less than what is in flight and held, but not below the floors of brokers that may be
        away. It holds once the shrinks are acknowledged or the leases have ended; who led before
        gives some for a third of one, and who begins to lead takes nothing away for 4/3 of one."""
        service, before = self.leader.service, self.limit
        if self.was_lowered:
            return
        known = service.state.topics.get("t")
        if known is None or (known.contract.rate, known.contract.burst) != self.limit:
            return
        less = (before[0] * 0.6, before[1] * 0.6)
        try:
            self.call(self.leader, topics.put(service, "t", self.asked(*less)))
        except SrtmError:
            return  # if it was kept all the same, nothing is changed any more
        self.limit, self.was_lowered = less, True
        until = max(self.now + LEASE * 4 / 3, self.led_at + LEASE * 8 / 3) + self.grace
        self.former = [(until, before)]

    def allowed(self) -> tuple[float, float]:
        """The contract, or one before that may hold still; each of r and b for itself."""
        for until in sorted(at for at, _ in self.former if at <= self.now):
            self.former = [each for each in self.former if each[0] > until]
            self.admissions.limits.append((int(until * NS), *self._largest()))
        return self._largest()

    def _largest(self) -> tuple[float, float]:
        limits = [self.limit, *(limit for _, limit in self.former)]
        return max(rate for rate, _ in limits), max(burst for _, burst in limits)

    def forget(self) -> None:
        """Somebody knows that all gateways that run have been heard."""
        service = self.leader.service
        heard = {each.process for each in service.state.gateways.values()}
        if UNHEARD in service.state.gateways and all(
            each.process in heard for each in self.gateways
        ):
            with contextlib.suppress(SrtmError):
                self.call(self.leader, service.brokers.forget(UNHEARD))

    def crash(self, gateway: Gateway, keeps: bool) -> None:
        """keeps: its state file is there"""
        now = int(self.now * NS)
        gateway.advance(now)
        lease, known = gateway.lease, gateway.lease.known
        again = self.gateway(gateway.name, gateway.instance if keeps else "")
        if keeps:
            again.lease.begin(dict(lease.applied), known)
            again.shut = gateway.shut
            left = gateway.debt if gateway.bucket is None else gateway.bucket.level(now)
            again.debt = min(0.0, left)
            again.fit(now)
        self.gateways[self.gateways.index(gateway)] = again

    def replaced_by(self, disk: Disk) -> None:
        """The store that the next leader finds is another. The last one dies, or goes on until it
        looks at its files."""
        self.leaders = self.random.choice([[], self.leaders])
        for each in self.leaders:
            each.committer.term = "its files are gone"
        self.disk = disk
        self.lead()

    def lie(self) -> None:
        """Somebody with the token says what is not so."""
        service, chance = self.leader.service, self.random.choice
        epoch = chance([0, 5, 1000, 2**52, 2**61, service.state.epoch + 1])
        store = chance(["", "elsewhere", service.state.lineage.id])
        try:
            if chance([True, False]):
                report = Report(applied_epoch=epoch, store=store, process="liar")
                self.call(self.leader, service.report(chance(NAMES), report))
            else:
                share = {"rate": 1e6, "burst": 1e6, "topic_rate": 1e9, "topic_burst": 1e9}
                asked = BrokerAsked.model_validate(
                    {
                        "name": chance([*NAMES, "liar"]),
                        "tcp_address": "h:1",
                        "http_address": "h:1",
                        "instance": "liar",
                        "process": "liar",
                        "store": store,
                        "applied_epoch": epoch,
                        "newest": epoch,
                        "proof": "0" * 24,
                        "held": [{"topic": "u", **share}],
                    },
                    strict=False,
                )
                self.call(self.leader, service.brokers.register(asked))
        except SrtmError:
            pass

    # --- what must hold -------------------------------------------------------------------------

    def flow(self) -> None:
        """Messages come and stop coming; batches too, some bigger than any bucket. And somebody
        sets a clock."""
        chance, now = self.traffic.random, int(self.now * NS)
        if self.clock.random() < 0.02:
            self.stepped += self.clock.choice([-3600.0, 3600.0])
        for each in self.gateways:
            each.advance(now)
            if chance() < 0.2:
                each.hungry = now if each.hungry is None else None
                each.serve(now)
            if self.has_batches and chance() < 0.1:
                each.send_batch(self.traffic.choice([3, BATCH]), now)

    def check(self) -> None:
        for each in self.gateways:
            each.advance(int(self.now * NS))
        held = [each.lease.applied["t"] for each in self.gateways if "t" in each.lease.applied]
        rate, burst = self.allowed()
        assert sum(Fraction(each.rate) for each in held) <= Fraction(rate)
        assert sum(Fraction(each.burst) for each in held) <= Fraction(burst)
        for each in self.gateways:
            assert not each.shut or each.names_t, f"{each.process} has dropped its limit"

    def check_admissions(self) -> None:
        """Over every interval there was."""
        worst = self.admissions.worst()
        allowance = sum(self.admissions.debts.values())
        assert worst is None or worst.excess <= allowance + ROUNDING, f"{worst}, {allowance}"


ROUNDING = 1e-3
"""messages: a bucket time is a whole number of nanoseconds"""


def run(seed: int) -> World:
    world = World(seed)
    world.prepare()
    for _ in range(STEPS):
        world.step()
        world.check()
        world.flow()
    world.check_admissions()
    return world


def failing(seeds: range) -> list[int]:
    """Seeds of runs in which something did not hold."""
    found = []
    logging.disable(logging.CRITICAL)
    try:
        for seed in seeds:
            try:
                run(seed)
            except AssertionError:
                found.append(seed)
    finally:
        logging.disable(logging.NOTSET)
    return found


def _shown(gateway: Gateway) -> str:
    share = gateway.lease.applied.get("t")
    held = f"{share.rate:.4g}/{share.burst:.3g}" if share else "-"
    return f"{gateway.name} {gateway.instance} {gateway.process} @{gateway.lease.epoch} {held}"


def _main(seed: int) -> None:
    world = World(seed)
    try:
        world.prepare()
        for _ in range(STEPS):
            world.step()
            held = "  ".join(map(_shown, world.gateways))
            world.trace.append(f"    {held}; contract {world.limit[0]:.4g}/{world.limit[1]:.3g}")
            world.check()
            world.flow()
        world.check_admissions()
    finally:
        print("\n".join(world.trace))


if __name__ == "__main__":
    _main(int(sys.argv[1]))
