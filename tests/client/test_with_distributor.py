"""Publishers, gateways, nsqds and the Load Distributor, all of them real processes."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from srtm.client import NotSent, OutcomeUnknown, Publisher
from tests.support.distributors import DistributorProcess, Starter, distributors_in, srtm
from tests.support.servers import GatewayProcess, Servers, wait_for
from tests.support.v2 import V2

PUBLISHERS = 6


@pytest.fixture
def start(servers: Servers) -> Iterator[Starter]:
    with distributors_in(servers.folder) as starter:
        yield starter


def led(start: Starter, servers: Servers, *flags: str) -> DistributorProcess:
    running = start(servers.folder / "distributor.db", *flags)
    running.wait_leading()
    return running


def apply(distributor: DistributorProcess) -> list[str]:
    """Place topic t anew; the brokers that it is on."""
    plan = distributor.place(policy="srtm")
    assert not plan["unplaced"], plan["reasons"]
    return [broker["name"] for broker in plan["brokers"] if broker["publishers"]]


def drain(distributor: DistributorProcess, broker: str, drains: bool) -> None:
    distributor.ok("POST", f"/brokers/{broker}/drain", {"drain": drains})


def register(distributor: DistributorProcess) -> None:
    rows = [{"id": "p", "rate": 100}]
    distributor.ok("POST", "/topics/t/publishers", {"publishers": rows})


def brokers(servers: Servers, distributor: DistributorProcess, count: int) -> list[GatewayProcess]:
    gateways = [
        servers.gateway(
            f"--distributor-address={distributor.address}",
            f"--broker-name=b{number}",
            "--broker-capacity=5000",
        )
        for number in range(count)
    ]
    for gateway in gateways:
        with V2(gateway.nsqd.tcp) as consumer:  # so that a channel keeps every message
            consumer.subscribe("t", "c", ready=0)
    return gateways


def stored(gateways: list[GatewayProcess]) -> list[bytes]:
    """Everything that the brokers keep, in order of nsqd's own time of receipt."""
    found = []
    for gateway in gateways:
        count = gateway.nsqd.message_count("t")
        with V2(gateway.nsqd.tcp) as consumer:
            consumer.subscribe("t", "c", ready=2500)
            got = [consumer.message() for _ in range(count)]
        found += [(message.timestamp_ns, message.body) for message in got]
    return [body for _, body in sorted(found, key=lambda each: each[0])]


def of(publisher: str, bodies: list[bytes]) -> list[int]:
    pairs = [body.decode().split(":") for body in bodies]
    return [int(number) for name, number in pairs if name == publisher]


class Load:
    """Publishers that send numbered messages until they are told to stop."""

    def __init__(self, address: str) -> None:
        self.publishers = [
            Publisher(
                "t", key=f"k{n % 2}", id=f"p{n}", rate=100, distributor=address, max_in_flight=20
            )
            for n in range(PUBLISHERS)
        ]
        self.receipts: dict[str, list[asyncio.Future[None]]] = {p.id: [] for p in self.publishers}
        self.stop = asyncio.Event()

    async def send(self, publisher: Publisher) -> None:
        receipts = self.receipts[publisher.id]
        async with publisher:
            while not self.stop.is_set():
                body = f"{publisher.id}:{len(receipts)}".encode()
                receipts.append(await publisher.send(body))
                await asyncio.sleep(0.002)
            await publisher.flush()

    def ended(self, publisher: str) -> dict[str, list[int]]:
        """Numbers by outcome."""
        found: dict[str, list[int]] = {}
        for number, receipt in enumerate(self.receipts[publisher]):
            error = receipt.exception()
            found.setdefault(type(error).__name__ if error else "OK", []).append(number)
        return found


async def under_load(
    distributor: DistributorProcess,
    disturb: Callable[[Load], Awaitable[None]],
    seconds: float = 60,
    slo: str = "0.99@5ms",
) -> Load:
    """Topic, publishers and their placement; `disturb` while they send."""
    load = Load(distributor.address)
    await asyncio.to_thread(distributor.topic, rate=20_000, burst=2000, slo=slo)
    async with asyncio.timeout(seconds):
        sending = [asyncio.create_task(load.send(publisher)) for publisher in load.publishers]

        def registered() -> bool:
            return bool(distributor.ok("GET", "/topics/t")["publishers"] == PUBLISHERS)

        while not await asyncio.to_thread(registered):
            await asyncio.sleep(0.02)
        await asyncio.to_thread(apply, distributor)
        await each_has(load, 20)
        await disturb(load)
        load.stop.set()
        await asyncio.gather(*sending)
    return load


