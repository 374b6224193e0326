"""Rule 5: a topic's bound holds over all of its connections, those that have gone included."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from srtm.nsq.commands import dpub, message, mpub, pub
from tests.support.servers import GatewayProcess, Servers, http, wait_for
from tests.support.v2 import V2

MIB = 1024 * 1024
BOUND = 16 * MIB
SLACK = 48 * MIB
"""One body past the bound, copies of one as it is read, and what malloc keeps for the next."""
READ = 256 * 1024
"""of one connection, at once"""
BIG = mpub(b"t", [message(b"x" * (MIB - 4))] * 4 + [message(b"x" * (MIB - 8))], 5)
OPEN = {"rate": 1e6, "burst": 1e6}


@pytest.fixture
def gateway(servers: Servers) -> GatewayProcess:
    return servers.gateway("--topic=t,rate=0.001,burst=1", f"--max-topic-backlog-bytes={BOUND}")


@contextlib.contextmanager
def bounded(gateway: GatewayProcess, most: int = BOUND) -> Iterator[psutil.Process]:
    """What the gateway takes meanwhile, and afterwards, is no more than the bound."""
    process = psutil.Process(gateway.process.popen.pid)
    before = process.memory_info().rss
    yield process
    grown = process.memory_info().rss - before
    assert grown < most + SLACK, f"{grown / MIB:.0f} MiB for a bound of {most / MIB:.0f} MiB"


def send_some(client: V2, data: bytes) -> int:
    """As much as is taken; what the gateway does not read soon fills the sockets."""
    client.socket.settimeout(0.05)
    left = memoryview(data)
    with contextlib.suppress(TimeoutError):
        while left:
            left = left[client.socket.send(left[: 256 * 1024]) :]
    return len(data) - len(left)


def test_clients_that_come_send_and_go_fill_no_more_than_the_bound(
    gateway: GatewayProcess,
) -> None:
    with bounded(gateway) as process:
        descriptors = process.num_fds()
        for _ in range(60):
            with V2(gateway.tcp) as client:
                send_some(client, BIG)
        assert gateway.inside("t")["backlog_bytes"] <= BOUND + 5 * MIB
        wait_for(lambda: process.num_fds() <= descriptors, "those that have gone are closed", 20)


def kernel_asks(gateway: GatewayProcess) -> int:
    """Connections to the gateway whose other half has ended and which are kept alive."""
    port = f":{int(gateway.tcp.rpartition(':')[2]):04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(port) and row[3] == "08" and row[5][:2] == "02" for row in rows)


def test_a_client_without_heartbeats_that_has_gone_is_found_out_by_the_kernel(
    gateway: GatewayProcess,
) -> None:
    with V2(gateway.tcp) as client:
        assert client.identify(heartbeat_interval=-1) == b"OK"
        client.send(pub(b"t", b"waits"))
        wait_for(lambda: gateway.inside("t")["waiting"] == 1, "it waits for its token")
        assert kernel_asks(gateway) == 0
    wait_for(lambda: kernel_asks(gateway) == 1, "it has gone")
    assert gateway.inside("t")["waiting"] == 1, "its message still waits"


def test_small_messages_of_clients_that_have_gone_are_bounded_too(servers: Servers) -> None:
    bound = 5 * MIB  # of a body: less is not taken for a bound
    gateway = servers.gateway("--topic=t,rate=0.001,burst=1", f"--max-topic-backlog-bytes={bound}")
    count = 150
    for _ in range(count):
        with V2(gateway.tcp) as client:
            client.send(pub(b"t", b"x" * 60_000))
    wait_for(lambda: gateway.offered("t") == count, "all have come")
    wait_for(lambda: gateway.metric("srtm_connections") == 0, "all have gone", 20)
    counts = gateway.inside("t")
    assert (counts["backlog_bytes"], counts["waiting"]) == (0, 0)
    assert counts["admitted"] + counts["abandoned"] == count, "each is accounted for"


class Crowded(NamedTuple):
    gateway: GatewayProcess
    topic: str

    def counts(self) -> dict[str, Any]:
        return self.gateway.inside(self.topic)

    def wait_for(self, waiting: int) -> None:
        wait_for(lambda: self.counts()["waiting"] == waiting, f"{waiting} wait for tokens")

    def open(self) -> None:
        self.gateway.set_limit(self.topic, rate=10, burst=1)


@pytest.fixture(scope="module")
def gateway_of_all(shared: Servers) -> GatewayProcess:
    return shared.gateway()


@pytest.fixture
def crowded(gateway_of_all: GatewayProcess, request: pytest.FixtureRequest) -> Crowded:
    """A topic of the test's own, whose bucket is empty and stays so."""
    topic = f"t{abs(hash(request.node.name))}"
    gateway_of_all.set_limit(topic, rate=0.001, burst=1)
    with V2(gateway_of_all.tcp) as client:
        client.send(pub(topic.encode(), b"takes the token"))
        client.oks(1)
    return Crowded(gateway_of_all, topic)


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize(
    ("command", "count"),
    [
        pytest.param(pub(b"TOPIC", b"x"), 1, id="PUB"),
        pytest.param(pub(b"TOPIC", b"x") * 3, 3, id="PUBs-of-one-read"),
        pytest.param(mpub(b"TOPIC", [message(b"x")] * 30, 30), 30, id="MPUB-of-many-tokens"),
        pytest.param(dpub(b"TOPIC", 50, message(b"x")), 1, id="DPUB"),
    ],
)
def test_what_nobody_waits_for_takes_no_token_from_those_who_wait(
    crowded: Crowded, how: str, command: bytes, count: int
) -> None:
    """It gives its place up. An MPUB at the head lets those behind it go when their own tokens are
    there."""
    topic = crowded.topic.encode()
    with V2(crowded.gateway.tcp) as leaves, V2(crowded.gateway.tcp) as stays:
        leaves.send(command.replace(b"TOPIC", topic))
        crowded.wait_for(count)
        stays.send(pub(topic, b"y"))
        crowded.wait_for(count + 1)
        leaves.reset() if how == "reset" else leaves.close()
        crowded.wait_for(1)
        crowded.open()
        stays.oks(1)
    counts = crowded.counts()
    assert (counts["abandoned"], counts["admitted"], counts["backlog_bytes"]) == (count, 2, 0)
    parts = ("admitted", "rejected", "failed", "unknown", "abandoned", "waiting")
    assert counts["offered"] == sum(counts[name] for name in parts)
    assert crowded.gateway.nsqd.message_count(crowded.topic) == 2


