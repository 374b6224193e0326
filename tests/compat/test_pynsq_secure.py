"""pynsq's Writer and Reader with TLS, AUTH and compression, at nsqd and at the gateway alike.

The same flags are given to both. `open` offers TLS; `strict` requires it, with a certificate of the
client and AUTH.
"""

import asyncio
import random
import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nsq
import nsq.deflate_socket
import nsq.snappy_socket
import pytest
from nsq.conn import AsyncConn

from tests.support.auth_server import AuthServerProcess, allowing, auth_server
from tests.support.certificates import Authority
from tests.support.pynsq import connected, finish, in_loop
from tests.support.servers import Servers

BODIES = [
    b"a" * 200_000,
    random.Random(1).randbytes(200_000),
    *(b"%d" % number for number in range(200)),
    random.Random(2).randbytes(200_000),
    b"a" * 1_000_000,
    b"the last",
]
"""the first hundred are sent as one batch"""


@dataclass
class Broker:
    """Addresses of the two kinds of one broker."""

    open: str
    strict: str


@pytest.fixture(autouse=True)
def wouldblock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a chunk makes pynsq raise OSError(EWOULDBLOCK); Tornado 6 waits for the rest only at
    BlockingIOError, and closes the connection otherwise."""
    blocking = SimpleNamespace(error=lambda number: BlockingIOError(number, "half a chunk"))
    for module in (nsq.snappy_socket, nsq.deflate_socket):
        monkeypatch.setattr(module, "socket", blocking)


@pytest.fixture(scope="module")
def asked() -> Iterator[AuthServerProcess]:
    with auth_server() as server:
        server.answers["opensesame"] = allowing("publish", "subscribe")
        server.answers["of-the-gateway"] = allowing("publish", "subscribe")
        yield server


@pytest.fixture(scope="module", params=["nsqd", "gateway", "gateway-before-a-strict-nsqd"])
def broker(
    shared: Servers, authority: Authority, asked: AuthServerProcess, request: pytest.FixtureRequest
) -> Broker:
    cert, key = authority.issue("localhost", dns=["localhost"])
    offered = [
        f"--tls-cert={cert}",
        f"--tls-key={key}",
        f"--tls-root-ca-file={authority.ca_file}",
        "--https-address=",
        "--snappy",
        "--deflate",
    ]
    required = [
        *offered,
        "--tls-required=tcp-https",
        "--tls-client-auth-policy=require-verify",
        f"--auth-http-address={asked.address}",
    ]
    if request.param == "nsqd":
        return Broker(shared.nsqd(*offered).tcp, shared.nsqd(*required).tcp)
    if request.param == "gateway":
        return Broker(
            shared.gateway(*offered, unix=True).tcp, shared.gateway(*required, unix=True).tcp
        )
    secret = shared.folder / "secret"
    secret.write_text("of-the-gateway")
    secret.chmod(0o600)
    own = authority.issue("gateway", client=True)
    to_nsqd = [
        f"--nsqd-tls-root-ca-file={authority.ca_file}",
        f"--nsqd-tls-cert={own[0]}",
        f"--nsqd-tls-key={own[1]}",
        f"--nsqd-auth-secret-file={secret}",
    ]
    strict = shared.nsqd(*required, unix=True)
    return Broker(
        shared.gateway(*offered, *to_nsqd, nsqd=strict).tcp,
        shared.gateway(*required, *to_nsqd, nsqd=strict).tcp,
    )


@pytest.fixture(scope="module")
def tls(authority: Authority) -> dict[str, Any]:
    """pynsq's options of a client that verifies its broker."""
    options = {"ca_certs": authority.ca_file, "cert_reqs": ssl.CERT_REQUIRED}
    return {"tls_v1": True, "tls_options": options}


@pytest.fixture(scope="module")
def allowed(authority: Authority, tls: dict[str, Any]) -> dict[str, Any]:
    """pynsq's options of a client that a strict broker takes."""
    cert, key = authority.issue("client", client=True)
    options = {**tls["tls_options"], "certfile": cert, "keyfile": key}
    return {"tls_v1": True, "tls_options": options, "auth_secret": "opensesame"}


