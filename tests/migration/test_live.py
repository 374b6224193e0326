"""Publishers that move while they send, through real gateways, nsqds and the Load Distributor."""

import asyncio
from pathlib import Path
from typing import Any

from srtm.client import Publisher
from tests.support.distributors import DistributorProcess, distributors_in
from tests.support.servers import GatewayProcess, Servers, http
from tests.support.v2 import V2

CAPACITY = 200
SLOW, FAST = 20.0, 150.0
"""messages/s"""


class Load:
    """p0 to p5 send numbered messages at `rates`, and count on every OK."""

    def __init__(self, address: str) -> None:
        self.publishers = [
            Publisher("t", id=f"p{n}", rate=SLOW, distributor=address) for n in range(6)
        ]
        self.rates = {each.id: SLOW for each in self.publishers}
        self.receipts: dict[str, list[asyncio.Future[None]]] = {p.id: [] for p in self.publishers}
        self.over = asyncio.Event()

    async def send(self, publisher: Publisher) -> None:
        receipts, loop = self.receipts[publisher.id], asyncio.get_running_loop()
        async with publisher:
            due = loop.time()
            while not self.over.is_set():
                receipts.append(await publisher.send(f"{publisher.id}:{len(receipts)}".encode()))
                due += 1 / self.rates[publisher.id]
                await asyncio.sleep(max(0.0, due - loop.time()))
            await publisher.flush()


def test_the_one_that_grew_moves_and_loses_nothing(servers: Servers, tmp_path: Path) -> None:
    with distributors_in(tmp_path) as start:
        distributor = start()
        distributor.wait_leading()
        gateways = [
            servers.gateway(
                f"--distributor-address={distributor.address}",
                f"--broker-name={name}",
                f"--broker-capacity={CAPACITY}",
            )
            for name in ("b0", "b1")
        ]
        for gateway in gateways:
            with V2(gateway.nsqd.tcp) as consumer:  # a channel keeps every message
                consumer.subscribe("t", "c", ready=0)
        distributor.topic(rate=400.0, burst=40.0, slo=None)
        rows = [{"id": f"p{n}", "key": None, "rate": SLOW} for n in range(6)]
        distributor.ok("POST", "/topics/t/publishers", {"publishers": rows})
        distributor.place()
        load = Load(distributor.address)
        asyncio.run(through_it_all(load, distributor))
        check_what_is_stored(load, gateways)


async def through_it_all(load: Load, distributor: DistributorProcess) -> None:
    async def found() -> Any:
        return await asyncio.to_thread(distributor.ok, "GET", "/topics/t/migrations")

    async def until(condition: str, seconds: float = 60.0) -> Any:
        """Of what is shown."""
        async with asyncio.timeout(seconds):
            while not (await found())[condition]:
                await asyncio.sleep(0.1)
        return await found()

    sending = [asyncio.create_task(load.send(each)) for each in load.publishers]
    try:
        where = {each.id: await placed(each) for each in load.publishers}
        assert len(set(where.values())) == 1, "one broker holds them all"
        load.rates["p1"] = FAST
        shown = (await until("proposed"))["proposed"]
        assert [(move["publisher"], move["target"] != move["source"]) for move in shown["moves"]] \
            == [("p1", True)]  # fmt: skip
        [move] = shown["moves"]
        assert abs(move["rate"] - FAST) < 0.2 * FAST, "as it was measured, not as declared"
        told = await asyncio.to_thread(distributor.srtm, "placement", "migrations", "t")
        assert "proposed; srtm placement migrate t carries it out" in told.stdout, told
        assert f"p1 from {move['source']} to {move['target']}" in told.stdout
        assert load.publishers[1].address == where["p1"], "only proposed"

        done = await asyncio.to_thread(
            distributor.srtm, "topic", "set", "t", "--migrate=auto", "--json"
        )
        assert done.returncode == 0, done.stderr
        shown = await until("applied")
        assert [each["publisher"] for each in shown["applied"][0]["moves"]] == ["p1"]
        async with asyncio.timeout(30):
            while not load.publishers[1].moves:
                await asyncio.sleep(0.05)
        before = len(load.receipts["p1"])
        async with asyncio.timeout(30):
            while len(load.receipts["p1"]) < before + 3 * FAST:  # it goes on there
                await asyncio.sleep(0.05)
        assert load.publishers[1].address != where["p1"]
        assert [each.moves for each in load.publishers] == [0, 1, 0, 0, 0, 0]
        assert len((await found())["applied"]) == 1
        metrics = (await asyncio.to_thread(http, distributor.address, "/metrics"))[1]
        assert "srtm_distributor_migrated_publishers_total 1" in metrics
    finally:
        load.over.set()
        await asyncio.gather(*sending)


async def placed(publisher: Publisher) -> str:
    async with asyncio.timeout(30):
        while not publisher.address:
            await asyncio.sleep(0.05)
    return publisher.address


def check_what_is_stored(load: Load, gateways: list[GatewayProcess]) -> None:
    """Every message has its OK, is stored once, and came in its publisher's order."""
    stored = []
    for gateway in gateways:
        count = gateway.nsqd.message_count("t")
        with V2(gateway.nsqd.tcp) as consumer:
            consumer.subscribe("t", "c", ready=2500)
            got = [consumer.message() for _ in range(count)]
        stored += [(message.timestamp_ns, message.body.decode().split(":")) for message in got]
    stored.sort(key=lambda each: each[0])
    for name, receipts in load.receipts.items():
        for each in receipts:
            each.result()
        assert [int(number) for _, (who, number) in stored if who == name] \
            == list(range(len(receipts)))  # fmt: skip
