"""With an auth server /pub, /mpub and changes of topics need a token that it knows."""

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import pytest

from tests.support.auth_server import AuthServerProcess, allowing, auth_server
from tests.support.servers import GatewayProcess, Nsqd, Servers, http, wait_for


@pytest.fixture(scope="module")
def nsqd(shared: Servers) -> Nsqd:
    return shared.nsqd()


@pytest.fixture(scope="module")
def server() -> Iterator[AuthServerProcess]:
    with auth_server() as server:
        yield server


@pytest.fixture(scope="module")
def gateway(shared: Servers, nsqd: Nsqd, server: AuthServerProcess) -> GatewayProcess:
    return shared.gateway("--http-admin", f"--auth-http-address={server.address}", nsqd=nsqd)


@pytest.fixture(autouse=True)
def answers(server: AuthServerProcess) -> None:
    server.asked.clear()
    server.status = 200
    server.answers = {
        "all": allowing("publish", "subscribe"),
        "mine": allowing("publish", "subscribe", topic="^mine", channels=("^$", "^mine$")),
        "reads": allowing("subscribe", topic="^mine", channels=("^mine$",)),
        "nobody": {"ttl": 9, "authorizations": []},
    }


def post(
    gateway: GatewayProcess, path: str, secret: str, body: Any = b"x", scheme: str = "Bearer"
) -> tuple[int, str]:
    """Status, and the line that says why."""
    headers = {"Authorization": f"{scheme} {secret}"} if secret else {}
    connection = HTTPConnection(gateway.http, timeout=60)
    try:
        connection.request("POST", path, body, headers)
        response = connection.getresponse()
        text = response.read().decode()
        status = response.status
        if status == 401:
            assert response.headers["WWW-Authenticate"].startswith("Bearer")
    finally:
        connection.close()
    return status, json.loads(text)["message"] if text.startswith("{") else text


@pytest.mark.parametrize(
    ("path", "secret", "status", "line"),
    [
        pytest.param("/pub?topic=mine", "all", 200, "OK", id="allowed"),
        pytest.param("/pub?topic=mine", "mine", 200, "OK", id="allowed-by-a-pattern"),
        pytest.param("/mpub?topic=mine", "mine", 200, "OK", id="several"),
        pytest.param("/pub?topic=mine", "", 401, "UNAUTHORIZED: ", id="no-token"),
        pytest.param("/mpub?topic=mine", "", 401, "UNAUTHORIZED: ", id="several-without"),
        pytest.param("/pub", "", 401, "UNAUTHORIZED: ", id="no-token-and-no-topic"),
        pytest.param("/pub?topic=mine", "wrong", 401, "UNAUTHORIZED: ", id="wrong-token"),
        pytest.param("/pub", "all", 400, "MISSING_ARG_TOPIC", id="no-topic"),
        pytest.param("/pub?topic=a%20b", "all", 400, "INVALID_TOPIC", id="no-name"),
        pytest.param(
            "/pub?topic=other", "mine", 403, 'FORBIDDEN: AUTH failed for PUB on "other" ""',
            id="another-topic",
        ),
        pytest.param(
            "/mpub?topic=other", "mine", 403, 'FORBIDDEN: AUTH failed for MPUB on "other" ""',
            id="several-to-another-topic",
        ),
        pytest.param("/pub?topic=mine", "reads", 403, "FORBIDDEN: ", id="only-to-subscribe"),
        pytest.param("/pub?topic=mine", "nobody", 403, "FORBIDDEN: ", id="nothing-allowed"),
        pytest.param("/topic/create?topic=mine1", "", 401, "UNAUTHORIZED: ", id="create-without"),
        pytest.param("/topic/create?topic=mine1", "mine", 200, "", id="create"),
        pytest.param("/topic/create?topic=other", "mine", 403, "FORBIDDEN: ", id="create-another"),
        pytest.param("/topic/delete?topic=mine2", "reads", 403, "FORBIDDEN: ", id="delete"),
        pytest.param(
            "/topic/create?topic=other&topic=mine", "mine", 403, "FORBIDDEN: ", id="two-topics"
        ),
        pytest.param(
            "/topic/create?topic=mine;&topic=x", "mine", 400, "INVALID_REQUEST", id="bad-query"
        ),
        pytest.param(
            "/channel/create?topic=mine3&channel=mine", "reads", 404, "TOPIC_NOT_FOUND",
            id="channel-of-no-topic",
        ),
        pytest.param(
            "/channel/create?topic=mine3&channel=other", "mine", 403, "FORBIDDEN: ",
            id="another-channel",
        ),
        pytest.param(
            "/channel/create?topic=mine3", "mine", 400, "MISSING_ARG_CHANNEL", id="no-channel"
        ),
        pytest.param("/topic/create", "mine", 400, "MISSING_ARG_TOPIC", id="create-nothing"),
    ],
)  # fmt: skip
def test_a_request_gets_what_its_token_allows(
    gateway: GatewayProcess, path: str, secret: str, status: int, line: str
) -> None:
    found, said = post(gateway, path, secret)
    assert found == status
    assert said.startswith(line)


