"""Two real brokers and a distributor, with more load than the contract: audited through rescales,
changes of the contract, and a kill -9 of each part."""

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from srtm.nsq.commands import pub
from tests.support.distributors import DistributorProcess, Starter, distributors_in, srtm
from tests.support.servers import GatewayProcess, Servers, free_port, wait_for
from tests.support.v2 import V2

RATE, BURST = 200.0, 20.0
BROKERS = ("b0", "b1")
PUBLISHERS, AT_ONCE, EVERY_SECONDS = 3, 8, 0.25
"""of each broker: together nearly what the contract allows, and twice its burst at once"""


class Bursts(threading.Thread):
    """A publisher that sends a few messages at the same instants as all others, at each broker:
    full buckets meet more than they hold. What was not answered is not sent again."""

    def __init__(self, address: str, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self._address, self._over = address, over
        self.acknowledged = 0

    def run(self) -> None:
        while not self._over.is_set():
            with contextlib.suppress(OSError, AssertionError), V2(self._address) as client:
                while not self._over.wait(EVERY_SECONDS - time.monotonic() % EVERY_SECONDS):
                    client.send(pub(b"t", b"x") * AT_ONCE)
                    for _ in range(AT_ONCE):
                        client.oks(1)
                        self.acknowledged += 1
            self._over.wait(0.05)


class World:
    """Everything is a process of its own; each broker logs into a folder of its own."""

    def __init__(self, servers: Servers, start: Starter) -> None:
        self._servers, self._start = servers, start
        self._address = f"127.0.0.1:{free_port()}"
        self.distributor = self._distributor()
        self.folders = [servers.folder / f"log-{name}" for name in BROKERS]
        self._ports = [(free_port(), free_port()) for _ in BROKERS]
        self.nsqds = [servers.nsqd(gateway_ports=ports) for ports in self._ports]
        self.gateways = [self._gateway(number) for number in range(len(BROKERS))]

    def _distributor(self) -> DistributorProcess:
        started = self._start(
            self._servers.folder / "store.db", "--lease-duration=3s", address=self._address
        )
        started.wait_leading()
        return started

    def _gateway(self, number: int) -> GatewayProcess:
        return self._servers.gateway(
            f"--distributor-address={self._address}",
            f"--broker-name={BROKERS[number]}",
            "--broker-capacity=5000",
            f"--admission-log={self.folders[number]}",
            f"--state-file={self._servers.folder / f'state-{number}'}",
            nsqd=self.nsqds[number],
            ports=self._ports[number],
        )

    def contract(self, rate: float, burst: float) -> None:
        self.distributor.topic(rate=rate, burst=burst)
        wait_for(
            lambda: sum(rate_of(each) for each in self.gateways) == pytest.approx(rate),
            "all of the new contract is given out",
            30,
        )

    def place(self, drained: str = "") -> None:
        """The topic on all brokers but one."""
        for name in BROKERS:
            self.distributor.ok("POST", f"/brokers/{name}/drain", {"drain": name == drained})
        self.distributor.place(policy="lb")
        on = [number for number, name in enumerate(BROKERS) if name != drained]
        wait_for(
            lambda: all(rate_of(self.gateways[number]) > RATE / 4 for number in on),
            "each broker of the placement has its share",
            30,
        )

    def kill_gateway(self, number: int) -> None:
        self.gateways[number].process.kill()
        self.gateways[number] = self._gateway(number)

    def kill_distributor(self) -> None:
        self.distributor.process.kill()
        self.distributor = self._distributor()

    def kill_nsqd(self, number: int) -> None:
        nsqd = self.nsqds[number]
        nsqd.process.kill()
        nsqd.process.start()
        nsqd.wait_ready()

    def flows(self) -> None:
        """Each broker that has a share lets messages through again."""
        before = [each.offered("t") for each in self.gateways]
        wait_for(
            lambda: all(
                each.offered("t") > count + 5
                for each, count in zip(self.gateways, before, strict=True)
            ),
            "messages come through every broker",
            30,
        )

    @contextmanager
    def load(self) -> Iterator[list[Bursts]]:
        """At both brokers, while it lasts."""
        over = threading.Event()
        publishers = [Bursts(each.tcp, over) for each in self.gateways for _ in range(PUBLISHERS)]
        for each in publishers:
            each.start()
        try:
            yield publishers
        finally:
            over.set()
            for each in publishers:
                each.join(30)

    def stray(self, messages: int) -> Path:
        """The log of a broker that goes round the distributor: it knows of no contract, and lets
        all of them through."""
        folder = self._servers.folder / "log-stray"
        stray = self._servers.gateway(f"--admission-log={folder}", "--broadcast-address=stray")
        with V2(stray.tcp) as client:
            client.send(pub(b"t", b"x") * messages)
            client.oks(messages)
        assert stray.process.stop() == 0
        return folder

    def stop(self) -> None:
        for each in self.gateways:
            assert each.process.stop() == 0

    def audit(self, *flags: str) -> dict[str, Any]:
        answer = srtm("audit", "t", *map(str, self.folders), *flags, "--json")
        assert answer.returncode in (0, 1), answer.stderr
        document: dict[str, Any] = json.loads(answer.stdout)
        return document


def rate_of(gateway: GatewayProcess) -> float:
    return float(gateway.inside("t").get("rate") or 0.0)


@pytest.fixture
def world(servers: Servers, tmp_path: Path) -> Iterator[World]:
    with distributors_in(tmp_path) as start:
        made = World(servers, start)
        made.distributor.topic(rate=RATE, burst=BURST)
        made.distributor.publishers(8)
        made.place()
        yield made


@pytest.mark.timeout(300)
def test_rescales_and_kills_keep_to_the_contract_and_a_broker_that_goes_round_it_is_found(
    world: World,
) -> None:
    with world.load() as publishers:
        world.flows()
        stray = world.stray(100)
        world.place(drained="b1")  # all of it on one broker, and evenly again
        world.place()
        world.flows()
        world.contract(RATE / 2, BURST / 2)
        world.flows()
        world.contract(RATE * 1.5, BURST * 1.5)
        world.flows()
        world.kill_distributor()
        world.kill_gateway(0)
        world.flows()
        world.kill_nsqd(1)
        world.flows()
    world.stop()
    document = world.audit()
    assert document["excess"] == 0, document
    assert not document["exceeded"]
    assert document["unjudged"] == 0
    assert document["clock_error_seconds"] == 0  # one machine
    told = [(each["rate"], each["burst"]) for each in document["contract"]]
    assert {(RATE, BURST), (RATE / 2, BURST / 2), (RATE * 1.5, BURST * 1.5)} <= set(told)
    assert {each["source"] for each in document["contract"]} == {"distributor"}
    # It judged a stream that the contract held back, not a trickle.
    acknowledged = sum(each.acknowledged for each in publishers)
    missing = sum(gap["at_most"] or 0 for gap in document["gaps"] if gap["kind"] == "cut")
    assert acknowledged > 5 * BURST
    assert acknowledged <= document["messages"] + missing
    assert document["interval"]["messages"] > document["interval"]["allowed"] * 0.75
    for each in document["brokers"].values():
        assert each["excess_over_share"] < 1e-5
    assert [(gap["broker"], gap["kind"]) for gap in document["gaps"]] == [("b0", "cut")]
    processes = {name: each["processes"] for name, each in document["brokers"].items()}
    assert processes == {"b0": 2, "b1": 1}
    # The same streams exceed a contract that is not theirs.
    half = world.audit(f"--rate={RATE / 4}", f"--burst={BURST / 4}")
    assert half["exceeded"]
    assert half["excess"] > 1
    world.folders.append(stray)
    whole = world.audit()
    assert whole["exceeded"]
    assert whole["excess"] >= 100 - BURST - RATE * whole["interval"]["seconds"] - 1e-6
    assert whole["unjudged"] == 0
    shown = srtm("audit", "t", *map(str, world.folders))
    assert shown.returncode == 1
    assert "the contract was EXCEEDED" in shown.stdout
