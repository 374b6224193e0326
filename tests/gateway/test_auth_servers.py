"""Auth servers are asked by nsqd's own words, few at once, and each question once at a time."""

import asyncio
import gc
import logging
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing

import pytest

from srtm.gateway.auth import (
    MAX_SECRET_BYTES,
    AuthError,
    AuthServers,
    Question,
)
from srtm.gateway.auth_server import AuthServer
from srtm.gateway.authorization import MAX_ANSWER_BYTES, Authorization, Rules
from srtm.gateway.reactor import Reactor
from srtm.nsq.commands import auth
from tests.support.asynchronous import asynchronous
from tests.support.auth_server import AuthServerProcess, allowing, auth_server
from tests.support.certificates import Authority
from tests.support.servers import Servers, free_port
from tests.support.v2 import V2

SECRET = b"a b&c=\xff/%"
QUESTION = Question(b"s", "192.0.2.7")


@pytest.fixture
def server() -> Iterator[AuthServerProcess]:
    with auth_server() as server:
        yield server


@pytest.fixture
def reactor() -> Iterator[Reactor]:
    with closing(Reactor()) as reactor:
        yield reactor


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


async def outcome(answer: Awaitable[Authorization]) -> Authorization | AuthError:
    try:
        return await answer
    except AuthError as error:
        return error


def test_get_asks_as_nsqd_asks(
    servers: Servers, server: AuthServerProcess, reactor: Reactor
) -> None:
    nsqd = servers.nsqd(f"--auth-http-address={server.address}")
    with V2(nsqd.tcp) as client:
        client.send(auth(SECRET))
        client.reply()

    async def ask() -> None:
        await outcome(
            AuthServers((server.address,), "get", reactor).ask(Question(SECRET, "127.0.0.1"))
        )

    asyncio.run(ask())
    theirs, ours = server.asked
    assert ours == theirs


@asynchronous
async def test_post_asks_by_a_form(server: AuthServerProcess, reactor: Reactor) -> None:
    server.answers["s"] = allowing("publish")
    servers = AuthServers((f"http://{server.address}/who%20is",), "post", reactor)
    found = await servers.ask(Question(b"s", "192.0.2.7", True, "a name"))
    assert found.may_publish(b"t", found.expires_at)
    assert server.asked == [
        {
            "method": "POST",
            "path": "/who%20is",
            "secret": "s",
            "remote_ip": "192.0.2.7",
            "tls": "true",
            "common_name": "a name",
        }
    ]


@asynchronous
async def test_https_is_verified_by_the_authorities_of_the_host(
    authority: Authority, reactor: Reactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*authority.issue("auth", dns=["localhost"]))
    with auth_server(tls) as server:
        server.answers["s"] = allowing("publish")
        texts = (f"https://localhost:{server.port}/auth",)
        stranger = await outcome(AuthServers(texts, "get", reactor).ask(QUESTION))
        monkeypatch.setenv("SSL_CERT_FILE", authority.ca_file)
        trusted = await outcome(AuthServers(texts, "get", reactor).ask(QUESTION))
    assert isinstance(stranger, AuthError)
    assert "its certificate is not accepted" in str(stranger)
    assert isinstance(trusted, Authorization)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "text",
    ["host", "host:0", "host:x", "ftp://host/", "http://", "http://a b/", "http://u:p@host/",
     "http://host/?x=1", "http://host/#x", "http://host:99999/", "http://höst/"],
)  # fmt: skip
def test_an_address_that_cannot_be_asked_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        AuthServer(text)


@asynchronous
async def test_one_good_answer_is_enough(server: AuthServerProcess, reactor: Reactor) -> None:
    server.answers["s"] = allowing("publish")
    with auth_server() as bad:  # which knows nobody
        texts = (f"127.0.0.1:{free_port()}", bad.address, server.address)
        servers = AuthServers(texts, "get", reactor)
        for _ in range(20):
            assert not (await servers.ask(QUESTION)).is_empty
    assert len(bad.asked) > 2  # chance begins with any of them


@pytest.mark.parametrize(
    ("status", "answer", "is_refusal"),
    [
        pytest.param(403, b"", True, id="no"),
        pytest.param(404, b"", True, id="it-is-not-there"),
        pytest.param(500, b"{}", False, id="it-is-broken"),
        pytest.param(200, b"<html>", False, id="nonsense"),
        pytest.param(200, b'{"ttl": 0}', False, id="over-at-once"),
        pytest.param(200, b" " * (MAX_ANSWER_BYTES + 1), False, id="too-long"),
        pytest.param(302, b"", False, id="elsewhere"),
    ],
)
@asynchronous
async def test_any_other_answer_allows_nothing(
    server: AuthServerProcess, reactor: Reactor, status: int, answer: bytes, is_refusal: bool
) -> None:
    server.answers["s"], server.status = answer, status
    found = await outcome(AuthServers((server.address,), "get", reactor).ask(QUESTION))
    assert isinstance(found, AuthError)
    assert found.is_refusal == is_refusal


