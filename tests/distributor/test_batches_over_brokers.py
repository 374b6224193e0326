"""Batches over several brokers: the contract bounds them too, and each of them goes some time.

The real service, the real gateways' leases and topics, on a network, clocks and nsqds made up here.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from distributor.api import PlacementAsked, TopicAsked
from distributor.api_fields import PublisherAsked, Unplaced
from distributor.control import topics
from distributor.control.placements import place
from distributor.control.restored import restored
from distributor.control.service import Distributor
from distributor.errors import Conflict, NotFound
from distributor.gateway_api import BrokerAsked, Desired, Report, TopicReport
from distributor.store.statements import put_lineage
from srtm.gateway.lease import Changes, Lease, read_desired
from srtm.gateway.limits import Limits
from srtm.gateway.measure.record import Record
from srtm.host.clock import NS
from srtm.limits.contract import Batches, Limit, Mode
from srtm.limits.excess import worst_excess
from srtm.nsq.commands import message, mpub
from tb_adaptor.turns import TURN_SECONDS
from tests.gateway.test_topic_bucket_time import World as Host
from tests.support.asynchronous import asynchronous
from tests.support.cases import cases
from tests.support.distributors import DistributorProcess, srtm
from tests.support.servers import GatewayProcess, Servers, wait_for
from tests.support.v2 import V2
from tests.tb_adaptor.test_leases import LEASE, MemoryStore, _Committer

NAMES = ("b1", "b2", "b3", "b4")
RATE, BURST = 200.0, 40.0
SOON = 0.05


class Gateway:
    """A host's topic and its lease. next_at: when it reports of itself; coming: an answer on its
    way to it: when it comes, when the report was sent, and what it says"""

    def __init__(self, name: str, now: float, records: list[Record]) -> None:
        self.name = name
        self.lease = Lease()
        self.process = f"{name}-{len(records)}"
        self.next_at = now
        self.coming: tuple[float, float, Desired] | None = None
        self.limits = Limits(None)
        self.host = Host(RATE, BURST)
        self.host.topic.set_limit(None, int(now * NS))
        records.append(self.host.record)

    def apply(self, changes: Changes, now: int) -> None:
        topic, limits = self.host.topic, self.limits
        limits.know(self.lease.known)
        limits.leased = {name.encode(): each for name, each in self.lease.applied.items()}
        if changes.get("t") is not None:
            topic.set_limit(changes["t"], now, 0.0, leased=True)
        elif b"t" not in limits.leased and limits.is_shut(b"t"):
            topic.shut(limits.refuses(b"t"), now)
        elif b"t" not in limits.leased:
            topic.set_limit(None, now)

    def entry(self) -> TopicReport:
        topic = self.host.topic
        now = int(self.host_now)
        level = topic.debt if topic.bucket is None else topic.bucket.level(now)
        refused, topic.refused_batch = topic.refused_batch, 0
        return TopicReport(
            topic="t",
            offered=float(bool(topic.held)),
            backlog=float(topic.waiting),
            waiting=float(topic.waiting),
            batch=max(topic.waiting_batch, refused),
            debt=max(0.0, -level),
        )

    host_now = 0.0


class World:
    """round_trip: seconds from a report to its answer; the distributor has it half way"""

    def __init__(
        self,
        asked: dict[str, Any],
        unplaced: Unplaced = "floor",
        round_trip: float = 0.0,
        rate: float = RATE,
    ) -> None:
        self.now = 1000.0
        self.rate, self.burst = rate, BURST
        self.unplaced, self.round_trip = unplaced, round_trip
        self.store = MemoryStore()
        self.asked = asked
        self.records: list[Record] = []
        self.largest = 1
        self.away: set[str] = set()
        self.answers: list[tuple[str, Gateway, float, Desired]] = []
        self.gateways = {name: Gateway(name, self.now, self.records) for name in NAMES}
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
            self.unplaced,
        )

    async def prepare(self, brokers: int) -> None:
        for name in NAMES:
            await self.register(self.gateways[name])
        await self.contract()
        publishers = [PublisherAsked(id=f"p{n}", rate=10.0) for n in range(4 * brokers)]
        await self.service.registrations.register("t", publishers)
        await self.place(brokers)
        for _ in range(3):
            await self.pass_time(1.0)

    async def contract(self) -> None:
        asked = TopicAsked(rate=self.rate, burst=self.burst, **self.asked)
        await topics.put(self.service, "t", asked)

    async def place(self, brokers: int) -> None:
        for number, name in enumerate(NAMES):
            await self.service.brokers.drain(name, number >= brokers)
        with suppress(Conflict):  # no room while somebody leaves
            await place(self.service, "t", PlacementAsked(policy="lb"))

    async def register(self, gateway: Gateway) -> None:
        known = gateway.lease.known
        document = {
            "name": gateway.name,
            "tcp_address": "h:1",
            "http_address": "h:2",
            "capacity": 500.0,
            "process": gateway.process,
            "instance": gateway.name,
            "store": known.store,
            "newest": known.newest,
            "proof": known.proof,
            "held": gateway.lease.held(),
            "applied_epoch": gateway.lease.epoch,
        }
        await self.service.brokers.register(BrokerAsked.model_validate(document, strict=False))

    async def exchange(self, gateway: Gateway, loses: bool = False) -> None:
        lease = gateway.lease
        gateway.host_now = self.now * NS
        report = Report(
            applied_epoch=lease.epoch,
            store=lease.known.store,
            process=gateway.process,
            names_version=lease.known.names_version,
            topics=[gateway.entry()],
        )
        self.service.confirmed_at = self.now
        try:
            desired = await self.service.report(gateway.name, report)
        except NotFound:
            await self.register(gateway)
            desired = await self.service.report(gateway.name, report)
        gateway.next_at = self.now + desired.report_seconds
        if not loses:
            gateway.coming = (self.now + self.round_trip, self.now, desired)
            self.deliver(gateway)

    def deliver(self, gateway: Gateway) -> None:
        """The answer that is on its way, if it is there by now."""
        if gateway.coming is None or gateway.coming[0] > self.now:
            return
        (_, sent_at, desired), gateway.coming = gateway.coming, None
        before = gateway.lease.epoch
        changes = gateway.lease.answered(
            read_desired(desired.model_dump(mode="json")), int(sent_at * NS)
        )
        if changes is not None:
            gateway.apply(changes, int(self.now * NS))
        changed = gateway.lease.epoch != before
        gateway.next_at = self.now + (SOON if changed else desired.report_seconds)

    async def pass_time(self, seconds: float) -> None:
        """Gateways that are not away report when they are to, and messages go as tokens come."""
        ends = self.now + seconds
        while self.now < ends:
            self.now = min(ends, round(self.now + 0.01, 6))
            now = int(self.now * NS)
            for name, gateway in self.gateways.items():
                changes = gateway.lease.expire(now)
                if changes:
                    gateway.apply(changes, now)
                gateway.host.wake(now)
                if name in self.away:
                    gateway.coming = None
                    continue
                self.deliver(gateway)
                if gateway.coming is None and gateway.next_at <= self.now:
                    await self.exchange(gateway)

    def offer(self, name: str, count: int, atomic: bool) -> None:
        self.largest = max(self.largest, count if atomic else 1)
        now = int(self.now * NS)
        host = self.gateways[name].host
        host.offer(now, count, atomic)
        host.wake(now)

    def crash(self, name: str) -> None:
        """What waited is lost with its clients; share and debts are on disk."""
        before = self.gateways[name]
        topic, now = before.host.topic, int(self.now * NS)
        level = topic.debt if topic.bucket is None else topic.bucket.level(now)
        gateway = self.gateways[name] = Gateway(name, self.now, self.records)
        gateway.process += "-again"
        gateway.host.topic.debt = min(0.0, level)
        gateway.apply(gateway.lease.begin(before.lease.applied, before.lease.known), now)

    async def wipe(self, name: str) -> None:
        """Its state file is lost as it stops, after a last report."""
        await self.exchange(self.gateways[name])
        gateway = self.gateways[name] = Gateway(name, self.now, self.records)
        gateway.process += "-wiped"

    async def finish(self, seconds: int) -> None:
        """Until nothing waits."""
        for _ in range(seconds):
            await self.pass_time(1.0)
            if not self.waiting:
                return
        raise AssertionError("something waits for ever")

    @property
    def waiting(self) -> int:
        return sum(each.host.topic.waiting for each in self.gateways.values())

    def excess(self) -> float:
        """Over max(b, largest batch) + r t, over all brokers."""
        found = []
        for record in self.records:
            for first, step_ns, count in record.admissions:
                if step_ns:
                    found += [(first + number * step_ns, 1) for number in range(count)]
                else:
                    found.append((first, count))
        if not found:
            return -self.burst
        found.sort()
        times = np.array([at for at, _ in found]) / NS
        counts = np.array([float(count) for _, count in found])
        return worst_excess(times - times[0], self.rate, max(self.burst, self.largest), counts)


async def prepared(brokers: int, asked: dict[str, Any], *more: Any, **options: Any) -> World:
    """One whose topic is placed on so many brokers."""
    world = World(asked, *more, **options)
    await world.prepare(brokers)
    return world


ROUNDING = 1e-3
"""messages: times are floats of seconds here"""

_name = st.sampled_from(NAMES)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("offer"), _name, st.integers(1, 60), st.booleans()),
        st.tuples(st.just("offer"), _name, st.sampled_from([20, 40, 41]), st.just(True)),
        st.tuples(st.just("wait"), st.sampled_from([0.02, 0.2, 1.0, 3.0])),
        st.tuples(st.just("lose"), _name),
        st.tuples(st.just("away"), _name),
        st.tuples(st.just("back")),
        st.tuples(st.just("crash"), _name),
        st.tuples(st.just("wipe"), _name),
        st.tuples(st.just("restart")),
        st.tuples(st.just("place"), st.integers(1, 4)),
    ),
    max_size=25,
)


async def play(world: World, operations: Sequence[tuple[Any, ...]]) -> None:
    for what, *arguments in operations:
        match what, arguments:
            case "offer", [name, count, atomic]:
                world.offer(name, count, atomic)
            case "wait", [seconds]:
                await world.pass_time(seconds)
            case "lose", [name] if name not in world.away:
                await world.exchange(world.gateways[name], loses=True)
            case "away", [name]:
                world.away.add(name)
            case "back", []:
                world.away.clear()
            case "crash", [name]:
                world.crash(name)
            case "wipe", [name] if name not in world.away:
                await world.wipe(name)
            case "restart", []:
                world.start()  # gateways hear of it as they report
            case "place", [brokers]:
                await world.place(brokers)


ROUND_TRIPS = [0.0, 0.03, 0.3, 1.1]


@given(
    OPERATIONS,
    st.sampled_from([1, 2, 4]),
    st.sampled_from([{}, {"batch": 20}, {"batch": 40}]),
    st.sampled_from(ROUND_TRIPS),
)
@settings(max_examples=cases(200), deadline=None)
@example([("offer", name, 40, True) for name in NAMES], 4, {}, 0.0)
@example([("offer", name, 60, True) for name in NAMES], 4, {}, 0.03)
@asynchronous
async def test_all_brokers_together_keep_to_the_contract_and_every_batch_goes(
    operations: list[tuple[Any, ...]], brokers: int, asked: dict[str, Any], round_trip: float
) -> None:
    world = await prepared(brokers, asked, round_trip=round_trip)
    await play(world, operations)
    assert world.excess() <= ROUNDING
    world.away.clear()
    await world.finish(500)
    assert world.excess() <= ROUNDING


@asynchronous
async def test_each_broker_for_itself_is_an_option_and_exceeds_the_contract() -> None:
    """Four batches at once, as a contract that says so lets them through."""
    world = await prepared(4, {"batches": Batches.EACH})
    await world.pass_time(1.0)
    for name in NAMES:
        world.offer(name, 40, True)
    await world.pass_time(0.1)
    assert world.waiting == 0
    assert world.excess() == pytest.approx(3 * 40, abs=1.0)


@asynchronous
async def test_singles_at_other_brokers_have_their_turn_between_batches() -> None:
    world = await prepared(4, {})
    for _ in range(200):
        world.offer("b1", 40, True)
    world.offer("b3", 10, False)
    world.offer("b3", 10, False)
    for _ in range(6):
        await world.pass_time(1.0)
    assert world.gateways["b3"].host.topic.waiting == 0
    assert world.gateways["b1"].host.topic.waiting > 0


@pytest.mark.parametrize("unplaced", ["floor", "reject", "pass"])
@pytest.mark.parametrize("round_trip", ROUND_TRIPS)
@asynchronous
async def test_between_turns_messages_wait_whatever_becomes_of_unplaced_ones(
    unplaced: Unplaced, round_trip: float
) -> None:
    """Nobody has a share for a moment as a turn ends."""
    world = await prepared(4, {}, unplaced, round_trip)
    for _ in range(20):
        world.offer("b1", 60, True)
        for _ in range(25):
            for name in NAMES[1:]:
                world.offer(name, 1, False)
            await world.pass_time(0.02)
            for each in world.gateways.values():
                assert each.limits.is_leased(b"t"), "everything passes there"
    for _ in range(60):
        await world.pass_time(1.0)
    assert world.waiting == 0
    assert sum(each.host.publisher.refused for each in world.gateways.values()) == 0
    assert world.excess() <= ROUNDING


@pytest.mark.parametrize("round_trip", ROUND_TRIPS)
@asynchronous
async def test_debts_of_several_brokers_do_not_add_up(round_trip: float) -> None:
    """A batch goes while the answer that ends its broker's turn is on its way."""
    world = await prepared(4, {}, round_trip=round_trip, rate=20.0)
    for _ in range(20):
        world.offer("b1", 60, True)
        world.offer("b3", 60, True)
    await world.finish(200)
    assert world.excess() <= ROUNDING


