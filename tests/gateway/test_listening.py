"""What an address stands for, at both doors as at nsqd's."""

import socket

import pytest

from srtm.gateway.listening import listen, shown
from tests.support.servers import Servers, free_port, http
from tests.support.v2 import V2

BOTH = {"127.0.0.1", "::1"}


def reached(port: int) -> set[str]:
    found = set()
    for host in BOTH:
        try:
            socket.create_connection((host, port), 5).close()
        except ConnectionRefusedError:
            continue
        found.add(host)
    return found


@pytest.mark.parametrize(
    ("host", "hosts"),
    [
        pytest.param("[::]", BOTH, id="all-by-ipv6"),
        pytest.param("0.0.0.0", BOTH, id="all-by-ipv4"),
        pytest.param("", BOTH, id="no-host"),
        pytest.param("127.0.0.1", {"127.0.0.1"}, id="one-of-ipv4"),
        pytest.param("[::1]", {"::1"}, id="one-of-ipv6"),
        pytest.param("localhost", {"127.0.0.1"}, id="a-name"),
    ],
)
def test_both_doors_and_nsqd_are_reached_alike(
    servers: Servers, host: str, hosts: set[str]
) -> None:
    nsqd_port, tcp, web = (free_port() for _ in range(3))
    nsqd = servers.nsqd(f"--tcp-address={host}:{nsqd_port}")
    nsqd.tcp = f"127.0.0.1:{nsqd_port}" if "127.0.0.1" in hosts else f"[::1]:{nsqd_port}"
    gateway = servers.gateway(
        f"--tcp-address={host}:{tcp}", f"--http-address={host}:{web}", nsqd=nsqd, wait=False
    )
    gateway.http = f"127.0.0.1:{web}" if "127.0.0.1" in hosts else f"[::1]:{web}"
    gateway.wait_ready()
    assert [reached(port) for port in (nsqd_port, tcp, web)] == [hosts] * 3


def test_a_publisher_by_ipv4_and_one_by_ipv6_are_shown_as_nsqd_shows_them(
    servers: Servers,
) -> None:
    port = free_port()
    gateway = servers.gateway(f"--tcp-address=[::]:{port}")
    with V2(f"127.0.0.1:{port}") as four, V2(f"::1:{port}") as six:
        for client in (four, six):
            client.identify()
            client.subscribe("t", "c")
        document = http(gateway.http, "/stats?format=json&topic=t")[1]
        clients = document["topics"][0]["channels"][0]["clients"]
        told = {each["remote_address"]: each["hostname"] for each in clients}
        ports = [client.socket.getsockname()[1] for client in (four, six)]
        assert told == {f"127.0.0.1:{ports[0]}": "127.0.0.1", f"[::1]:{ports[1]}": "::1"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param(("127.0.0.1", 5), "127.0.0.1:5", id="ipv4"),
        pytest.param(("::ffff:127.0.0.1", 5, 0, 0), "127.0.0.1:5", id="ipv4-on-a-socket-for-both"),
        pytest.param(("::1", 5, 0, 0), "[::1]:5", id="ipv6"),
    ],
)
def test_names_of_sockets(name: tuple[object, ...], text: str) -> None:
    assert shown(name) == text


def test_a_second_listener_is_refused() -> None:
    with listen("[::]:0", "--x", lambda _: None) as first:
        port = first.getsockname()[1]
        with pytest.raises(Exception, match=f"--x 0.0.0.0:{port} is in use"):
            listen(f"0.0.0.0:{port}", "--x", lambda _: None)
