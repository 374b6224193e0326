"""Slow HTTP clients take every connection that there is. Others are served all the same."""

import contextlib
import socket
from collections.abc import Iterator

import pytest

from tests.support.servers import GatewayProcess, Servers, http, wait_for

MANY = 300
"""More than the gateway takes at once."""


@pytest.fixture(scope="module")
def gateway(shared: Servers) -> Iterator[GatewayProcess]:
    gateway = shared.gateway("--topic=held,rate=0.001,burst=1")
    yield gateway
    assert "Traceback" not in gateway.process.text()


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


def test_publishes_that_wait_for_tokens_leave_connections_for_others(
    gateway: GatewayProcess,
) -> None:
    with connected(gateway, post("/pub?topic=held", 1, b"x"), MANY) as connections:
        wait_for(lambda: gateway.inside("held")["waiting"] > 200, "most of them wait")
        assert http(gateway.http, "/ping")[:2] == (200, "OK")
        assert connections[-1].recv(100).startswith(b"HTTP/1.1 429")


def test_publishes_whose_senders_have_gone_make_room(gateway: GatewayProcess) -> None:
    with contextlib.ExitStack() as senders:

        def is_full() -> bool:
            """One that the gateway has not read yet gives way to a newer one: more of them."""
            senders.enter_context(connected(gateway, post("/pub?topic=held", 1, b"x"), 50))
            return http(gateway.http, "/pub?topic=t", b"x")[0] == 429

        wait_for(is_full, "no room for another")
    wait_for(lambda: http(gateway.http, "/pub?topic=t", b"x")[0] == 200, "there is room again")