@pytest.mark.parametrize("rate", [20.0, RATE, 1100.0])
@pytest.mark.parametrize("round_trip", ROUND_TRIPS)
@asynchronous
async def test_brokers_that_owe_again_and_again_take_turns(rate: float, round_trip: float) -> None:
    """Two publishers, each with one batch bigger than b at any time."""
    world = await prepared(4, {}, round_trip=round_trip, rate=rate)
    turn = TURN_SECONDS + 2 * BURST / rate
    handed_over = 0.5 + 5 * round_trip + (20 + BURST) / rate  # a debt, and b anew
    since = {"b1": world.now, "b3": world.now}
    for _ in range(int(20 * turn / 0.01)):
        for name in since:
            if not world.gateways[name].host.topic.waiting:
                since[name] = world.now
                world.offer(name, 60, True)
            assert world.now - since[name] <= turn + 2 * handed_over, f"{name} waits"
        await world.pass_time(0.01)
    assert world.excess() <= ROUNDING


@pytest.mark.parametrize("frozen", [False, True], ids=["it-restarts", "the-distributor-too"])
@asynchronous
async def test_what_a_broker_owes_survives_restarts(frozen: bool) -> None:
    """b1 owes as its share is taken back; nobody else may owe before that is paid."""
    world = await prepared(2, {}, rate=20.0)
    await world.pass_time(3.0)
    world.offer("b1", 100, True)
    while world.gateways["b1"].host.topic.waiting:
        await world.pass_time(0.05)
    world.offer("b2", 100, True)
    await world.pass_time(0.2)
    world.crash("b1")
    if frozen:
        world.start()
        await world.register(world.gateways["b2"])
        world.gateways["b1"].next_at = world.now + 1.0
    for _ in range(20):
        await world.pass_time(1.0)
    assert world.waiting == 0
    assert world.excess() <= ROUNDING


