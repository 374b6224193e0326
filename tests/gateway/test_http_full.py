"""Slow HTTP clients take every connection that there is. Others are served all the same."""

import contextlib
import select
import socket
from collections.abc import Iterator

import pytest

from tests.support.servers import GatewayProcess, Servers, http, wait_for

MOST = 256
MANY = 300
"""More than the gateway takes at once."""
THROTTLED = ("a", "b", "c")


@pytest.fixture(scope="module")
def gateway(shared: Servers) -> Iterator[GatewayProcess]:
    gateway = shared.gateway(
        f"--max-http-connections={MOST}",
        *(f"--topic={name},rate=0.001,burst=1" for name in ("held", "left", *THROTTLED)),
    )
    yield gateway
    assert "Traceback" not in gateway.process.text()


@pytest.fixture(autouse=True)
def _alone(gateway: GatewayProcess) -> None:
    """Those of the test before would take places, and those who come be closed for newer ones."""
    wait_for(lambda: gateway.metric("srtm_http_connections") < 10, "those before have gone")


@contextlib.contextmanager
def connected(gateway: GatewayProcess, sent: bytes, count: int) -> Iterator[list[socket.socket]]:
    """So many connections, each of which has sent so much and no more."""
    host, port = gateway.http.split(":")
    with contextlib.ExitStack() as stack:
        connections = []
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection((host, int(port)), 5))
            with contextlib.suppress(ConnectionError):  # closed for a newer one
                connection.sendall(sent)
            connections.append(connection)
        yield connections


def is_refused(connections: list[socket.socket]) -> bool:
    """Is one of them answered with 429?"""
    readable, _, _ = select.select(connections, [], [], 0)
    for connection in readable:
        with contextlib.suppress(ConnectionError):
            if connection.recv(100, socket.MSG_PEEK).startswith(b"HTTP/1.1 429"):
                return True
    return False


def post(path: str, length: int, body: bytes) -> bytes:
    return b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (
        path.encode(),
        length,
        body,
    )


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"", id="that-say-nothing"),
        pytest.param(b"GET /ping HTT", id="with-half-a-line"),
        pytest.param(b"GET /ping HTTP/1.1\r\nHost: x\r\n", id="with-half-a-head"),
        pytest.param(post("/pub?topic=t", 100, b"half"), id="with-half-a-body"),
        pytest.param(b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n", id="that-stay-idle"),
    ],
)
def test_many_connections(gateway: GatewayProcess, sent: bytes) -> None:
    with connected(gateway, sent, MANY):
        assert http(gateway.http, "/ping")[:2] == (200, "OK")
        assert http(gateway.http, "/metrics")[0] == 200
        assert http(gateway.http, "/pub?topic=t", b"x")[:2] == (200, "OK")


def test_a_request_that_is_being_served_is_not_closed_for_another(gateway: GatewayProcess) -> None:
    gateway.set_limit("waits", rate=0.001, burst=1)
    assert http(gateway.http, "/pub?topic=waits", b"takes the token")[0] == 200
    with connected(gateway, post("/pub?topic=waits", 1, b"x"), 1) as [waiting]:
        wait_for(lambda: gateway.inside("waits")["waiting"] == 1, "it waits for its token")
        with connected(gateway, b"GET /ping HTT", MANY):
            assert http(gateway.http, "/ping")[0] == 200
            gateway.set_limit("waits", rate=1e6, burst=1e6)
            assert waiting.recv(100).startswith(b"HTTP/1.1 200")


def test_a_topic_that_holds_its_publishers_leaves_places_for_all_others(
    gateway: GatewayProcess,
) -> None:
    with connected(gateway, post("/pub?topic=held", 1, b"x"), MANY) as connections:
        wait_for(lambda: gateway.inside("held")["waiting"] > 100, "most of them wait")
        wait_for(lambda: is_refused(connections), "its own are told to come again")
        with contextlib.ExitStack() as more:
            for name in THROTTLED:
                more.enter_context(connected(gateway, post(f"/mpub?topic={name}", 1, b"x"), 100))
                wait_for(lambda name=name: gateway.inside(name)["waiting"] > 10, f"{name} waits")
            assert http(gateway.http, "/ping")[:2] == (200, "OK")
            assert http(gateway.http, "/metrics")[0] == 200
            assert http(gateway.http, "/stats?format=json")[0] == 200
            for path in ("/pub?topic=t", "/mpub?topic=t", "/pub?topic=new", "/pub?topic=t&defer=1"):
                assert http(gateway.http, path, b"x")[:2] == (200, "OK"), path


