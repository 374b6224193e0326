"""Leases: no broker can ever hold what another one may hold, whatever is lost, late or restarted.

The real service and the real gateway's lease, on a network, clocks and a disk made up here.
"""

import asyncio
import sqlite3
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributor.api import PlacementAsked, TopicAsked
from distributor.api_fields import PublisherAsked
from distributor.control import topics
from distributor.control.placements import place
from distributor.control.restored import restored
from distributor.control.service import Distributor
from distributor.errors import Conflict, NotFound, NotLeading
from distributor.gateway_api import BrokerAsked, Desired, Report, TopicReport
from distributor.store import StoreError
from distributor.store.statements import Statement, Value, put_lineage
from distributor.store.store import Store, migrations
from srtm.gateway.lease import Lease, read_desired, safe_share
from srtm.host.clock import NS
from srtm.limits.contract import MIN_RATE, Contract, Limit
from tb_adaptor.leases import NOTHING, Holder, Share, TopicLeases
from tests.support.asynchronous import asynchronous
from tests.support.cases import cases

LEASE = 10.0
BROKERS = ("b1", "b2", "b3", "b4")


class MemoryStore(Store):
    """SQLite without a disk: what was written is there after a restart of the service."""

    def __init__(self) -> None:
        self._database = sqlite3.connect(":memory:")
        for _, statements in migrations(0):
            for sql in statements:
                self._database.execute(sql)

    def lead(self, name: str = "") -> bool:
        return True

    def confirm(self) -> None: ...

    def write(self, statements: Sequence[Statement]) -> None:
        with self._database:
            for each in statements:
                self._database.executemany(each.sql, each.rows)

    def query(self, sql: str) -> list[tuple[Value, ...]]:
        return self._database.execute(sql).fetchall()

    def close(self) -> None:
        self._database.close()


class _Committer:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def write(self, statements: Sequence[Statement]) -> None:
        self._store.write(statements)