@pytest.mark.parametrize("brokers", [1, 2])
@pytest.mark.parametrize("how", ["wipe", "forget"])
@asynchronous
async def test_what_nobody_knows_to_owe_is_paid_before_anything_else(
    how: str, brokers: int
) -> None:
    """The state file of a broker that owes is lost, or its host for good."""
    world = await prepared(brokers, {}, rate=2.0)
    await world.pass_time(20.0)
    world.offer("b1", 100, True)
    while world.gateways["b1"].host.topic.waiting:
        await world.pass_time(0.05)
    await world.pass_time(1.0)
    if how == "wipe":
        await world.wipe("b1")
    else:
        world.away.add("b1")
        await world.pass_time(2 * LEASE)
        for name in NAMES:
            await world.service.brokers.drain(name, name != "b2")
        await place(world.service, "t", PlacementAsked(policy="lb"))
        await world.service.brokers.forget("b1")
    last = "b1" if brokers == 1 and how == "wipe" else "b2"
    await world.pass_time(2.0)
    world.offer(last, 5, False)
    await world.pass_time(10.0)
    assert world.waiting == 5
    world.offer(last, 100, True)
    world.offer(last, 1, False)
    await world.finish(100)
    assert world.excess() <= ROUNDING


@pytest.mark.parametrize("again", ["crash", "wipe"])
@asynchronous
async def test_batches_of_a_topic_that_rejects_go_on_after_a_restart(again: str) -> None:
    """What is refused does not wait: a debt has to be paid without it."""
    world = await prepared(1, {"mode": Mode.REJECT})
    await world.pass_time(1.0)
    world.offer("b1", 100, True)
    await world.pass_time(0.1)
    if again == "wipe":
        await world.wipe("b1")
    else:
        world.crash("b1")
    await world.pass_time(1.0)
    for _ in range(10):
        world.offer("b1", 60, True)
        await world.pass_time(1.0)
    assert world.gateways["b1"].host.publisher.refused == 0
    assert world.excess() <= ROUNDING