@asynchronous
async def test_a_server_that_is_not_there_is_told_apart_from_a_refusal(reactor: Reactor) -> None:
    servers = AuthServers((f"127.0.0.1:{free_port()}",), "get", reactor)
    found = await outcome(servers.ask(QUESTION))
    assert isinstance(found, AuthError)
    assert not found.is_refusal


@pytest.mark.parametrize("secret", [b"", b"x" * (MAX_SECRET_BYTES + 1)], ids=["none", "long"])
@asynchronous
async def test_a_secret_that_nobody_has_is_not_asked_for(
    server: AuthServerProcess, reactor: Reactor, secret: bytes
) -> None:
    servers = AuthServers((server.address,), "get", reactor)
    assert isinstance(await outcome(servers.ask(Question(secret, "192.0.2.7"))), AuthError)
    assert not server.asked


@asynchronous
async def test_the_same_question_is_asked_once_at_a_time(
    server: AuthServerProcess, reactor: Reactor
) -> None:
    server.answers["s"] = allowing("publish")
    servers = AuthServers((server.address,), "get", reactor)
    await asyncio.gather(*(servers.ask(QUESTION) for _ in range(50)))
    assert len(server.asked) == 1
    await servers.ask(QUESTION)
    assert len(server.asked) == 2


@asynchronous
async def test_few_are_asked_at_once_and_half_of_them_for_one_address(
    server: AuthServerProcess, reactor: Reactor
) -> None:
    server.answers = {f"s{number}": allowing("publish") for number in range(50)}
    server.may_answer.clear()
    servers = AuthServers((server.address,), "get", reactor)
    flood = [
        asyncio.create_task(servers.ask(Question(b"s%d" % number, "192.0.2.1")))
        for number in range(50)
    ]
    await until(lambda: len(server.asked) == 4)
    others = [
        asyncio.create_task(servers.ask(Question(b"s1", f"192.0.2.{host}"))) for host in range(2, 9)
    ]
    await until(lambda: len(server.asked) == 8)
    assert [each["remote_ip"] for each in server.asked].count("192.0.2.1") == 4
    server.may_answer.set()
    await asyncio.gather(*flood, *others)
    assert len(server.asked) == 57


@asynchronous
async def test_who_leaves_is_told_nothing_and_the_last_one_ends_the_question(
    server: AuthServerProcess, reactor: Reactor
) -> None:
    server.answers["s"] = allowing("publish")
    server.may_answer.clear()
    servers = AuthServers((server.address,), "get", reactor)
    told: list[str] = []
    leave_first = servers.begin(QUESTION, lambda _: told.append("first"))
    leave_second = servers.begin(QUESTION, lambda _: told.append("second"))
    await until(lambda: server.asked)
    leave_first()
    leave_first()
    leave_second()
    servers.begin(QUESTION, lambda _: told.append("third"))  # comes as the task is being ended
    await until(lambda: len(server.asked) == 2)
    server.may_answer.set()
    await until(lambda: told)
    assert told == ["third"]
    leave_second()
    assert not servers._under_way


@asynchronous
async def test_a_client_that_fails_keeps_no_other_from_its_answer(
    server: AuthServerProcess, reactor: Reactor
) -> None:
    server.answers["s"] = allowing("publish")
    servers = AuthServers((server.address,), "get", reactor)
    told: list[object] = []

    def fail(_: object) -> None:
        leave_third()
        raise ZeroDivisionError

    servers.begin(QUESTION, fail)
    servers.begin(QUESTION, told.append)
    leave_third = servers.begin(QUESTION, told.append)
    await until(lambda: told)
    assert len(told) == 1
    assert reactor.faults == 1


@asynchronous
async def test_no_secret_is_in_an_error_or_in_the_log(
    server: AuthServerProcess, reactor: Reactor, caplog: pytest.LogCaptureFixture
) -> None:
    """Even where somebody listens who says again all that he hears."""
    caplog.set_level(logging.DEBUG)
    with socket.create_server(("127.0.0.1", 0)) as echo:

        def say_again() -> None:
            connection, _ = echo.accept()
            with connection:
                connection.sendall(connection.recv(65536))

        threading.Thread(target=say_again, daemon=True).start()
        question = Question(b"hush-hush", "192.0.2.7")
        server.answers["hush-hush"] = b'{"ttl": 9, "authorizations": ["hush-hush"]}'
        nobody = f"127.0.0.1:{free_port()}"
        texts = (server.address, nobody, f"127.0.0.1:{echo.getsockname()[1]}")
        error = await outcome(AuthServers(texts, "get", reactor).ask(question))
    assert isinstance(error, AuthError)
    assert str(error).count(";") >= 2
    assert "192.0.2.7" in caplog.text
    for text in (str(error), repr(question), caplog.text):
        assert "hush" not in text


