"""The gateway and its timestamp sources: messages that came while it stood still, in one connection
and in many, over loopback and from another network namespace; and what it says of its source."""

import contextlib
import ctypes
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kernel.ebpf import OBJECT
from kernel.records import SYN
from srtm.gateway.client import Client, ConnectionBounds
from srtm.gateway.outbox import Outbox
from srtm.gateway.reactor import Reactor
from srtm.host.clock import WallClock, monotonic_ns
from srtm.http.client import request
from srtm.nsq.commands import Limits, message, mpub, pub
from srtm.nsq.identify import Server
from tests.kernel.test_timestamps import ISN, bench, need_ebpf
from tests.support.programs import run_srtm
from tests.support.servers import GatewayProcess, Servers, http
from tests.support.v2 import V2

RATE, BURST = 100, 3  # of the contract
GAP_SECONDS = 0.012  # more than a token takes: a publisher that keeps to it conforms
MESSAGES = 30
SLACK_NS = int(GAP_SECONDS * 1e9)
"""A segment that was sent has not come yet while the softirq that takes it waits."""

UNPRIVILEGED = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")


def record(gateway: GatewayProcess, topic: str) -> dict[str, Any]:
    """Arrivals and admissions since the last call; the first call begins."""
    found: dict[str, Any] = request(gateway.admin, "GET", f"/topics/{topic}/record").json()
    return found


def timestamps(gateway: GatewayProcess) -> dict[str, Any]:
    found: dict[str, Any] = http(gateway.http, "/stats?format=json")[1]["srtm"]["timestamps"]
    return found


def publish_while_frozen(gateway: GatewayProcess, client: V2) -> list[tuple[int, int]]:
    """Pipelined PUBs, each a segment, under a contract to which they keep; (before, after) ns."""
    gateway.set_limit("t", rate=RATE, burst=BURST)
    record(gateway, "t")
    client.identify(client_id="c")
    bounds = []
    gateway.process.freeze()
    for _ in range(MESSAGES):
        before = monotonic_ns()
        client.send(pub(b"t", b"x"))
        bounds.append((before, monotonic_ns()))
        time.sleep(GAP_SECONDS)
    gateway.process.thaw()
    client.oks(MESSAGES)
    return bounds


def check_true_times(gateway: GatewayProcess, bounds: list[tuple[int, int]]) -> None:
    """Every message has the time at which it was sent, and none was delayed."""
    found = record(gateway, "t")
    arrivals = [stamp for stamp, _ in found["arrivals"]]
    for stamp, (before, after) in zip(arrivals, bounds, strict=True):
        assert before <= stamp < after + SLACK_NS
    assert [when for when, _, _ in found["admissions"]] == arrivals
    assert gateway.ours("t")["token_wait"]["p99"] == 0
    assert timestamps(gateway) == {
        "source": "ebpf",
        "reason": "",
        "degraded_bytes": 0,
        "lost_records": 0,
    }


def test_with_ebpf_a_frozen_gateway_delays_no_conformant_message(servers: Servers) -> None:
    need_ebpf()
    gateway = servers.gateway("--timestamps=ebpf")
    with V2(gateway.tcp) as client:
        bounds = publish_while_frozen(gateway, client)
    check_true_times(gateway, bounds)


@pytest.mark.parametrize("source", ["sockopt", "clock"])
def test_without_it_one_connections_messages_come_all_at_once(
    servers: Servers, source: str
) -> None:
    """One read has one stamp: three find a token, the last of the others waits 0.27 s for it."""
    gateway = servers.gateway(f"--timestamps={source}")
    with V2(gateway.tcp) as client:
        publish_while_frozen(gateway, client)
    wait = gateway.ours("t")["token_wait"]
    assert wait["count"] == MESSAGES
    assert wait["p50"] > 0.05
    assert timestamps(gateway)["source"] == source


def test_a_message_arrives_with_its_last_byte(servers: Servers) -> None:
    """Two PUBs and the head of a third in one segment, its tail in another, an MPUB in three."""
    need_ebpf()
    gateway = servers.gateway("--timestamps=ebpf")
    gateway.set_limit("t", rate=1e6, burst=1e6)
    record(gateway, "t")
    one = pub(b"t", b"0123456789")
    many = mpub(b"t", [message(b"x" * 100)] * 3, 3)
    parts = [one + one + one[:9], one[9:], many[:20], many[20:200], many[200:]]
    bounds = []
    with V2(gateway.tcp) as client:
        client.identify(client_id="c")
        gateway.process.freeze()
        for part in parts:
            before = monotonic_ns()
            client.send(part)
            bounds.append((before, monotonic_ns()))
        gateway.process.thaw()
        client.oks(4)
    arrivals = record(gateway, "t")["arrivals"]
    assert [count for _, count in arrivals] == [1, 1, 1, 3]
    ends = [bounds[number] for number in (0, 0, 1, 4)]  # the part that each of them ends in
    for (stamp, _), (before, after) in zip(arrivals, ends, strict=True):
        assert before <= stamp < after + SLACK_NS
    assert arrivals[0] == [arrivals[1][0], 1]
    assert arrivals[1][0] < arrivals[2][0] < arrivals[3][0]


def test_a_backlog_that_fills_in_the_middle_of_a_read_loses_no_piece(servers: Servers) -> None:
    """The gateway stops reading at the fifth message of thirty that one read brought."""
    need_ebpf()
    gateway = servers.gateway("--timestamps=ebpf", "--max-connection-backlog=5")
    with V2(gateway.tcp) as client:
        bounds = publish_while_frozen(gateway, client)
    check_true_times(gateway, bounds)