@pytest.mark.parametrize("size", [60, 400], ids=["batches-wait", "it-owes"])
@asynchronous
async def test_the_turn_of_a_broker_that_vanishes_ends_with_its_lease(size: int) -> None:
    world = await prepared(4, {})
    for _ in range(5):
        world.offer("b1", size, True)
    await world.pass_time(0.6)
    world.away.add("b1")
    await world.pass_time(1.0)
    for name in NAMES[1:]:
        world.offer(name, 5, False)
    for _ in range(3):
        await world.pass_time(LEASE)
    assert sum(world.gateways[name].host.topic.waiting for name in NAMES[1:]) == 0
    shares = [world.gateways[name].lease.applied["t"] for name in NAMES[1:]]
    assert sum(each.burst for each in shares) >= 0.7 * BURST
    assert world.excess() <= ROUNDING


@asynchronous
async def test_a_broker_out_of_contact_keeps_no_more_than_the_stated_batch() -> None:
    """However big the batches were that it sent."""
    world = await prepared(4, {})
    for _ in range(10):
        world.offer("b4", 10, True)
        world.offer("b4", 11, True)
        await world.pass_time(0.5)
    world.away.add("b4")
    await world.pass_time(2 * LEASE)
    held = {name: world.gateways[name].lease.applied["t"] for name in NAMES}
    assert held["b4"].burst == 1.0
    assert sum(each.burst for each in held.values()) <= BURST


