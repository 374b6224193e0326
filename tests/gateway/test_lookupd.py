"""Nobody walks round the gateway: nsqlookupd, nsqadmin and /info lead to it alone."""

import signal
import sys
from typing import Any

import pytest

from srtm.nsq.commands import pub
from tests.support.servers import GatewayProcess, Nsqd, Process, Servers, free_port, http, wait_for
from tests.support.v2 import V2

Announced = tuple[str, int, int]


def nodes(lookupd_http: str) -> list[Announced]:
    """Where nsqlookupd says that brokers are."""
    return [_where(node) for node in http(lookupd_http, "/nodes")[1]["producers"]]


def brokers_of(lookupd_http: str, topic: str) -> list[Announced]:
    status, document, _ = http(lookupd_http, f"/lookup?topic={topic}")
    return [_where(node) for node in document["producers"]] if status == 200 else []


def _where(node: dict[str, Any]) -> Announced:
    return node["broadcast_address"], node["tcp_port"], node["http_port"]


def ports_of(gateway: GatewayProcess) -> tuple[int, int]:
    return int(gateway.tcp.split(":")[1]), int(gateway.http.split(":")[1])


@pytest.fixture
def lookupd(servers: Servers) -> tuple[str, str, Process]:
    return servers.lookupd()


def test_behind_unix_sockets_nsqlookupd_leads_to_the_gateway_from_ready_until_it_drains(
    servers: Servers, lookupd: tuple[str, str, Process]
) -> None:
    lookupd_tcp, lookupd_http, _ = lookupd
    ports = free_port(), free_port()
    nsqd = servers.nsqd(gateway_ports=ports, unix=True)
    assert nodes(lookupd_http) == [], "nsqd is not announced before its gateway is ready"
    gateway = servers.gateway(
        f"--lookupd-tcp-address={lookupd_tcp}",
        "--topic=held,rate=0.1,burst=1",
        "--drain-timeout=1s",
        nsqd=nsqd,
        ports=ports,
    )
    there = [("127.0.0.1", *ports)]
    wait_for(lambda: nodes(lookupd_http) == there, "nsqlookupd shows the gateway's ports")
    with V2(gateway.tcp) as publisher, V2(gateway.tcp) as consumer:
        consumer.subscribe("t", "c")
        publisher.send(pub(b"t", b"one"))
        assert publisher.reply() == b"OK"
        assert consumer.message().body == b"one"
        wait_for(lambda: brokers_of(lookupd_http, "t") == there, "/lookup shows the gateway")

        publisher.send(pub(b"held", b"spends what there is") + pub(b"held", b"waits"))
        gateway.process.signal(signal.SIGTERM)
        wait_for(lambda: nodes(lookupd_http) == [], "a draining gateway is withdrawn")
        assert gateway.process.alive, "it is withdrawn before it goes, not by going"
    assert gateway.process.popen.wait(60) == 0


def test_info_and_nsqadmin_show_the_gateway_and_its_topics_and_channels(
    servers: Servers, lookupd: tuple[str, str, Process]
) -> None:
    lookupd_tcp, lookupd_http, _ = lookupd
    gateway = servers.gateway(f"--lookupd-tcp-address={lookupd_tcp}", "--http-admin", unix=True)
    tcp_port, http_port = ports_of(gateway)
    info = http(gateway.http, "/info")[1]
    own = gateway.nsqd.get("/info")
    assert (own["tcp_port"], own["http_port"]) == (-1, -1), "what nsqd says behind unix sockets"
    assert info == {
        **own,
        "broadcast_address": "127.0.0.1",
        "tcp_port": tcp_port,
        "http_port": http_port,
    }
    admin = servers.nsqadmin(lookupd_http)
    with V2(gateway.tcp) as publisher, V2(gateway.tcp) as consumer:
        publisher.identify(client_id="thermometer")
        consumer.identify(client_id="logger", hostname="archive", feature_negotiation=True)
        consumer.subscribe("seen", "archive")
        publisher.send(pub(b"seen", b"one"))
        assert publisher.reply() == b"OK"
        consumer.message()

        def channel() -> Any:
            status, document, _ = http(admin, "/api/topics/seen/archive")
            return document if status == 200 and document.get("clients") else None

        seen = wait_for(channel, "nsqadmin shows the channel and its client")
        assert seen["message_count"] == 1
        assert [client["client_id"] for client in seen["clients"]] == ["logger"]
        address = f"127.0.0.1:{http_port}"
        assert [node["node"] for node in seen["nodes"]] == [address]
        topic = http(admin, "/api/topics/seen")[1]
        assert [entry["channel_name"] for entry in topic["channels"]] == ["archive"]
        node = http(admin, f"/api/nodes/{address}")[1]
        assert [found["topic_name"] for found in node["topics"]] == ["seen"]
    # nsqadmin acts through the gateway as well.
    body = b'{"action": "pause"}'
    assert http(admin, "/api/topics/seen/archive", body)[0] == 200
    entry = gateway.nsqd.topic("seen")
    assert entry is not None
    assert [found["paused"] for found in entry["channels"]] == [True]