def test_a_consumers_connection_is_stamped_too(servers: Servers) -> None:
    need_ebpf()
    gateway = servers.gateway("--timestamps=ebpf")
    with V2(gateway.tcp) as client:
        client.subscribe("t", "c")
        client.send(pub(b"t", b"x"))
        assert client.frame() is not None
    assert timestamps(gateway)["degraded_bytes"] == 0


def test_a_client_that_is_closed_is_forgotten_by_the_source() -> None:
    with bench(WallClock()) as made:
        made.program.drains = [[(1, ISN + 1, 0, made.key, SYN)]]  # the addresses are used again
        host: Any = SimpleNamespace(
            stamps=made.source,
            limits=Limits(),
            auth=None,
            server=Server(heartbeat_interval=30_000),
            topics=SimpleNamespace(by_name={}, is_open=True),
            connection_bounds=ConnectionBounds(1, 1),
            reactor=Reactor(),
            outbox=Outbox(lambda error, what: pytest.fail(f"{what}: {error}")),
            clients=set(),
        )
        made.reader.close()
        client = Client(host, made.pair.server, "127.0.0.1:1")
        assert len(made.source.streams) == 1
        client.close()
        assert len(made.source.streams) == 0
        host.reactor.close()


def test_two_gateways_of_one_host(servers: Servers) -> None:
    need_ebpf()
    gateways = [servers.gateway("--timestamps=ebpf") for _ in range(2)]
    for gateway in gateways:
        with V2(gateway.tcp) as client:
            bounds = publish_while_frozen(gateway, client)
        check_true_times(gateway, bounds)


# --- from another network namespace ----------------------------------------------------------


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@contextlib.contextmanager
def inside(namespace: str) -> Iterator[None]:
    """Sockets that this thread makes belong to the namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with (
        open("/proc/thread-self/ns/net") as home,
        open(f"/run/netns/{namespace}") as away,
    ):
        if libc.setns(away.fileno(), 0):
            raise OSError(ctypes.get_errno(), "setns")
        try:
            yield
        finally:
            libc.setns(home.fileno(), 0)


@pytest.fixture
def namespace() -> Iterator[tuple[str, str]]:
    """(name, our own address on a veth to it)"""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("a network namespace needs root and ip")
    name, net = f"srtm{os.getpid()}", f"10.213.{os.getpid() % 250}"
    try:
        try:
            _ip("netns", "add", name)
            _ip("link", "add", name, "type", "veth", "peer", "name", "far", "netns", name)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespace: {error.stderr.decode()}")
        _ip("address", "add", f"{net}.1/24", "dev", name)
        _ip("link", "set", name, "up")
        _ip("-n", name, "address", "add", f"{net}.2/24", "dev", "far")
        _ip("-n", name, "link", "set", "far", "up")
        yield name, f"{net}.1"
    finally:
        for command in (("link", "delete", name), ("netns", "delete", name)):
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip(*command)


def test_a_publisher_in_another_network_namespace(
    servers: Servers, namespace: tuple[str, str]
) -> None:
    need_ebpf()
    name, address = namespace
    plain = servers.nsqd()
    gateway = servers.gateway(
        "--timestamps=ebpf", f"--tcp-address={address}:4150", nsqd=plain, wait=True
    )
    with inside(name):
        client = V2(f"{address}:4150")
    with client:
        bounds = publish_while_frozen(gateway, client)
    check_true_times(gateway, bounds)


# --- what it says of its source --------------------------------------------------------------


MISSING = "CAP_" if OBJECT.exists() else "not built"


def test_without_privileges_it_says_what_is_missing_and_goes_on(servers: Servers) -> None:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("it takes root and setpriv to drop privileges")
    gateway = servers.gateway(prefix=UNPRIVILEGED)
    found = timestamps(gateway)
    assert found["source"] == "sockopt"
    assert found["reason"].startswith("ebpf: ")
    assert MISSING in found["reason"]
    metrics = http(gateway.http, "/metrics")[1]
    assert 'srtm_timestamp_source{reason="ebpf: ' in metrics
    assert f"timestamps by sockopt, because there is no {found['reason']}" in gateway.process.text()
    assert f"Timestamps: sockopt (no {found['reason']})" in http(gateway.http, "/stats")[1]


def test_a_source_that_is_asked_for_and_missing_ends_it_with_one_line(servers: Servers) -> None:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("it takes root and setpriv to drop privileges")
    nsqd = servers.nsqd()
    gateway = servers.gateway("--timestamps=ebpf", nsqd=nsqd, wait=False, prefix=UNPRIVILEGED)
    assert gateway.process.popen.wait(60) == 3
    (line,) = gateway.process.text().splitlines()
    assert line.startswith("srtm: --timestamps ebpf: ")
    assert MISSING in line


def test_a_worse_source_on_request_is_no_complaint(servers: Servers) -> None:
    gateway = servers.gateway("--timestamps=clock")
    assert timestamps(gateway)["reason"] == ""
    assert (
        'srtm_timestamp_source{reason="",source="clock"} 1.0' in http(gateway.http, "/metrics")[1]
    )
    for name in ("srtm_timestamp_degraded_bytes_total", "srtm_timestamp_lost_records_total"):
        assert gateway.metric(name) == 0


def test_stat_shows_the_source_of_each_gateway(servers: Servers) -> None:
    gateway = servers.gateway("--timestamps=sockopt", "--topic=t,rate=1,burst=1")
    command = ("stat", "--count=1", f"--nsqd-http-address={gateway.http}")
    shown = run_srtm(*command).stdout
    assert "why not better" in shown
    assert "sockopt" in shown
    printed = run_srtm(*command, "--json")
    (row,) = json.loads(printed.stdout)
    assert row["timestamps"] == timestamps(gateway)