class World:
    """Four gateways, a distributor, and reports and answers on their way."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.store = MemoryStore()
        self.gateways = {name: Lease() for name in BROKERS}
        self.reports: list[tuple[str, int, float, Report]] = []
        self.answers: list[tuple[str, int, float, Desired]] = []
        self.lives = dict.fromkeys(BROKERS, 0)
        self.limit = (100.0, 20.0)
        self.start()

    def start(self) -> None:
        state = restored(self.store.snapshot(), self.now + LEASE * 4 / 3)
        self.store.write(put_lineage(state.lineage_row()))
        self.service = Distributor(
            state,
            _Committer(self.store),  # type: ignore[arg-type]
            LEASE,
            lambda: self.now,
            lambda: self.now,
        )

    async def prepare(self) -> None:
        for name in BROKERS:
            await self.register(name)
        rate, burst = self.limit
        await topics.put(self.service, "t", TopicAsked(rate=rate, burst=burst))
        publishers = [PublisherAsked(id=f"p{n}", rate=7.0) for n in range(12)]
        await self.service.registrations.register("t", publishers)

    async def register(self, name: str) -> None:
        lease = self.gateways[name]
        asked = BrokerAsked.model_validate(
            {
                "name": name,
                "tcp_address": "h:1",
                "http_address": "h:2",
                "capacity": 40.0,
                "process": str(self.lives[name]),
                "store": lease.known.store,
                "newest": lease.known.newest,
                "proof": lease.known.proof,
                "held": lease.held(),
            },
            strict=False,
        )
        await self.service.brokers.register(asked)

    def send(self, name: str, busy: bool) -> None:
        topics = [TopicReport(topic="t", offered=float(busy))]
        lease = self.gateways[name]
        report = Report(
            applied_epoch=lease.epoch,
            store=lease.known.store,
            process=str(self.lives[name]),
            topics=topics,
        )
        self.reports.append((name, self.lives[name], self.now, report))

    async def deliver_report(self, index: int) -> None:
        name, life, sent_at, report = self.reports.pop(index)
        try:
            desired = await self.service.report(name, report)
        except NotFound:  # this distributor does not know the process yet, or no more
            if life != self.lives[name]:
                return
            await self.register(name)
            desired = await self.service.report(name, report)
        self.answers.append((name, life, sent_at, desired))

    def deliver_answer(self, index: int) -> None:
        name, life, sent_at, desired = self.answers.pop(index)
        if life == self.lives[name]:  # else the process that asked is gone
            document = read_desired(desired.model_dump(mode="json"))
            self.gateways[name].answered(document, int(sent_at * NS))
            self.expire()

    def crash(self, name: str, keeps: bool) -> None:
        kept = dict(self.gateways[name].applied) if keeps else {}
        self.lives[name] += 1
        self.gateways[name] = Lease()
        self.gateways[name].begin(kept)

    def expire(self) -> None:
        for lease in self.gateways.values():
            lease.expire(int(self.now * NS))

    async def place(self, policy: str, drained: str | None, keep: bool) -> None:
        for name in BROKERS:
            await self.service.brokers.drain(name, name == drained)
        try:
            keep = keep and policy == "srtm"
            await place(self.service, "t", PlacementAsked(policy=policy, keep=keep))  # type: ignore[arg-type]
        except Conflict:
            pass  # no broker is up, or b is too small for all that are left and new

    async def grow(self) -> None:
        rate, burst = self.limit
        self.limit = (rate * 1.37, burst + 3)
        try:
            await topics.put(self.service, "t", TopicAsked(rate=rate * 1.37, burst=burst + 3))
        except Conflict:
            self.limit = (rate, burst)

    async def talk(self, rounds: int) -> None:
        """Nothing is lost for a while."""
        self.reports.clear()
        self.answers.clear()
        for _ in range(rounds):
            self.now += 1.0
            for name in BROKERS:
                self.send(name, busy=False)
                await self.deliver_report(0)
                self.deliver_answer(0)
                self.check()

    def check(self) -> None:
        self.expire()
        held = [lease.applied["t"] for lease in self.gateways.values() if "t" in lease.applied]
        assert sum(Fraction(each.rate) for each in held) <= Fraction(self.limit[0])
        assert sum(Fraction(each.burst) for each in held) <= Fraction(self.limit[1])


_name = st.sampled_from(BROKERS)
_exchange = st.tuples(
    st.just("exchange"), _name, st.booleans(), st.sampled_from(["", "", "lost", "late", "stuck"])
)
_wait = st.tuples(st.just("wait"), st.sampled_from([0.1, 1.0, 4.0, LEASE - 0.1, LEASE, 14.0]))
_operations = st.lists(
    st.one_of(
        _exchange,
        _exchange,
        _exchange,
        _wait,
        st.tuples(st.just("arrive"), st.integers(0, 30)),
        st.tuples(st.just("crash"), _name, st.booleans()),
        st.tuples(st.just("restart")),
        st.tuples(
            st.just("place"),
            st.sampled_from(["srtm", "lb", "conc", "single"]),
            st.one_of(st.none(), _name),
            st.booleans(),
        ),
        st.tuples(st.just("grow")),
        st.tuples(st.just("talk")),
    ),
    max_size=60,
)
"""exchange: a report and its answer; the answer is lost or late, or the report is stuck. arrive:
one that was late or stuck arrives after all"""


async def _run(operations: Sequence[tuple[Any, ...]]) -> World:
    world = World()
    await world.prepare()
    await world.place("srtm", None, False)
    await world.talk(3)
    for what, *arguments in operations:
        match what, arguments:
            case "exchange", [name, busy, fate]:
                world.send(name, busy)
                if fate != "stuck":
                    await world.deliver_report(len(world.reports) - 1)
                    if fate == "lost":
                        world.answers.pop()
                    elif fate != "late":
                        world.deliver_answer(len(world.answers) - 1)
            case "arrive", [index] if world.reports and (index % 2 or not world.answers):
                await world.deliver_report(index % len(world.reports))
            case "arrive", [index] if world.answers:
                world.deliver_answer(index % len(world.answers))
            case "wait", [seconds]:
                world.now += seconds
                world.service.confirmed_at = world.now
            case "crash", [name, keeps]:
                world.crash(name, keeps)
            case "restart", []:
                world.start()
                world.answers.clear()
                for name in BROKERS:
                    await world.register(name)
            case "place", [policy, drained, keep]:
                await world.place(policy, drained, keep)
            case "grow", []:
                await world.grow()
            case "talk", []:
                world.service.confirmed_at = world.now + 3
                await world.talk(3)
        world.check()
    return world


@given(_operations)
@settings(max_examples=cases(300))
def test_the_sum_of_all_shares_never_exceeds_the_contract(operations: list[Any]) -> None:
    asyncio.run(_run(operations))


def test_a_share_that_was_given_up_is_not_taken_for_held_after_a_restart() -> None:
    """The store does not say that the shrink was acknowledged; another one has had it since."""
    operations = [
        ("place", "lb", None, False),
        ("talk",),
        ("restart",),
        ("crash", "b1", False),
        ("place", "srtm", None, False),
        ("exchange", "b1", False, ""),
    ]
    asyncio.run(_run(operations))


@given(_operations)
@settings(max_examples=50)
@asynchronous
async def test_with_contact_everybody_gets_exactly_its_share(operations: list[Any]) -> None:
    world = await _run(operations)
    for name in BROKERS:
        await world.register(name)
    world.service.confirmed_at = world.now + 1e9
    await world.place("srtm", None, False)
    await world.talk(int(3 * LEASE))
    targets = world.service.state.leases["t"].targets
    assert targets
    held = {
        name: Share(lease.applied["t"].rate, lease.applied["t"].burst)
        for name, lease in world.gateways.items()
        if "t" in lease.applied
    }
    assert held == targets
    places = world.service.state.topics["t"].places
    shown = world.service.state.topics["t"].shown
    assert {each: broker for each, (broker, _) in shown.items() if broker} == places


@asynchronous
async def test_whoever_is_not_sure_to_lead_renews_no_lease() -> None:
    world = World()
    await world.prepare()
    world.now += LEASE / 3
    await world.service.report("b1", Report(applied_epoch=0, process="0"))
    world.now += 0.001
    with pytest.raises(NotLeading):
        await world.service.report("b1", Report(applied_epoch=0, process="0"))
    assert world.service.gateway("b1").lease_ends_at == world.now - 0.001 + LEASE


@asynchronous
async def test_a_share_that_was_not_written_is_not_told_until_it_is() -> None:
    world = World()
    await world.prepare()
    await world.place("srtm", None, False)
    write = world.store.write

    def full(_: object) -> None:
        raise StoreError("the disk is full")

    world.store.write = full  # type: ignore[method-assign]
    for _ in range(2):
        with pytest.raises(StoreError):
            await world.service.report("b1", Report(applied_epoch=0, process="0"))
    world.store.write = write  # type: ignore[method-assign]
    told = await world.service.report("b1", Report(applied_epoch=0, process="0"))
    assert told.topics
    kept = world.store.snapshot()
    assert (kept.epoch, kept.grants[-1].epoch) == (told.epoch, told.epoch)


def test_a_share_moves_only_after_the_shrink_was_acknowledged() -> None:
    leases = TopicLeases(Share(100, 10), {"a": Share(100, 10)})
    leases.holders["a"] = Holder().told(1, leases.share("a", 0, False), 10)
    leases.targets = {"a": Share(50, 5), "b": Share(50, 5)}
    assert leases.share("b", 1, False) == NOTHING
    leases.holders["a"] = leases.holders["a"].told(2, leases.share("a", 1, False), 11)
    assert leases.holders["a"].last == Share(50, 5)
    assert leases.share("b", 1, False) == NOTHING  # it may not have arrived
    leases.holders["a"] = leases.holders["a"].heard(2, applied_epoch=1)
    assert leases.share("b", 2, False) == NOTHING
    leases.holders["a"] = leases.holders["a"].heard(3, applied_epoch=2)
    assert leases.share("b", 3, False) == Share(50, 5)


def test_a_lost_brokers_share_is_free_when_its_lease_has_ended_but_for_the_floor() -> None:
    leases = TopicLeases(Share(100, 10), {"a": Share(100, 10)})
    leases.holders["a"] = Holder().told(1, Share(100, 10), 10)
    leases.targets = {"b": Share(100, 10)}
    assert leases.share("b", 9.99, False) == NOTHING
    found = leases.share("b", 10, False)
    assert (found.rate, found.burst) == (pytest.approx(90), pytest.approx(9))
    assert found.rate <= 90
    assert found.burst <= 9


def test_a_share_with_a_lease_grace_is_free_once_that_has_passed_too() -> None:
    total = Share(100, 10, grace=5)
    leases = TopicLeases(total, {"a": Share(100, 10)})
    leases.holders["a"] = Holder().told(1, leases.share("a", 0, False), 10)
    assert leases.holders["a"].last == total
    leases.targets = {"b": Share(100, 10)}
    assert leases.share("b", 14.99, False) == NOTHING
    assert leases.share("b", 15, False).burst == pytest.approx(9)
    assert leases.holders["a"].heard(14.99, 1).last == total, "it has it still"
    assert leases.holders["a"].heard(15, 1).last == total.floor
    assert not leases.holders["a"].is_there(10), "it is out of contact all the same"


def test_brokers_may_have_been_told_of_a_contract_that_was_not_known_here() -> None:
    leases = TopicLeases(Share(100, 10), {"b": Share(100, 10)})
    leases.holders["a"] = Holder(((3, Share(50, 5)), (4, NOTHING)), 10)
    leases.may_keep(Contract(topic="t", rate=100, burst=10, batch=2, lease_grace=5.0))
    assert leases.holders["a"].granted == ((3, Share(50, 5, 2, 5.0)), (4, NOTHING))
    assert leases.holders["a"].most(14) == Share(50, 5, 2, 5.0)
    assert leases.share("b", 15, False).burst == pytest.approx(8)


def test_the_whole_contract_of_a_turn_is_not_kept() -> None:
    """Others have nothing meanwhile."""
    leases = TopicLeases(Share(100, 10, grace=5), {"a": Share(50, 5), "b": Share(50, 5)})
    leases.turns.broker = "a"
    assert leases.share("a", 0, False) == Share(100, 10)


def test_an_older_report_takes_nothing_back() -> None:
    holder = Holder().told(1, Share(10, 1), 10).told(2, Share(5, 1), 11).heard(2, 2)
    assert holder.granted == ((2, Share(5, 1)),)
    assert holder.heard(3, 1) == holder


def test_a_broker_that_never_acknowledges_is_not_remembered_without_bound() -> None:
    holder = Holder()
    for epoch in range(1, 1000):
        holder = holder.told(epoch, Share(epoch % 97 + 1, 1), 10)
    assert len(holder.granted) < 10
    assert holder.most(0) == Share(97, 1)


@pytest.mark.parametrize(
    ("share", "floor"),
    [
        pytest.param(Share(100, 10), Share(10, 1), id="one-message-and-its-part-of-the-rate"),
        pytest.param(Share(1e-6, 2), Share(1e-6, 1), id="no-rate-that-is-none"),
        pytest.param(Share(3, 1), Share(3, 1), id="the-floor-of-a-floor-is-itself"),
        pytest.param(NOTHING, NOTHING, id="nothing-of-nothing"),
    ],
)
def test_floor(share: Share, floor: Share) -> None:
    assert share.floor == floor
    if share != NOTHING:
        limit = safe_share(Limit(rate=share.rate, burst=share.burst))
        assert (limit.rate, limit.burst) == (floor.rate, floor.burst), "a gateway falls to the same"
        assert floor.rate >= MIN_RATE, "it can be told when the gateway registers"


def test_what_is_left_behind_twice_is_counted_together() -> None:
    before = Holder(((5, Share(10, 1)),), 20.0)
    again = Holder(((7, NOTHING), (9, Share(3, 2))), 30.0, (7, 4.0)).besides(before)
    assert again.granted == ((7, Share(10, 1)), (9, Share(3, 2)))
    assert (again.lease_ends_at, again.had_all) == (30.0, (7, 4.0))
    assert before.besides(None) is before