def test_nsqadmin_shows_why_an_action_is_forbidden(
    servers: Servers, lookupd: tuple[str, str, Process]
) -> None:
    lookupd_tcp, lookupd_http, _ = lookupd
    gateway = servers.gateway(f"--lookupd-tcp-address={lookupd_tcp}")
    admin = servers.nsqadmin(lookupd_http)
    assert http(gateway.http, "/pub?topic=t", b"x")[0] == 200
    wait_for(lambda: http(admin, "/api/topics/t")[0] == 200, "nsqadmin knows the topic")
    for said in (
        http(admin, "/api/topics/t", b'{"action": "pause"}')[1],
        http(admin, "/api/topics/t", method="DELETE")[1],
    ):
        assert "FORBIDDEN: start the gateway with --http-admin" in said["message"]
        assert "https" not in said["message"]
    entry = gateway.nsqd.topic("t")
    assert entry is not None
    assert not entry["paused"]


@pytest.mark.parametrize(
    ("flags", "warned"),
    [
        pytest.param([], True, id="ports-of-its-own-give-a-warning-with-the-remedy"),
        pytest.param(["as the gateway"], False, id="the-gateways-ports-give-none"),
    ],
)
def test_an_nsqd_that_runs_already(servers: Servers, flags: list[str], warned: bool) -> None:
    ports = free_port(), free_port()
    nsqd: Nsqd = servers.nsqd(gateway_ports=ports if flags else None)
    gateway = servers.gateway(nsqd=nsqd, ports=ports)
    log = gateway.process.text()
    for name, port in zip(("tcp", "http"), ports, strict=True):
        assert (f"start nsqd with --broadcast-{name}-port={port}" in log) is warned
    assert log.count("WARNING") == (2 if warned else 0), log


def test_an_nsqd_that_tells_another_address_gives_a_warning(servers: Servers) -> None:
    ports = free_port(), free_port()
    nsqd = servers.nsqd("--broadcast-address=elsewhere.example", gateway_ports=ports)
    gateway = servers.gateway(nsqd=nsqd, ports=ports)
    assert "start nsqd with --broadcast-address=127.0.0.1" in gateway.process.text()


def test_an_nsqd_that_tells_where_the_gateway_listens_gives_none(servers: Servers) -> None:
    ports = free_port(), free_port()
    nsqd = servers.nsqd(gateway_ports=ports)
    gateway = servers.gateway("--broadcast-address=a.host.of.this.name", nsqd=nsqd, ports=ports)
    assert "WARNING" not in gateway.process.text()


def test_a_gateway_starts_before_a_frozen_nsqlookupd_and_is_announced_when_it_thaws(
    servers: Servers, lookupd: tuple[str, str, Process]
) -> None:
    lookupd_tcp, lookupd_http, process = lookupd
    process.freeze()
    gateway = servers.gateway(f"--lookupd-tcp-address={lookupd_tcp}")
    with V2(gateway.tcp) as publisher:
        publisher.send(pub(b"t", b"one"))
        assert publisher.reply(timeout=5) == b"OK"
    process.thaw()
    there = [("127.0.0.1", *ports_of(gateway))]
    wait_for(lambda: nodes(lookupd_http) == there, "announced once nsqlookupd is there", 20)


