"""Real gateways at a real distributor: a topic that it knows has a limit on every broker."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from srtm.nsq.commands import message, mpub, pub
from srtm.text.errors import Exit
from tests.support.distributors import DistributorProcess, Starter, distributors_in
from tests.support.servers import GatewayProcess, Servers, free_port, http, wait_for
from tests.support.v2 import V2

RATE, BURST = 2.0, 4.0
FLOOD = 300


@pytest.fixture
def start(servers: Servers) -> Iterator[Starter]:
    with distributors_in(servers.folder) as starter:
        yield starter


@pytest.fixture
def store(servers: Servers) -> Path:
    return servers.folder / "store.db"


def broker(servers: Servers, at: DistributorProcess, name: str, *flags: str) -> GatewayProcess:
    return servers.gateway(
        f"--distributor-address={at.address}",
        f"--broker-name={name}",
        "--broker-capacity=1000",
        f"--state-file={servers.folder / name}.json",
        *flags,
    )


def led(start: Starter, store: Path, *flags: str, address: str | None = None) -> DistributorProcess:
    running = start(store, *flags, address=address)
    running.wait_leading()
    return running


def on_b1_alone(distributor: DistributorProcess, b1: GatewayProcess, **contract: object) -> None:
    """Topic t with one publisher, which b1 serves."""
    distributor.topic(rate=RATE, burst=BURST, slo=None, **contract)
    distributor.ok("POST", "/topics/t/publishers", {"publishers": [{"id": "p", "rate": 1.0}]})
    distributor.ok("POST", "/brokers/b2/drain", {"drain": True})
    distributor.place()
    distributor.ok("POST", "/brokers/b2/drain", {"drain": False})
    wait_for(lambda: rate_of(b1) == RATE, "b1 has the whole contract")


def rate_of(gateway: GatewayProcess) -> float | None:
    found = gateway.inside("t").get("rate")
    return None if found is None else float(found)


def knows(gateway: GatewayProcess, topic: str = "t") -> bool:
    """Is it told that the topic has a contract?"""
    state = json.loads((gateway_state(gateway)).read_text())
    return topic in state["distributor"]["names"]


def gateway_state(gateway: GatewayProcess) -> Path:
    flag = next(each for each in gateway.process.arguments if each.startswith("--state-file="))
    return Path(flag.partition("=")[2])


def stored(*gateways: GatewayProcess) -> int:
    return sum(each.nsqd.message_count("t") for each in gateways)


def test_a_flood_beside_the_placement_gets_a_floor_inside_the_contract(
    servers: Servers, start: Starter, store: Path
) -> None:
    distributor = led(start, store)
    b1, b2 = (broker(servers, distributor, name) for name in ("b1", "b2"))
    on_b1_alone(distributor, b1)
    wait_for(lambda: knows(b2), "b2 is told that t has a contract")
    with V2(b2.tcp) as publisher:
        publisher.send(pub(b"t", b"x") * FLOOD)
        wait_for(lambda: rate_of(b2) == RATE / BURST, "b2 has a floor")
        assert rate_of(b1) == pytest.approx(RATE - RATE / BURST)
        publisher.oks(2)
        assert stored(b2) < FLOOD / 10
    assert b2.inside("t")["burst"] == 1


@pytest.mark.parametrize(
    ("unplaced", "answer"), [("reject", b"E_PUB_FAILED topic t has no share"), ("pass", b"OK")]
)
def test_what_becomes_of_messages_beside_the_placement_is_an_option(
    servers: Servers, start: Starter, store: Path, unplaced: str, answer: bytes
) -> None:
    distributor = led(start, store, f"--unplaced={unplaced}")
    b1, b2 = (broker(servers, distributor, name) for name in ("b1", "b2"))
    on_b1_alone(distributor, b1)
    if unplaced == "reject":
        wait_for(lambda: knows(b2), "b2 is told that t has a contract")
        status, said, headers = http(b2.http, "/pub?topic=t", b"x")
        assert status == 429
        assert "Retry-After" not in headers, "it would be refused again"
        assert "no share of its contract on this broker" in str(said)
    with V2(b2.tcp) as publisher:
        publisher.send(pub(b"t", b"x"))
        assert (publisher.reply() or b"").startswith(answer)
        publisher.send(pub(b"other", b"x")) if unplaced == "pass" else None


def test_a_lost_store_leaves_every_limit_in_force(
    servers: Servers, start: Starter, store: Path
) -> None:
    first = led(start, store, "--lease-duration=3s")
    b1, b2 = (broker(servers, first, name) for name in ("b1", "b2"))
    on_b1_alone(first, b1)
    wait_for(lambda: knows(b2), "b2 is told that t has a contract")
    first.process.kill()
    for each in store.parent.glob("store.db*"):
        each.unlink()
    second = led(start, store, "--lease-duration=3s", address=first.address)
    with V2(b1.tcp) as one, V2(b2.tcp) as other:
        for each in (one, other):
            each.send(pub(b"t", b"x") * FLOOD)

        def recovered() -> bool:
            assert rate_of(b1) is not None
            assert stored(b1, b2) < FLOOD / 5
            return "is split as gateways held it" in str(second.ok("GET", "/health"))

        wait_for(recovered, "the new store is as good as the old one", 30)
        assert second.ok("GET", "/topics/t")["rate"] == RATE
    text = second.process.text()
    assert "ERROR srtm.distributor: the store is another one than gateways were led by" in text


def test_a_limit_beside_the_placement_holds_over_a_restart_without_the_distributor(
    servers: Servers, start: Starter, store: Path
) -> None:
    distributor = led(start, store)
    b1, b2 = (broker(servers, distributor, name) for name in ("b1", "b2"))
    on_b1_alone(distributor, b1)
    wait_for(lambda: knows(b2), "b2 is told that t has a contract")
    distributor.process.kill()
    b2.process.kill()
    b2.process.start()
    b2.wait_ready()
    with V2(b2.tcp) as publisher:
        publisher.send(pub(b"t", b"x"))
        wait_for(lambda: b2.inside("t")["waiting"] == 1, "it waits")
    assert stored(b2) == 0


def test_a_second_gateway_of_a_brokers_name_does_not_start(
    servers: Servers, start: Starter, store: Path
) -> None:
    distributor = led(start, store)
    first = broker(servers, distributor, "b1")
    second = servers.gateway(
        f"--distributor-address={distributor.address}",
        "--broker-name=b1",
        f"--state-file={servers.folder / 'other.json'}",
        wait=False,
    )
    assert second.process.popen.wait(30) == Exit.UNAVAILABLE
    line = second.process.text().splitlines()[-1]
    assert line.startswith(f"srtm: --broker-name: broker b1 is another gateway, at {first.tcp}")
    distributor.process.freeze()
    second.process.start()  # nobody tells it now
    second.wait_ready()
    distributor.process.thaw()
    assert second.process.popen.wait(30) == Exit.UNAVAILABLE
    first.process.kill()
    first.process.start()  # the same one, by its state file
    first.wait_ready()


def test_a_copied_state_file_stops_the_gateway_that_is_replaced(
    servers: Servers, start: Starter, store: Path
) -> None:
    distributor = led(start, store)
    first = broker(servers, distributor, "b1")
    distributor.topic(rate=1000.0, burst=10.0)
    distributor.publishers(1)
    distributor.place()
    wait_for(lambda: rate_of(first) == 1000.0, "it has all of it")
    copied = servers.folder / "copied.json"
    copied.write_text(gateway_state(first).read_text())
    second = servers.gateway(
        f"--distributor-address={distributor.address}",
        "--broker-name=b1",
        f"--state-file={copied}",
    )
    wait_for(lambda: rate_of(first) == 100.0, "the first falls to its safe share at once")
    rest = pytest.approx(900.0)
    wait_for(lambda: rate_of(second) == rest, "the second is the broker now, and has the rest")
    assert "with a copy of this one's --state-file" in first.process.text()


def test_what_the_state_file_does_not_know_begins_empty_after_kill_9(servers: Servers) -> None:
    ports = (free_port(), free_port())
    state = servers.folder / "state.json"
    flags = ["--default-limit=rate=0.001,burst=100,mode=reject", f"--state-file={state}"]
    gateway = servers.gateway(*flags, ports=ports)
    assert http(gateway.http, "/mpub?topic=new", b"x\n" * 100)[0] == 200
    assert http(gateway.http, "/pub?topic=new", b"x")[0] == 429
    gateway.process.kill()
    gateway.process.start()
    gateway.wait_ready()
    assert http(gateway.http, "/pub?topic=new", b"x")[0] == 429
    assert http(gateway.http, "/pub?topic=newer", b"x")[0] == 429, "nobody knows whether it is new"
    assert gateway.process.stop() == 0
    gateway.process.start()
    gateway.wait_ready()
    assert http(gateway.http, "/pub?topic=newest", b"x")[0] == 200


def test_the_debt_of_a_share_is_there_after_kill_9(
    servers: Servers, start: Starter, store: Path
) -> None:
    distributor = led(start, store, "--lease-duration=20s")
    b1, _ = (broker(servers, distributor, name) for name in ("b1", "b2"))
    on_b1_alone(distributor, b1)
    wait_for(lambda: b1.inside("t")["tokens"] == BURST, "its bucket is full")
    assert http(b1.http, "/mpub?topic=t", b"x\n" * 100)[0] == 200
    b1.process.kill()
    b1.process.start()
    b1.wait_ready()
    wait_for(lambda: rate_of(b1) == RATE, "it has its share again")
    assert b1.inside("t")["tokens"] < BURST - 100 + 20


def test_the_debt_of_a_share_that_was_taken_back_is_there_after_kill_9(
    servers: Servers, start: Starter, store: Path
) -> None:
    distributor = led(start, store, "--lease-duration=20s")
    b1, b2 = (broker(servers, distributor, name) for name in ("b1", "b2"))
    on_b1_alone(distributor, b1, batches="each")
    assert http(b1.http, "/mpub?topic=t", b"x\n" * 100)[0] == 200
    distributor.ok("POST", "/brokers/b1/drain", {"drain": True})
    distributor.place()
    wait_for(lambda: rate_of(b2) == RATE, "b2 has the whole contract")
    for _ in range(2):  # the second gateway knows it from the first one's file alone
        b1.process.kill()
        b1.process.start()
        b1.wait_ready()
    distributor.ok("POST", "/brokers/b1/drain", {"drain": False})
    distributor.ok("POST", "/brokers/b2/drain", {"drain": True})
    distributor.place()
    wait_for(lambda: rate_of(b1) == RATE, "it has its share again")
    assert b1.inside("t")["tokens"] < BURST - 100 + 20


def test_debts_of_many_topics_hold_nobody_up(servers: Servers) -> None:
    """Each has to be on disk; those that come together are written together."""
    state = servers.folder / "state.json"
    gateway = servers.gateway("--default-limit=rate=10,burst=1", f"--state-file={state}")
    count = 500
    with V2(gateway.tcp) as client, V2(gateway.tcp) as other:
        batch = [message(b"x")] * 2
        client.send(b"".join(mpub(b"t%d" % n, batch, 2) for n in range(count)))
        other.send(pub(b"other", b"x"))
        other.oks(1)
        client.oks(count, timeout=30)
    gateway.process.kill()
    kept = json.loads(state.read_text())["topics"]
    assert all(kept[f"t{n}"]["tokens"] <= -1 for n in range(count))
