"""Clients that send nonsense, half a command, nothing, too much, or never read."""

import contextlib
import resource
import socket
import time
from collections.abc import Iterator
from http.client import HTTPException

import psutil
import pytest

from srtm.nsq.commands import MAGIC_V2, pub
from tests.support.servers import GatewayProcess, Servers, http, wait_for
from tests.support.v2 import V2


@pytest.fixture(scope="module")
def gateway(shared: Servers) -> Iterator[GatewayProcess]:
    gateway = shared.gateway("--max-partial-bytes=2000000", unix=True)
    yield gateway
    assert "Traceback" not in gateway.process.text()
    assert gateway.process.alive


def connections(gateway: GatewayProcess) -> int:
    count: int = http(gateway.http, "/stats?format=json&include_clients=false")[1]["srtm"][
        "connections"
    ]
    return count


GARBAGE = {
    "zeros": b"\0" * 5000,
    "high-bytes": b"\xff" * 5000,
    "an-http-request": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a-tls-hello": bytes.fromhex("16030100a5010000a10303") + b"\x01" * 160,
    "an-ssh-banner": b"SSH-2.0-OpenSSH_9.6\r\n",
    "magic-and-zeros": MAGIC_V2 + b"\0" * 20_000,
    "magic-and-a-long-line": MAGIC_V2 + b"A" * 20_000,
    "magic-and-high-bytes": MAGIC_V2 + b"\xff" * 20_000 + b"\n",
    "a-pub-and-nonsense": MAGIC_V2 + pub(b"garbage", b"x") + b"\r\n\x00nonsense\n",
    "a-size-of-two-gigabytes": MAGIC_V2 + b"PUB garbage\n\x7f\xff\xff\xff",
    "a-negative-size": MAGIC_V2 + b"PUB garbage\n\x80\x00\x00\x00",
    "an-mpub-of-two-billion": MAGIC_V2 + b"MPUB garbage\n\x00\x00\x00\x08\x7f\xff\xff\xffxxxx",
}  # fmt: skip


@pytest.mark.parametrize("sent", [pytest.param(raw, id=name) for name, raw in GARBAGE.items()])
def test_garbage_is_told_as_nsqd_does_and_closed(gateway: GatewayProcess, sent: bytes) -> None:
    with V2(gateway.tcp, magic=b"") as client:
        client.send(sent)
        replies = []
        while (reply := client.reply()) is not None:
            replies.append(reply)
        assert replies[-1].startswith((b"E_BAD_PROTOCOL", b"E_INVALID", b"E_BAD_"))
        assert replies[:-1] in ([], [b"OK"])
        assert all(b"\n" not in reply and len(reply) < 300 for reply in replies)


def test_who_still_writes_reads_why_it_was_refused(gateway: GatewayProcess) -> None:
    """A closed socket would answer with a reset: the next write fails, and nobody reads on."""
    before = connections(gateway)
    with V2(gateway.tcp) as client:
        client.send(b"nonsense\n" + b"x" * 100_000)
        wait_for(lambda: connections(gateway) == before, "the gateway is done with it")
        for _ in range(20):
            client.send(b"y" * 10_000)
            http(gateway.http, "/ping")  # time for a reset to come
        assert (client.reply() or b"").startswith(b"E_INVALID")
        assert client.reply() is None


def flood(client: V2, topic: bytes, seconds: float) -> bool:
    """Publish without reading for so long; True when the other side closed before."""
    client.socket.setblocking(False)
    chunk = pub(topic, b"x" * 10) * 5000
    left = memoryview(chunk)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            left = left[client.socket.send(left) :] or memoryview(chunk)
        except BlockingIOError:
            time.sleep(0.01)
        except ConnectionError:
            return True
    return False


def test_a_publisher_that_never_reads_its_answers_is_bounded_and_gone_in_time(
    gateway: GatewayProcess,
) -> None:
    process = psutil.Process(gateway.process.popen.pid)
    before = process.memory_info().rss
    with V2(gateway.tcp, receive_buffer=2048) as client:
        client.identify(heartbeat_interval=1000)
        assert flood(client, b"unread", 20), "it was not closed"
        assert process.memory_info().rss - before < 60 * 1024 * 1024
    assert http(gateway.http, "/ping")[0] == 200


def test_one_that_does_not_read_holds_up_nobody_else(gateway: GatewayProcess) -> None:
    with V2(gateway.tcp, receive_buffer=2048) as deaf, V2(gateway.tcp) as other:
        assert not flood(deaf, b"deaf", 1.0)
        for _ in range(20):
            other.send(pub(b"deaf", b"x"))
            assert other.reply(timeout=5) == b"OK"


def test_topics_over_the_bound_are_refused_and_idle_ones_make_room(servers: Servers) -> None:
    gateway = servers.gateway("--max-topics=3", "--topic=own,rate=1000,burst=10")
    with V2(gateway.tcp) as client:
        for number in range(10):
            client.send(pub(b"topic-%d" % number, b"x"))
            assert client.reply() == b"OK", "topics without a contract come and go"
    limited = servers.gateway("--max-topics=3", "--default-limit=rate=0.001,burst=2")
    for topic in ("a", "b", "c"):
        assert http(limited.http, f"/pub?topic={topic}", b"x")[:2] == (200, "OK")
        assert limited.ours(topic)["rate"] == 0.001
    sentence = "3 topics are in use (--max-topics); d would be one more"
    with V2(limited.tcp) as client:
        client.send(pub(b"d", b"x"))
        assert client.reply() == b"E_PUB_FAILED " + sentence.encode()
        assert client.ended()
    status, document, _ = http(limited.http, "/pub?topic=d", b"x")
    assert (status, document["message"]) == (503, f"E_PUB_FAILED {sentence}")
    assert limited.nsqd.topic("d") is None
    assert http(limited.http, "/pub?topic=a", b"x")[0] == 200, "those in use are served"