def test_publishes_whose_senders_have_gone_make_room(gateway: GatewayProcess) -> None:
    with connected(gateway, post("/pub?topic=left", 1, b"x"), MANY) as connections:
        wait_for(lambda: is_refused(connections), "no room for more")
    wait_for(lambda: gateway.metric("srtm_http_connections") < 10, "they have gone")
    with connected(gateway, post("/pub?topic=left", 1, b"x"), 100) as connections:
        wait_for(lambda: http(gateway.http, "/ping")[0] == 200, "the gateway has read them")
        gateway.set_limit("left", rate=1e6, burst=1e6)
        for number, connection in enumerate(connections):
            answer = connection.recv(1000)
            assert answer.startswith(b"HTTP/1.1 200"), (number, answer)


def test_a_request_that_has_come_is_answered_though_more_connections_come(servers: Servers) -> None:
    gateway = servers.gateway("--max-http-connections=64")
    gateway.process.freeze()
    with connected(gateway, b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n", 100) as connections:
        gateway.process.thaw()
        for connection in connections[:64]:
            assert connection.recv(100).startswith(b"HTTP/1.1 200")


def test_calls_that_nsqd_does_not_answer_leave_places_for_others(servers: Servers) -> None:
    gateway = servers.gateway("--max-http-connections=64")
    gateway.nsqd.process.freeze()
    with connected(gateway, b"GET /stats HTTP/1.1\r\nHost: x\r\n\r\n", 50) as connections:
        wait_for(lambda: is_refused(connections), "no room for more")
        assert http(gateway.http, "/metrics")[0] == 200
        assert http(gateway.http, "/info")[0] == 200
        gateway.nsqd.process.thaw()
        assert connections[0].recv(100).startswith(b"HTTP/1.1 200")


def test_many_clients_keep_their_connections(servers: Servers) -> None:
    """As many as there are files for, like nsqd."""
    gateway = servers.gateway()
    with connected(gateway, post("/pub?topic=t", 1, b"x"), 600) as connections:
        for _ in range(2):
            for connection in connections:
                assert connection.recv(1000).startswith(b"HTTP/1.1 200")
                connection.sendall(post("/pub?topic=t", 1, b"x"))


def test_half_a_request_has_its_time_and_an_idle_connection_any(servers: Servers) -> None:
    gateway = servers.gateway("--http-timeout=500ms")
    gateway.set_limit("held", rate=0.001, burst=1)
    assert http(gateway.http, "/pub?topic=held", b"takes the token")[0] == 200
    ping = b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n"
    with (
        connected(gateway, b"", 1) as [silent],
        connected(gateway, ping, 1) as [idle],
        connected(gateway, post("/pub?topic=held", 1, b"x"), 1) as [held],
        connected(gateway, ping[:-2], 1) as [head],
        connected(gateway, post("/pub?topic=t", 9, b"half"), 1) as [body],
        connected(gateway, ping + ping[:9], 1) as [second],
    ):
        assert idle.recv(1000).startswith(b"HTTP/1.1 200")
        assert second.recv(1000).startswith(b"HTTP/1.1 200")
        for slow in (head, body, second):
            slow.settimeout(60)
            assert slow.recv(1000).startswith(b"HTTP/1.1 408")
        for connection in (silent, idle):
            connection.sendall(ping)
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        gateway.set_limit("held", rate=1e6, burst=1e6)
        assert held.recv(100).startswith(b"HTTP/1.1 200")


def test_a_head_that_is_too_long_is_told_so(gateway: GatewayProcess) -> None:
    head = b"GET /ping HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 200_000
    with connected(gateway, head, 1) as [connection]:
        assert connection.recv(100).startswith(b"HTTP/1.1 431")


def test_a_body_is_as_big_as_nsqd_lets_it_be(servers: Servers) -> None:
    size = 65 << 20
    nsqd = servers.nsqd(f"--max-msg-size={size}", f"--max-body-size={size}")
    gateway = servers.gateway(f"--max-connection-backlog-bytes={size}", nsqd=nsqd)
    assert http(gateway.http, "/pub?topic=t", bytes(size))[:2] == (200, "OK")
    assert http(gateway.http, "/pub?topic=t", bytes(size + 1))[0] == 413