@asynchronous
async def test_a_flood_is_not_a_flood_of_the_log(
    server: AuthServerProcess, reactor: Reactor, caplog: pytest.LogCaptureFixture
) -> None:
    servers = AuthServers((server.address,), "get", reactor)
    asked = (servers.ask(Question(b"s%d" % number, "192.0.2.7")) for number in range(30))
    await asyncio.gather(*map(outcome, asked))
    assert 1 <= len(caplog.records) < 30


@asynchronous
async def test_nothing_is_left_for_the_collector_of_garbage(
    server: AuthServerProcess, reactor: Reactor
) -> None:
    """The gateway collects rarely, and a flood of wrong secrets would fill its memory."""
    server.answers["s"] = allowing("publish")
    servers = AuthServers((server.address,), "get", reactor)

    async def ask_some() -> None:
        for number in range(20):
            await outcome(servers.ask(QUESTION))
            await outcome(servers.ask(Question(b"wrong %d" % number, "192.0.2.7")))

    await ask_some()
    gc.collect()
    gc.disable()
    try:
        await ask_some()
        assert gc.collect() < 20
    finally:
        gc.enable()


@asynchronous
async def test_at_the_end_nobody_is_left_to_wait(
    server: AuthServerProcess, reactor: Reactor
) -> None:
    server.may_answer.clear()
    servers = AuthServers((server.address,), "get", reactor)
    asked = [
        asyncio.create_task(outcome(servers.ask(Question(b"s%d" % number, "192.0.2.7"))))
        for number in range(9)
    ]
    await until(lambda: server.asked)
    servers.give_up()
    for found in await asyncio.gather(*asked):
        assert isinstance(found, AuthError)
        assert not found.is_refusal


@asynchronous
async def test_what_is_kept_is_bounded_in_answers_and_in_their_authorizations(
    server: AuthServerProcess, reactor: Reactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("srtm.gateway.auth._MOST_KEPT", 5)
    monkeypatch.setattr("srtm.gateway.auth._MOST_KEPT_RULES", 8)
    one = allowing("publish")
    server.answers = {"small": one, "big": {**one, "authorizations": one["authorizations"] * 5}}
    servers = AuthServers((server.address,), "get", reactor)

    async def ask(secret: bytes, *hosts: int) -> None:
        for host in hosts:
            await servers.ask(Question(secret, f"192.0.2.{host}"))

    def kept(secret: bytes) -> list[int]:
        questions = {host: Question(secret, f"192.0.2.{host}") for host in range(10)}
        return [host for host, each in questions.items() if each.digest() in servers._kept]

    await ask(b"small", 0, 1, 2, 3, 4)
    assert servers.known(Question(b"small", "192.0.2.0")) is not None  # the newest now
    await ask(b"small", 5, 5)
    assert kept(b"small") == [0, 2, 3, 4, 5]
    await ask(b"big", 0)
    assert (kept(b"small"), kept(b"big")) == ([0, 4, 5], [0])
    await ask(b"big", 1)
    assert (kept(b"small"), kept(b"big")) == ([], [1])


@asynchronous
async def test_too_many_different_answers_fail_closed_and_the_log_says_so(
    server: AuthServerProcess,
    reactor: Reactor,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    gc.collect()
    monkeypatch.setattr("srtm.gateway.authorization.MOST_BYTES", Rules.held_bytes + 50_000)
    server.answers = {f"s{n}": allowing("publish", topic=f"^{n}$") for n in range(10)}
    servers = AuthServers((server.address,), "get", reactor)
    for number in range(5):  # kept for HTTP alone, and each makes room for another
        await servers.ask(Question(b"s%d" % number, "192.0.2.7"))
    held = [await servers.ask(Question(b"s%d" % number, "192.0.2.7")) for number in range(3)]
    refused = await outcome(servers.ask(Question(b"s9", "192.0.2.7")))
    assert isinstance(refused, AuthError)
    assert (refused.is_refusal, refused.was_answered) == (False, True)
    assert "give clients equal answers" in str(refused)
    assert "give clients equal answers" in caplog.text
    del held
    assert not (await servers.ask(Question(b"s9", "192.0.2.7"))).is_empty