def test_a_sender_by_http_that_has_gone_takes_no_token_either(crowded: Crowded) -> None:
    host, port = crowded.gateway.http.split(":")
    head = f"POST /pub?topic={crowded.topic} HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx"
    with socket.create_connection((host, int(port))) as leaves:
        leaves.sendall(head.encode())
        crowded.wait_for(1)
    crowded.wait_for(0)
    assert crowded.counts()["abandoned"] == 1


@pytest.mark.parametrize("where", ["nsqd", "gateway"])
def test_a_client_that_only_ends_its_sending_still_gets_its_ok(
    crowded: Crowded, where: str
) -> None:
    address = crowded.gateway.tcp if where == "gateway" else crowded.gateway.nsqd.tcp
    with V2(address) as client:
        client.send(pub(crowded.topic.encode(), b"x"))
        client.socket.shutdown(socket.SHUT_WR)
        if where == "gateway":
            crowded.wait_for(1)
            frame = client.frame()
            assert frame is not None
            assert frame.data == b"_heartbeat_", "it is asked whether it is there"
            crowded.open()
        assert client.reply() == b"OK"
        assert client.ended()


def test_at_the_bound_bodies_come_one_after_the_other_when_there_is_room(
    gateway: GatewayProcess,
) -> None:
    with contextlib.ExitStack() as stack, bounded(gateway):
        clients = [stack.enter_context(V2(gateway.tcp)) for _ in range(12)]
        rest = [memoryview(BIG)] * len(clients)
        clients[-1].identify(heartbeat_interval=5000)

        def is_full() -> bool:
            for number, client in enumerate(clients):
                rest[number] = rest[number][send_some(client, bytes(rest[number])) :]
            return int(gateway.inside("t")["backlog_bytes"]) >= BOUND

        wait_for(is_full, "the topic is full")
        full = gateway.inside("t")["backlog_bytes"]
        waiting = gateway.metric("srtm_paused_connections")
        assert waiting >= len(clients) - 4, "the others wait"
        beat = clients[-1].frame(20)
        assert beat is not None
        assert beat.data == b"_heartbeat_", "and have their heartbeats"
        with V2(gateway.tcp) as other:
            other.send(pub(b"else", b"x"))
            other.oks(1)
        assert gateway.inside("t")["backlog_bytes"] == full <= BOUND + 5 * MIB
        gateway.set_limit("t", **OPEN)
        for client, left in zip(clients, rest, strict=True):
            client.socket.settimeout(20)
            client.send(bytes(left))
        for client in clients:
            client.oks(1, timeout=20)
    assert gateway.nsqd.message_count("t") == 5 * len(clients)
    assert gateway.inside("t")["backlog_bytes"] == 0