@asynchronous
async def test_a_broker_that_has_all_of_a_smaller_contract_owes_before_others_get_more() -> None:
    world = await prepared(1, {})
    await world.pass_time(1.0)
    world.away.add("b1")
    world.rate, world.burst = 2 * RATE, 2 * BURST
    await world.contract()
    await world.place(2)
    await world.pass_time(2.0)
    world.offer("b1", 120, True)
    world.offer("b2", 60, False)
    await world.pass_time(0.5)
    assert world.gateways["b1"].host.topic.waiting == 0, "it has all of b, as far as it knows"
    assert world.excess() <= ROUNDING
    world.away.clear()
    await world.pass_time(3.0)
    assert world.waiting == 0
    assert world.excess() <= ROUNDING


@asynchronous
async def test_shares_come_back_when_no_batch_waits_any_more() -> None:
    world = await prepared(4, {})
    world.offer("b2", 60, True)
    await world.pass_time(5.0)
    assert world.waiting == 0
    held = {name: each.lease.applied.get("t") for name, each in world.gateways.items()}
    assert all(held.values())
    assert sum(each.rate for each in held.values() if each) == pytest.approx(RATE)
    assert not any(each.lease.known.suspended for each in world.gateways.values())


@pytest.mark.parametrize(
    ("limit", "fits"),
    [
        pytest.param(Limit(rate=200, burst=40), True, id="a-whole-contract-takes-any-batch"),
        pytest.param(Limit(rate=200, burst=40).share(4), False, id="a-quarter-of-it-does-not"),
        pytest.param(
            Limit(rate=200, burst=40, batches=Batches.EACH).share(4), True, id="but-each-for-itself"
        ),
        pytest.param(Limit(rate=200, burst=40).share(1), True, id="one-broker-has-the-whole"),
    ],
)
def test_who_may_let_a_bigger_batch_go(limit: Limit, fits: bool) -> None:
    assert limit.is_whole is fits