async def each_has(load: Load, more: int) -> None:
    """Wait until each publisher has got so many more OKs."""
    marks = {name: len(receipts) + more for name, receipts in load.receipts.items()}
    for name, mark in marks.items():
        while sum(receipt.done() for receipt in load.receipts[name][:mark]) < mark:
            await asyncio.sleep(0.005)


def test_moves_under_load_lose_nothing_and_keep_each_publishers_order(
    servers: Servers, distributor: DistributorProcess
) -> None:
    gateways = brokers(servers, distributor, 2)
    where = {gateway.tcp: f"b{number}" for number, gateway in enumerate(gateways)}

    async def disturb(load: Load) -> None:
        for _ in range(4):
            [here] = {where[publisher.address] for publisher in load.publishers}
            there = "b1" if here == "b0" else "b0"
            await asyncio.to_thread(drain, distributor, there, False)
            await asyncio.to_thread(drain, distributor, here, True)
            assert await asyncio.to_thread(apply, distributor) == [there]
            while {where[publisher.address] for publisher in load.publishers} != {there}:
                await asyncio.sleep(0.01)
            await each_has(load, 20)

    load = asyncio.run(under_load(distributor, disturb))
    bodies = stored(gateways)
    assert all(gateway.nsqd.message_count("t") > 0 for gateway in gateways)
    for publisher in load.publishers:
        assert publisher.moves == 4
        assert list(load.ended(publisher.id)) == ["OK"]
        numbers = of(publisher.id, bodies)
        assert numbers == list(range(len(load.receipts[publisher.id])))


@pytest.mark.timeout(240)  # a round that meets its SLO needs its samples: 56 s on two idle cores
@pytest.mark.parametrize(
    ("slo", "state", "on"),
    [
        pytest.param("0.9@1s", "met", 1, id="one-broker-does"),
        pytest.param("0.9@1us", "best", 2, id="none-do-so-all-were-tried"),
    ],
)
def test_a_topic_is_fitted_by_what_its_brokers_measure(
    servers: Servers, distributor: DistributorProcess, slo: str, state: str, on: int
) -> None:
    brokers(servers, distributor, 2)
    done: dict[str, Any] = {}

    async def disturb(load: Load) -> None:
        fitted = await asyncio.to_thread(
            srtm, "placement", "fit", "t", f"--distributor-address={distributor.address}", "--json"
        )
        assert fitted.returncode == (0 if state == "met" else 1), fitted.stderr
        done.update(json.loads(fitted.stdout))

    load = asyncio.run(under_load(distributor, disturb, 120, slo))
    assert done["state"] == state, done["reasons"]
    plans = distributor.ok("GET", "/topics/t/placements")["placements"]
    assert max(len(each["brokers"]) for each in plans if each["policy"] == "fit") == on
    reasons = " ".join(each for plan in plans for each in plan["reasons"])
    assert "messages late" in reasons, "brokers have measured"
    for publisher in load.publishers:
        assert list(load.ended(publisher.id)) == ["OK"]


def test_when_a_gateway_dies_only_those_in_flight_are_unknown(
    servers: Servers, distributor: DistributorProcess
) -> None:
    [gateway] = brokers(servers, distributor, 1)

    async def disturb(load: Load) -> None:
        gateway.process.kill()
        gateway.process.start()
        await each_has(load, 40)

    load = asyncio.run(under_load(distributor, disturb))
    bodies = stored([gateway])
    for publisher in load.publishers:
        ended = load.ended(publisher.id)
        assert ended.keys() <= {"OK", OutcomeUnknown.__name__}
        unknown = ended.get(OutcomeUnknown.__name__, [])
        assert len(unknown) <= 20, "no more than were in flight"
        numbers = of(publisher.id, bodies)
        assert sorted(set(numbers)) == numbers, "none twice, none out of order"
        assert set(ended["OK"]) <= set(numbers)
        assert set(numbers) <= set(ended["OK"]) | set(unknown)