def test_connections_over_the_bound_are_closed_and_counted(servers: Servers) -> None:
    gateway = servers.gateway("--max-connections=3")
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(V2(gateway.tcp)) for _ in range(3)]
        for client in clients:
            client.send(pub(b"t", b"x"))
            assert client.reply() == b"OK"
        with V2(gateway.tcp) as fourth:
            assert fourth.ended()
        assert "srtm_refused_connections_total 1.0" in http(gateway.http, "/metrics")[1]
        clients[0].close()
        wait_for(lambda: connections(gateway) == 2, "one has left")
        with V2(gateway.tcp) as next_one:
            next_one.send(pub(b"t", b"x"))
            assert next_one.reply() == b"OK"


def test_when_descriptors_run_out_the_rest_is_served_at_no_cost(servers: Servers) -> None:
    """452 files: 96 for the gateway itself, 256 for HTTP, 100 for V2 clients."""
    few = ("sh", "-c", 'ulimit -n 452; exec "$@"', "sh")
    gateway = servers.gateway("--max-http-connections=256", prefix=few, unix=True)
    host, port = gateway.tcp.split(":")
    web_host, web_port = gateway.http.split(":")
    with contextlib.ExitStack() as stack:
        publishers = [stack.enter_context(V2(gateway.tcp)) for _ in range(60)]
        consumers = [stack.enter_context(V2(gateway.tcp)) for _ in range(20)]
        for consumer in consumers:
            consumer.subscribe("t", "c")
        with V2(gateway.tcp) as refused:
            assert refused.ended(), "60 + 2 * 20 are all"
        for _ in range(400):
            stack.enter_context(socket.create_connection((web_host, int(web_port)), 5))
        # Everybody in is served, and the gateway does not spin.
        process = psutil.Process(gateway.process.popen.pid)
        time.sleep(0.5)
        spent = sum(process.cpu_times()[:2])
        time.sleep(1)
        assert sum(process.cpu_times()[:2]) - spent < 0.5
        for publisher in publishers:
            publisher.send(pub(b"t", b"x"))
            assert publisher.reply() == b"OK"
    wait_for(lambda: _served(host, int(port), gateway), "new clients are taken again")
    assert "Traceback" not in gateway.process.text()


def _served(host: str, port: int, gateway: GatewayProcess) -> bool:
    try:
        with V2(f"{host}:{port}") as client:
            client.send(pub(b"t", b"x"))
            return client.reply() == b"OK" and http(gateway.http, "/ping")[0] == 200
    except (OSError, HTTPException):
        return False


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"\0\0\0\0\r\n\r\n", id="zeros"),
        pytest.param(b"GET / HTTP/9.9\r\n\r\n", id="a-strange-version"),
        pytest.param(b"GET /ping HTTP/1.1\r\n" + b"X: " + b"y" * 40_000 + b"\r\n\r\n", id="long"),
        pytest.param(
            b"POST /pub?topic=t HTTP/1.1\r\nContent-Length: -5\r\n\r\n", id="a-negative-length"
        ),
        pytest.param(
            b"POST /pub?topic=t HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", id="huge"
        ),
        pytest.param(
            b"POST /pub?topic=t HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", id="no-chunk"
        ),
    ],
)
def test_bad_http_is_refused_or_closed(gateway: GatewayProcess, raw: bytes) -> None:
    host, port = gateway.http.split(":")
    with socket.create_connection((host, int(port)), 5) as connection:
        connection.sendall(raw)
        answer = b""
        with contextlib.suppress(ConnectionError):
            while data := connection.recv(4096):
                answer += data
    assert answer == b"" or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4"))
    assert http(gateway.http, "/ping")[0] == 200


@pytest.fixture
def many_files() -> Iterator[None]:
    """Room for ten thousand sockets in this process and in its children."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 10_600:
        pytest.skip(f"the hard limit of open files is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
def test_ten_thousand_idle_connections_take_less_than_150_megabytes(servers: Servers) -> None:
    gateway = servers.gateway(unix=True)
    host, port = gateway.tcp.split(":")
    with contextlib.ExitStack() as stack:
        for _ in range(10_000):
            connection = stack.enter_context(socket.create_connection((host, int(port)), 5))
            connection.sendall(MAGIC_V2)
        wait_for(lambda: connections(gateway) == 10_000, "all are taken")
        assert psutil.Process(gateway.process.popen.pid).memory_info().rss < 150 * 1024 * 1024
        with V2(gateway.tcp) as client:
            started = time.monotonic()
            client.send(pub(b"t", b"x"))
            assert client.reply() == b"OK"
            assert time.monotonic() - started < 1
    wait_for(lambda: connections(gateway) == 0, "and all go")