def real_brokers(
    servers: Servers, distributor: DistributorProcess, **contract: object
) -> list[GatewayProcess]:
    """Four real gateways that share r = 200, b = 40, with all tokens there."""
    gateways = [
        servers.gateway(
            f"--distributor-address={distributor.address}",
            f"--broker-name={name}",
            "--broker-capacity=5000",
            f"--admission-log={servers.folder / 'log'}",
        )
        for name in NAMES
    ]
    distributor.topic(rate=RATE, burst=BURST, slo=None, **contract)
    distributor.publishers(8)
    assert len(distributor.place(policy="lb")["brokers"]) == 4
    for gateway in gateways:
        wait_for(lambda g=gateway: g.inside("t").get("tokens", 0) >= 10, "its tokens are there")
    return gateways


@pytest.mark.parametrize("size", [40, 60])
def test_a_batch_at_each_of_four_real_brokers_at_once_keeps_to_the_contract(
    servers: Servers, distributor: DistributorProcess, size: int
) -> None:
    gateways = real_brokers(servers, distributor)
    clients = [V2(gateway.tcp) for gateway in gateways]
    for client in clients:
        client.send(mpub(b"t", [message(b"x")] * size, size))
    for client in clients:
        client.oks(1)
        client.close()
    answer = srtm("audit", "t", str(servers.folder / "log"), "--json")
    found = json.loads(answer.stdout)
    assert found["messages"] == 4 * size
    assert not found["exceeded"]
    assert found["excess"] == 0
    wait_for(
        lambda: all("rate" in gateway.inside("t") for gateway in gateways),
        "each has a share again",
    )


def test_in_a_topic_that_rejects_a_batch_over_the_share_is_told_what_would_do(
    servers: Servers, distributor: DistributorProcess
) -> None:
    [gateway, *_] = real_brokers(servers, distributor, mode="reject")
    with V2(gateway.tcp) as client:
        client.send(mpub(b"t", [message(b"x")] * 40, 40))
        frame = client.frame()
    assert frame is not None
    error = frame.data.decode()
    assert "a batch of 40 is over this broker's share of topic t (burst 10 of 40)" in error
    wait_for(lambda: distributor.ok("GET", "/topics/t")["largest_batch"] == 40, "it is known")
    told = distributor.srtm("topic", "describe", "t").stdout
    advice = "--batch 40 --burst 160"
    assert f"srtm topic set t {advice} gives each broker room for one" in told
    assert distributor.srtm("topic", "set", "t", *advice.split()).returncode == 0