def test_while_the_distributor_is_killed_and_back_publishers_go_on(
    servers: Servers, start: Starter
) -> None:
    distributor = led(start, servers, "--lease-duration=60s")
    gateways = brokers(servers, distributor, 2)

    async def disturb(load: Load) -> None:
        before = {publisher.address for publisher in load.publishers}
        distributor.process.kill()
        await each_has(load, 50)
        assert {publisher.address for publisher in load.publishers} == before
        await asyncio.to_thread(distributor.process.start)
        await asyncio.to_thread(distributor.wait_leading)
        await each_has(load, 50)

    load = asyncio.run(under_load(distributor, disturb))
    bodies = stored(gateways)
    for publisher in load.publishers:
        assert list(load.ended(publisher.id)) == ["OK"]
        assert of(publisher.id, bodies) == list(range(len(load.receipts[publisher.id])))


def test_shares_reach_the_gateway_and_fall_to_the_safe_share_with_the_lease(
    servers: Servers,
    start: Starter,
) -> None:
    distributor = led(start, servers, "--lease-duration=4s")
    [gateway] = brokers(servers, distributor, 1)
    distributor.topic(rate=1000, burst=50, slo="0.99@5ms")
    register(distributor)
    assert apply(distributor) == ["b0"]
    wait_for(lambda: gateway.inside("t").get("rate") == 1000, "the whole contract is here")
    distributor.process.kill()
    wait_for(lambda: gateway.inside("t")["rate"] == 20, "the safe share: r/b", 20)
    distributor.process.start()
    distributor.wait_leading()
    wait_for(lambda: gateway.inside("t")["rate"] == 1000, "its share is back", 20)


@pytest.mark.parametrize("key", ["k0", "no such key"], ids=["a-known-key", "an-unknown-key"])
def test_a_key_outside_the_topics_own_is_told_to_the_publisher(
    servers: Servers, distributor: DistributorProcess, key: str
) -> None:
    [gateway] = brokers(servers, distributor, 1)
    distributor.topic(rate=1000, burst=50, slo=None, keys=["k0"])

    async def work() -> str:
        publisher = Publisher("t", key=key, id="p", rate=1, distributor=distributor.address)
        async with asyncio.timeout(20), publisher:
            receipt = await publisher.send(b"x")
            if key == "k0":
                while not (await asyncio.to_thread(registered)):
                    await asyncio.sleep(0.02)
                await asyncio.to_thread(apply, distributor)
            [error] = await asyncio.gather(receipt, return_exceptions=True)
        return str(error or "")

    def registered() -> bool:
        return bool(distributor.ok("GET", "/topics/t")["publishers"])

    error = asyncio.run(work())
    if key == "k0":
        assert error == ""
        assert gateway.nsqd.message_count("t") == 1
    else:
        assert 'key "no such key" is none of the 1' in error


def test_who_registers_itself_into_a_placed_topic_publishes_at_once(
    servers: Servers, distributor: DistributorProcess
) -> None:
    [gateway] = brokers(servers, distributor, 1)
    distributor.topic(rate=1000, burst=50, slo=None)
    register(distributor)
    apply(distributor)

    async def work() -> None:
        publisher = Publisher("t", id="new", rate=1, distributor=distributor.address)
        async with asyncio.timeout(20), publisher:
            await publisher.publish(b"x")

    asyncio.run(work())
    assert gateway.nsqd.message_count("t") == 1


def test_who_finds_no_room_is_told_what_to_do(
    servers: Servers, distributor: DistributorProcess
) -> None:
    brokers(servers, distributor, 1)
    distributor.topic(rate=1000, burst=50, slo=None)
    register(distributor)
    apply(distributor)

    async def work() -> None:
        publisher = Publisher(
            "t", id="new", rate=9000, distributor=distributor.address, place_timeout=1
        )
        async with asyncio.timeout(20), publisher:
            with pytest.raises(NotSent, match="srtm placement apply t --keep places it"):
                await publisher.publish(b"x")

    asyncio.run(work())