def test_other_schemes_are_no_token(gateway: GatewayProcess) -> None:
    assert post(gateway, "/pub?topic=mine", "all", scheme="Basic")[0] == 401
    assert post(gateway, "/pub?topic=mine", "all", scheme="bearer")[0] == 200


@pytest.mark.parametrize("path", ["/ping", "/info", "/stats?format=json", "/metrics"])
def test_what_only_shows_something_asks_for_none(gateway: GatewayProcess, path: str) -> None:
    assert http(gateway.http, path)[0] == 200


def test_the_auth_server_hears_who_asks_and_its_answer_is_kept(
    gateway: GatewayProcess, server: AuthServerProcess
) -> None:
    server.answers["once"] = allowing("publish")
    for _ in range(5):
        assert post(gateway, "/pub?topic=mine", "once") == (200, "OK")
    assert server.asked == [
        {
            "method": "GET",
            "path": "/auth",
            "secret": "once",
            "remote_ip": "127.0.0.1",
            "tls": "false",
            "common_name": "",
        }
    ]


def test_a_refusal_is_not_kept(gateway: GatewayProcess, server: AuthServerProcess) -> None:
    assert post(gateway, "/pub?topic=mine", "later")[0] == 401
    server.answers["later"] = allowing("publish")
    assert post(gateway, "/pub?topic=mine", "later")[0] == 200


def test_it_ends_with_its_time_and_is_asked_for_again(
    gateway: GatewayProcess, server: AuthServerProcess
) -> None:
    server.answers["short"] = allowing("publish", ttl=1)
    assert post(gateway, "/pub?topic=mine", "short")[0] == 200
    del server.answers["short"]
    wait_for(lambda: post(gateway, "/pub?topic=mine", "short")[0] == 401, "the end of its ttl")


def test_without_an_answer_nothing_is_allowed(
    gateway: GatewayProcess, server: AuthServerProcess
) -> None:
    server.status, server.answers["unheard-of"] = 500, {}
    status, line = post(gateway, "/pub?topic=mine", "unheard-of")
    assert status == 503
    assert line == "AUTH_UNAVAILABLE: no auth server answers"


def test_a_big_body_without_a_token_is_answered_and_not_reset(gateway: GatewayProcess) -> None:
    assert post(gateway, "/mpub?topic=mine", "", b"x" * 4_000_000)[0] == 401


def test_a_body_that_comes_while_the_auth_server_thinks_is_published(
    gateway: GatewayProcess, server: AuthServerProcess, nsqd: Nsqd
) -> None:
    server.answers["slow"] = allowing("publish")
    server.may_answer.clear()
    lines = b"\n".join(b"%06d" % number for number in range(100_000))
    connection = HTTPConnection(gateway.http, timeout=60)
    connection.putrequest("POST", "/mpub?topic=mine-slow")
    connection.putheader("Authorization", "Bearer slow")
    connection.putheader("Content-Length", str(len(lines)))
    connection.endheaders()
    wait_for(lambda: server.asked, "a question")
    assert http(gateway.http, "/ping")[0] == 200
    server.may_answer.set()
    connection.send(lines)
    assert connection.getresponse().status == 200
    connection.close()
    assert nsqd.message_count("mine-slow") == 100_000


def test_no_secret_is_in_the_log(gateway: GatewayProcess) -> None:
    post(gateway, "/pub?topic=mine", "hush-hush")
    assert "hush" not in gateway.process.text()


def test_who_waits_for_an_auth_server_hears_of_the_end(
    servers: Servers, server: AuthServerProcess, nsqd: Nsqd
) -> None:
    gateway = servers.gateway(f"--auth-http-address={server.address}", nsqd=nsqd)
    server.may_answer.clear()
    connection = HTTPConnection(gateway.http, timeout=60)
    connection.request("POST", "/pub?topic=t", b"x", {"Authorization": "Bearer all"})
    wait_for(lambda: server.asked, "a question")
    assert gateway.process.stop() == 0
    server.may_answer.set()
    assert connection.getresponse().status == 503
    connection.close()
    assert "Traceback" not in gateway.process.text()