def test_a_client_that_only_ended_its_half_is_answered(gateway: GatewayProcess) -> None:
    with V2(gateway.tcp) as full, V2(gateway.tcp) as client, V2(gateway.tcp) as late:
        send_some(full, BIG * 4)
        client.send(pub(b"t", b"x"))
        client.socket.shutdown(socket.SHUT_WR)
        send_some(late, BIG[:100_000])
        frame = client.frame()
        assert frame is not None
        assert frame.data == b"_heartbeat_", "its message waits"
        gateway.set_limit("t", **OPEN)
        client.oks(1)
        assert client.ended()


def test_half_bodies_keep_the_others_out_for_a_while_only(gateway: GatewayProcess) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(5):
            send_some(stack.enter_context(V2(gateway.tcp)), BIG[:100_000])
        with V2(gateway.tcp) as client:
            gateway.set_limit("t", **OPEN)
            client.send(BIG)
            client.oks(1, timeout=30)


@pytest.mark.parametrize("chunked", [False, True], ids=["with-a-length", "in-chunks"])
def test_big_bodies_by_http_count_in_the_bound_before_they_are_read(
    gateway: GatewayProcess, chunked: bool
) -> None:
    body = BIG[BIG.index(b"\n") + 5 :]
    head = b"POST /mpub?topic=t&binary=true HTTP/1.1\r\nHost: x\r\n"
    if chunked:
        request = head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (
            len(body),
            body,
        )
    else:
        request = head + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    with contextlib.ExitStack() as stack, bounded(gateway):
        with bounded(gateway):
            uploads = []
            for _ in range(40):
                sender = stack.enter_context(V2(gateway.http, magic=b""))
                sender.send(request[:-10])  # all of it is taken, kept or not
                uploads.append(sender.socket)
                assert http(gateway.http, "/ping")[0] == 200
        for upload in uploads:
            upload.sendall(request[-10:])
        refused = 0
        for upload in uploads:
            upload.settimeout(0.05)
            with contextlib.suppress(TimeoutError):
                assert upload.recv(100).startswith(b"HTTP/1.1 429 ")
                refused += 1
        assert refused >= 36
        assert gateway.inside("t")["backlog_bytes"] >= BOUND
    gateway.set_limit("t", **OPEN)
    wait_for(lambda: gateway.inside("t")["backlog_bytes"] == 0, "there is room")
    assert http(gateway.http, "/mpub?topic=t&binary=true", body)[0] == 200


def held(gateway: GatewayProcess) -> int:
    lines = http(gateway.http, "/metrics")[1].splitlines()
    rows = (line for line in lines if line.startswith("srtm_topic_backlog_bytes{"))
    return sum(int(float(row.rsplit(" ", 1)[1])) for row in rows)


def test_many_topics_together_are_bounded_and_disturb_no_other(servers: Servers) -> None:
    gateway = servers.gateway(
        "--default-limit=rate=0.001,burst=1",
        "--topic=free,rate=1000000,burst=1000",
        f"--max-backlog-bytes={BOUND}",
        "--max-topics=41",
    )
    body = b"x" * 60_000
    with contextlib.ExitStack() as stack:
        with bounded(gateway, 3 * BOUND + 40 * READ):
            for number in range(40):
                topic = b"t%d" % number
                big = stack.enter_context(V2(gateway.tcp))
                send_some(big, BIG.replace(b"MPUB t\n", b"MPUB %s\n" % topic))
                small = stack.enter_context(V2(gateway.tcp))
                send_some(small, pub(topic, body) * 30)
            assert BOUND <= held(gateway) <= 3 * BOUND + 40 * READ
            with V2(gateway.tcp) as client:
                client.send(pub(b"free", b"x") * 50)
                client.oks(50)
        for number in range(40):
            gateway.set_limit(f"t{number}", **OPEN)
        wait_for(
            lambda: (
                not held(gateway)
                and sum(gateway.nsqd.message_count(f"t{number}") for number in range(40)) >= 40 * 5
            ),
            "all that was sent whole has come in",
            20,
        )