PACKINGS = [
    pytest.param({}, id="as-it-is"),
    pytest.param({"snappy": True}, id="snappy"),
    pytest.param({"deflate": True}, id="deflate"),
    pytest.param({"deflate": True, "deflate_level": 1}, id="deflate-least"),
    pytest.param({"deflate": True, "deflate_level": 9}, id="deflate-more-than-is-given"),
]


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("kind", ["clear", "tls", "strict"])
def test_what_a_writer_publishes_a_reader_gets(
    broker: Broker,
    tls: dict[str, Any],
    allowed: dict[str, Any],
    packing: dict[str, Any],
    kind: str,
    request: pytest.FixtureRequest,
) -> None:
    address = broker.strict if kind == "strict" else broker.open
    options = {**{"clear": {}, "tls": tls, "strict": allowed}[kind], **packing}
    topic = re.sub(r"\W", "-", request.node.callspec.id)
    got: list[bytes] = []
    answers: list[Any] = []

    def answered(_: AsyncConn, data: Any) -> None:
        answers.append(data)

    async def work() -> None:
        everything = asyncio.Event()

        def take(message: nsq.Message) -> bool:
            got.append(message.body)
            if len(got) == len(BODIES):
                everything.set()
            return True

        reader = nsq.Reader(
            topic,
            "c",
            take,
            nsqd_tcp_addresses=[address],
            max_in_flight=100,
            output_buffer_timeout=25,
            **options,
        )
        writer = nsq.Writer([address], **options)
        await connected(writer)
        writer.mpub(topic, BODIES[:100], callback=answered)
        for body in BODIES[100:]:
            writer.pub(topic, body, callback=answered)
        writer.dpub(topic, 60_000, b"later", callback=answered)
        await everything.wait()
        while len(answers) < 2 + len(BODIES[100:]):
            await asyncio.sleep(0.01)
        for client in (reader, writer):
            [conn] = client.conns.values()
            layers = [type(conn.socket), type(getattr(conn.socket, "_socket", None))]
            assert (ssl.SSLSocket in layers) == bool(options.get("tls_v1"))
            assert (nsq.snappy_socket.SnappySocket in layers) == bool(packing.get("snappy"))
            assert (nsq.deflate_socket.DeflateSocket in layers) == bool(packing.get("deflate"))
        reader.close()
        finish(writer)

    in_loop(work)
    assert sorted(got) == sorted(BODIES)
    assert answers == [b"OK"] * len([BODIES[:100], *BODIES[100:], b"later"])


def outcome(address: str, **options: Any) -> tuple[dict[str, Any], str]:
    """What IDENTIFY was answered, and what came of the connection: `ready`, or the error."""
    told: dict[str, Any] = {}
    ended: list[str] = []

    async def work() -> None:
        host, port = address.rsplit(":", 1)
        conn = AsyncConn(host, int(port), **options)
        done = asyncio.Event()

        def end(said: str) -> None:
            ended.append(said)
            done.set()

        conn.on("identify_response", lambda data, **_: told.update(data))
        conn.on("ready", lambda **_: end("ready"))
        conn.on("error", lambda error, **_: end(str(error)))
        conn.connect()
        await done.wait()
        if conn.stream is not None:
            conn.close()

    in_loop(work)
    return told, ended[0]


@pytest.mark.parametrize(
    ("asked_for", "answer"),
    [
        pytest.param({}, {"tls_v1": False, "snappy": False, "deflate": False}, id="nothing"),
        pytest.param({"snappy": True}, {"snappy": True, "deflate": False}, id="snappy"),
        pytest.param({"deflate": True}, {"deflate": True, "deflate_level": 6}, id="deflate"),
        pytest.param({"deflate": True, "deflate_level": 1}, {"deflate_level": 1}, id="level-1"),
        pytest.param({"deflate": True, "deflate_level": 9}, {"deflate_level": 6}, id="level-9"),
        pytest.param({"deflate": True, "deflate_level": 0}, {"deflate_level": 6}, id="level-0"),
        pytest.param({"auth_secret": "a"}, {"auth_required": False}, id="a-secret-for-nobody"),
    ],
)
def test_what_is_agreed(broker: Broker, asked_for: dict[str, Any], answer: dict[str, Any]) -> None:
    told, end = outcome(broker.open, **asked_for)
    assert {name: told[name] for name in answer} == answer
    assert end == "ready"


def test_both_packings_at_once_are_refused(broker: Broker) -> None:
    _, end = outcome(broker.open, snappy=True, deflate=True)
    assert "E_IDENTIFY_FAILED cannot enable both deflate and snappy compression" in end


@pytest.mark.parametrize(
    ("without", "error"),
    [
        pytest.param({"auth_secret": "nobody's"}, "E_AUTH_FAILED AUTH failed", id="wrong-secret"),
        pytest.param({"tls_v1": False}, "E_INVALID cannot AUTH in current state (TLS required)",
                     id="no-tls"),
        pytest.param({"tls_options": {"cert_reqs": ssl.CERT_NONE}}, "failed to upgrade to TLS",
                     id="no-certificate"),
    ],
)  # fmt: skip
def test_who_is_refused(
    broker: Broker, allowed: dict[str, Any], without: dict[str, Any], error: str
) -> None:
    assert outcome(broker.strict, **allowed)[1] == "ready"
    told, end = outcome(broker.strict, **{**allowed, **without})
    assert told["auth_required"]
    assert error in end


def test_a_broker_whose_authority_is_unknown_is_left(
    broker: Broker, tls: dict[str, Any], tmp_path: Path
) -> None:
    other = Authority(tmp_path / "other", "another authority")
    options = {**tls["tls_options"], "ca_certs": other.ca_file}
    assert "failed to upgrade to TLS" in outcome(broker.open, tls_v1=True, tls_options=options)[1]


def test_who_has_no_secret_may_not_publish(broker: Broker, allowed: dict[str, Any]) -> None:
    answers: list[Any] = []

    async def work() -> None:
        writer = nsq.Writer([broker.strict], **{**allowed, "auth_secret": None})
        await connected(writer)
        answered = asyncio.Event()

        def take(_: AsyncConn, data: Any) -> None:
            answers.append(data)
            answered.set()

        writer.pub("t", b"body", callback=take)
        await answered.wait()
        finish(writer)

    in_loop(work)
    assert "E_AUTH_FIRST AUTH required before PUB" in str(answers[0])
