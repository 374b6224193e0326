"""Rule 7: a message arrives when its last byte does, by the kernel's stamp, however late the
gateway is; messages meet the bucket in order of stamp."""

import contextlib
import random
import time
from typing import Any

import pytest

from srtm.http.client import request
from srtm.nsq.commands import pub
from tests.support.servers import GatewayProcess, Servers, wait_for
from tests.support.v2 import V2


@pytest.fixture(scope="module")
def gateway(shared: Servers) -> GatewayProcess:
    return shared.gateway()


def known(stack: contextlib.ExitStack, gateway: GatewayProcess, count: int) -> list[V2]:
    """Clients that the gateway reads already."""
    clients = [stack.enter_context(V2(gateway.tcp)) for _ in range(count)]
    for client in clients:
        client.identify(client_id="c")
    return clients


def record(gateway: GatewayProcess, topic: str) -> dict[str, Any]:
    """Arrivals and admissions since the last call; the first call begins."""
    found: dict[str, Any] = request(gateway.admin, "GET", f"/topics/{topic}/record").json()
    return found


@pytest.mark.parametrize("source", ["sockopt", "clock"])
def test_a_frozen_gateway_delays_no_conformant_publisher_but_by_the_clock(
    servers: Servers, source: str
) -> None:
    """Messages 12 ms apart under a contract of one each 10 ms come while the gateway is stopped."""
    gateway = servers.gateway(f"--timestamps={source}")
    gateway.set_limit("t", rate=100, burst=3)
    record(gateway, "t")
    with contextlib.ExitStack() as stack:
        clients = known(stack, gateway, 60)
        gateway.process.freeze()
        for client in clients:
            client.send(pub(b"t", b"x"))
            time.sleep(0.012)
        gateway.process.thaw()
        for client in clients:
            client.oks(1)
    wait = gateway.ours("t")["token_wait"]
    assert wait["count"] == 60
    if source == "clock":
        # All come with the thaw: three find a token, the last of the others waits 0.57 s for it.
        assert wait["p50"] > 0.2
        assert wait["p99"] > 0.5
    else:
        assert wait["p99"] == 0
        found = record(gateway, "t")
        assert sorted(at for at, _, _ in found["admissions"]) == sorted(
            stamp for stamp, _ in found["arrivals"]
        )


def test_what_a_stall_held_up_still_keeps_to_the_contract(servers: Servers) -> None:
    """Twice the contract's rate comes while the gateway is stopped: in bucket time no interval
    gets more than b + r*t, and nobody gets a token earlier than he came."""
    gateway = servers.gateway()
    rate, burst = 100.0, 5
    gateway.set_limit("t", rate=rate, burst=burst)
    record(gateway, "t")
    with contextlib.ExitStack() as stack:
        clients = known(stack, gateway, 80)
        gateway.process.freeze()
        for client in clients:
            client.send(pub(b"t", b"x"))
            time.sleep(0.005)
        gateway.process.thaw()
        for client in clients:
            client.oks(1)
    found = record(gateway, "t")
    stamps = sorted(stamp for stamp, _ in found["arrivals"])
    times = sorted(
        first + number * step
        for first, step, count in found["admissions"]
        for number in range(count)
    )
    assert len(times) == len(stamps) == 80
    assert all(at >= stamp for at, stamp in zip(times, stamps, strict=True))
    for number, at in enumerate(times):
        for later in range(number + burst, len(times)):
            count = later - number + 1
            assert count <= burst + rate * (times[later] - at) / 1e9 + 0.01


def order_seen(gateway: GatewayProcess, topic: str, count: int) -> list[bytes]:
    with V2(gateway.nsqd.tcp) as consumer:
        consumer.identify(output_buffer_size=-1)  # at once
        consumer.subscribe(topic, "c", ready=2500)
        return [consumer.message().body for _ in range(count)]


def test_messages_of_one_wake_up_are_admitted_in_order_of_their_last_byte(
    gateway: GatewayProcess,
) -> None:
    """Half of the clients began first and end among the others, in a shuffled order."""
    chance = random.Random(7)
    with contextlib.ExitStack() as stack:
        clients = known(stack, gateway, 150)
        gateway.process.freeze()
        commands = [pub(b"order", b"%d" % number) for number in range(len(clients))]
        begun = chance.sample(range(len(clients)), len(clients) // 2)
        for number in begun:
            clients[number].send(commands[number][:9])
            commands[number] = commands[number][9:]
        order = chance.sample(range(len(clients)), len(clients))
        for number in order:
            clients[number].send(commands[number])
        gateway.process.thaw()
        for client in clients:
            client.oks(1)
    assert order_seen(gateway, "order", len(order)) == [b"%d" % number for number in order]


def test_a_new_connections_first_message_keeps_its_place(gateway: GatewayProcess) -> None:
    """It waits to be accepted while others, that came later, wait to be read."""
    with contextlib.ExitStack() as stack:
        clients = known(stack, gateway, 40)
        gateway.process.freeze()
        order = []
        for number, client in enumerate(clients):
            new = stack.enter_context(V2(gateway.tcp))
            new.send(pub(b"new", b"new %d" % number))
            client.send(pub(b"new", b"old %d" % number))
            order += [b"new %d" % number, b"old %d" % number]
        gateway.process.thaw()
        wait_for(lambda: gateway.inside("new").get("admitted") == len(order), "all are stored")
    assert order_seen(gateway, "new", len(order)) == order


def test_a_paused_clients_messages_keep_the_time_at_which_they_came(servers: Servers) -> None:
    """They lie in the kernel while the gateway does not read them."""
    gateway = servers.gateway("--max-connection-backlog=10", "--topic=held,rate=0.001,burst=1")
    gateway.set_limit("t", rate=20, burst=2)
    record(gateway, "t")
    with V2(gateway.tcp) as client:
        client.send(pub(b"held", b"x") * 11)
        wait_for(lambda: gateway.metric("srtm_paused_connections") == 1, "it is paused")
        sent = time.monotonic_ns()
        client.send(pub(b"t", b"y"))
        done = time.monotonic_ns()
        time.sleep(0.2)
        gateway.set_limit("held", rate=1e6, burst=1e6)
        client.oks(12)
    ((stamp, count),) = record(gateway, "t")["arrivals"]
    assert count == 1
    assert sent - 5_000_000 < stamp < done + 5_000_000, "converted from the wall clock"