def test_a_frozen_nsqlookupd_does_not_hold_up_a_topic_that_is_known(
    servers: Servers, lookupd: tuple[str, str, Process]
) -> None:
    lookupd_tcp, _, process = lookupd
    gateway = servers.gateway(f"--lookupd-tcp-address={lookupd_tcp}")
    with V2(gateway.tcp) as known, V2(gateway.tcp) as new, V2(gateway.tcp) as other:
        known.send(pub(b"known", b"one"))
        assert known.reply() == b"OK"
        process.freeze()
        new.send(pub(b"new", b"asks nsqlookupd, which hangs"))
        other.send(pub(b"other", b"so does this one"))
        for _ in range(20):
            known.send(pub(b"known", b"more"))
            assert known.reply(timeout=2) == b"OK"
        assert http(gateway.http, "/pub?topic=known", b"more", timeout=2)[:2] == (200, "OK")
        process.thaw()
        assert new.reply() == b"OK"
        assert other.reply() == b"OK"


def test_sighup_announces_again_and_keeps_serving(
    servers: Servers, lookupd: tuple[str, str, Process]
) -> None:
    lookupd_tcp, lookupd_http, _ = lookupd
    gateway = servers.gateway(f"--lookupd-tcp-address={lookupd_tcp}")
    there = [("127.0.0.1", *ports_of(gateway))]
    wait_for(lambda: nodes(lookupd_http) == there, "announced at start")
    assert http(gateway.nsqd.http, "/config/nsqlookupd_tcp_addresses", b"[]", "PUT")[0] == 200
    wait_for(lambda: nodes(lookupd_http) == [], "somebody withdrew nsqd")
    with V2(gateway.tcp) as publisher:
        publisher.send(pub(b"t", b"before"))
        assert publisher.reply() == b"OK"
        gateway.process.signal(signal.SIGHUP)
        wait_for(lambda: nodes(lookupd_http) == there, "announced again")
        publisher.send(pub(b"t", b"after"))
        assert publisher.reply() == b"OK"
    assert gateway.process.alive


def test_an_nsqd_that_was_restarted_is_announced_again(
    servers: Servers, lookupd: tuple[str, str, Process]
) -> None:
    lookupd_tcp, lookupd_http, _ = lookupd
    gateway = servers.gateway(f"--lookupd-tcp-address={lookupd_tcp}")
    there = [("127.0.0.1", *ports_of(gateway))]
    wait_for(lambda: nodes(lookupd_http) == there, "announced at start")
    gateway.nsqd.process.kill()
    wait_for(lambda: nodes(lookupd_http) == [], "nsqlookupd has lost it")
    gateway.nsqd.process.start()
    wait_for(lambda: nodes(lookupd_http) == there, "a new nsqd knows no nsqlookupd by itself")


ENDS_WHEN_TOLD = """
import asyncio, os, signal, sys
from srtm.gateway.nsqd import NsqdHttp
from srtm.gateway.watch import NsqdWatch

begin, set_lookupd, watches = NsqdWatch.begin, NsqdHttp.set_lookupd, []

async def noted_begin(self):
    watches.append(self)
    await begin(self)

async def last_words(self, addresses):
    await set_lookupd(self, addresses)
    if watches:
        watch = watches.pop()
        os.kill(int(os.environ["NSQD"]), signal.SIGKILL)
        while watch.pool.connected:
            await asyncio.sleep(0.01)

NsqdWatch.begin, NsqdHttp.set_lookupd = noted_begin, last_words
from srtm.cli.main import main
sys.argv = sys.argv[3:]
main()
"""


def test_an_nsqd_that_ends_while_it_is_told_is_told_again_when_it_is_back(
    servers: Servers, lookupd: tuple[str, str, Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer was on the way when its connections ended."""
    lookupd_tcp, lookupd_http, _ = lookupd
    ports = free_port(), free_port()
    nsqd = servers.nsqd(gateway_ports=ports)
    monkeypatch.setenv("NSQD", str(nsqd.process.popen.pid))
    servers.gateway(
        f"--lookupd-tcp-address={lookupd_tcp}",
        nsqd=nsqd,
        ports=ports,
        wait=False,
        prefix=(sys.executable, "-c", ENDS_WHEN_TOLD),
    )
    nsqd.process.popen.wait(60)
    nsqd.process.start()
    there = [("127.0.0.1", *ports)]
    wait_for(lambda: nodes(lookupd_http) == there, "announced again")
