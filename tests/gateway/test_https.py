"""The HTTPS door: what the HTTP door does, behind a handshake; and what TLS required means."""

import contextlib
import json
import os
import shutil
import signal
import socket
import ssl
import struct
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any

import pytest

from srtm.nsq.commands import MAGIC_V2
from tests.support.auth_server import allowing, auth_server
from tests.support.certificates import Authority
from tests.support.servers import GatewayProcess, Nsqd, Servers, free_port, http, wait_for

NO_TLS = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"


@pytest.fixture(scope="module")
def pair(authority: Authority) -> list[str]:
    cert, key = authority.issue("localhost", dns=["localhost"], ip=["127.0.0.1"])
    return [f"--tls-cert={cert}", f"--tls-key={key}"]


@pytest.fixture(scope="module")
def nsqd(shared: Servers) -> Nsqd:
    return shared.nsqd()


@pytest.fixture(scope="module")
def door() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def gateway(shared: Servers, nsqd: Nsqd, pair: list[str], door: str) -> GatewayProcess:
    return shared.gateway(*pair, f"--https-address={door}", nsqd=nsqd)


def secure(address: str, tls: ssl.SSLContext) -> ssl.SSLSocket:
    host, port = address.split(":")
    connection = socket.create_connection((host, int(port)), 60)
    return tls.wrap_socket(connection, server_hostname="localhost", suppress_ragged_eofs=False)


def ask(
    address: str, tls: ssl.SSLContext | None, path: str, body: Any = None, secret: str = ""
) -> tuple[int, bytes, dict[str, str]]:
    """Status, body and headers, by HTTPS where there is a context."""
    connection: HTTPConnection = (
        HTTPConnection(address, timeout=60)
        if tls is None
        else HTTPSConnection(address, timeout=60, context=tls)
    )
    headers = {"Authorization": f"Bearer {secret}"} if secret else {}
    with contextlib.closing(connection):
        connection.request("GET" if body is None else "POST", path, body, headers)
        response = connection.getresponse()
        return response.status, response.read(), dict(response.headers)


def rest(connection: socket.socket) -> bytes:
    """All that comes until the other side ends. Raises where it was cut short."""
    heard = b""
    while data := connection.recv(65536):
        heard += data
    return heard


@pytest.mark.parametrize(
    ("path", "body"),
    [
        pytest.param("/ping", None, id="ping"),
        pytest.param("/info", None, id="info"),
        pytest.param("/pub?topic=t", b"x", id="pub"),
        pytest.param("/mpub?topic=t", b"x\n" * 300_000, id="mpub"),
        pytest.param("/pub?topic=t", b"x" * 3_000_000, id="too-big"),
        pytest.param("/pub?topic=a%20b", b"x", id="no-name"),
        pytest.param("/nowhere", None, id="nowhere"),
        pytest.param("/ping/", None, id="moved"),
        pytest.param("/topic/create?topic=t", b"", id="no-admin"),
    ],
)
def test_it_answers_as_the_http_door_does(
    gateway: GatewayProcess, door: str, trusting: ssl.SSLContext, path: str, body: Any
) -> None:
    plain, safe = ask(gateway.http, None, path, body), ask(door, trusting, path, body)
    for _, _, headers in (plain, safe):
        headers.pop("Date")
    assert safe == plain


def test_what_is_published_by_https_is_at_nsqd(
    gateway: GatewayProcess, nsqd: Nsqd, door: str, trusting: ssl.SSLContext
) -> None:
    lines = b"\n".join(b"%07d" % number for number in range(500_000))
    assert ask(door, trusting, "/mpub?topic=many", lines)[:2] == (200, b"OK")
    assert nsqd.message_count("many") == 500_000


def test_a_connection_is_kept_and_counted(
    gateway: GatewayProcess, door: str, trusting: ssl.SSLContext
) -> None:
    with contextlib.closing(HTTPSConnection(door, timeout=60, context=trusting)) as connection:
        for _ in range(3):
            connection.request("POST", "/pub?topic=t", b"x")
            assert connection.getresponse().read() == b"OK"
        text = ask(gateway.http, None, "/metrics")[1].decode()
    counts = [line for line in text.splitlines() if line.startswith("srtm_http_connections")]
    assert float(counts[0].split()[1]) >= 2


def test_the_last_word_is_read_and_the_end_is_no_cut(
    gateway: GatewayProcess, door: str, trusting: ssl.SSLContext
) -> None:
    with secure(door, trusting) as connection:
        connection.sendall(b"GET /ping HTTP/1.1\r\nX: " + b"x" * 200_000)
        assert rest(connection).startswith(b"HTTP/1.1 431 ")
    with secure(door, trusting) as connection:
        connection.sendall(b"no http\r\n\r\n")
        assert rest(connection).startswith(b"HTTP/1.1 400 ")
    with secure(door, trusting) as connection:
        connection.sendall(MAGIC_V2)
        assert rest(connection).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    "first", [b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n", MAGIC_V2, b"x"], ids=["http", "v2", "byte"]
)
def test_plain_text_at_the_https_door_is_told_so(
    gateway: GatewayProcess, door: str, first: bytes
) -> None:
    host, port = door.split(":")
    with socket.create_connection((host, int(port)), 60) as connection:
        connection.sendall(first)
        assert rest(connection) == NO_TLS


def test_tls_at_the_http_door_is_told_so(gateway: GatewayProcess) -> None:
    host, port = gateway.http.split(":")
    with socket.create_connection((host, int(port)), 60) as connection:
        connection.sendall(b"\x16\x03\x01\x02\x00\x01")
        assert b"400 Bad Request" in (heard := rest(connection))
        assert b"plain HTTP" in heard


def test_garbage_behind_the_handshake_ends_one_connection(
    gateway: GatewayProcess, door: str, trusting: ssl.SSLContext
) -> None:
    connection = secure(door, trusting)
    with socket.socket(fileno=connection.detach()) as wire:
        wire.sendall(b"\x17\x03\x03\x00\x20" + b"x" * 32)
        wire.settimeout(60)
        with contextlib.suppress(ConnectionResetError):
            rest(wire)
    assert ask(door, trusting, "/ping")[0] == 200
    assert "Traceback" not in gateway.process.log.read_text()


def test_who_resets_in_the_middle_leaves_nothing_behind(
    gateway: GatewayProcess, door: str, trusting: ssl.SSLContext
) -> None:
    host, port = door.split(":")
    sent = ssl.MemoryBIO()
    hello = trusting.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        hello.do_handshake()
    first = sent.read()
    for number in range(300):
        with socket.create_connection((host, int(port)), 60) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.sendall(first[: None if number % 2 else number])
    wait_for(lambda: gateway.metric("srtm_http_connections") == 1, "all are forgotten")
    assert gateway.metric("srtm_faults_total") == 0


def test_who_begins_no_handshake_keeps_nobody_out_and_is_closed(
    servers: Servers, pair: list[str], trusting: ssl.SSLContext
) -> None:
    port = free_port()
    door = f"127.0.0.1:{port}"
    servers.gateway(*pair, f"--https-address={door}", "--max-http-connections=40")
    with contextlib.ExitStack() as closing:
        silent = [
            closing.enter_context(socket.create_connection(("127.0.0.1", port), 60))
            for _ in range(200)
        ]
        for connection in silent[100:]:
            connection.sendall(b"\x16\x03\x01\x02\x00\x01")  # the rest of it never comes
        assert ask(door, trusting, "/ping")[:2] == (200, b"OK")
        for connection in silent:
            with contextlib.suppress(ConnectionResetError):
                assert rest(connection) == b""
    assert ask(door, trusting, "/ping")[:2] == (200, b"OK")


@pytest.mark.parametrize("required", ["true", "tcp-https", "policy"])
def test_without_tls_the_http_door_answers_as_nsqds(
    servers: Servers,
    pair: list[str],
    authority: Authority,
    trusting: ssl.SSLContext,
    required: str,
) -> None:
    flags = [*pair, f"--tls-required={required}"]
    if required == "policy":
        flags = [
            *pair,
            f"--tls-root-ca-file={authority.ca_file}",
            "--tls-client-auth-policy=require-verify",
        ]
    port = free_port()
    door = f"127.0.0.1:{port}"
    theirs = servers.nsqd(*flags, f"--https-address=127.0.0.1:{free_port()}")
    ours = servers.gateway(*flags, f"--https-address={door}")
    for path, body in (("/ping", None), ("/pub?topic=t", b"x"), ("/nowhere", None)):
        one, other = (ask(each, None, path, body) for each in (theirs.http, ours.http))
        if required == "tcp-https":
            assert one[:2] == other[:2]
            continue
        assert (one[0], other[0]) == (403, 403)
        assert other[1] == b'{"message": "TLS_REQUIRED", "https_port": %d}' % port
        assert json.loads(one[1])["message"] == "TLS_REQUIRED"
        for name in ("Content-Type", "X-Nsq-Content-Type"):
            assert {k.title(): v for k, v in other[2].items()}[name] == one[2][name]
    if required != "policy":
        assert ask(door, trusting, "/ping")[:2] == (200, b"OK")


def test_a_client_shows_who_it_is_by_its_certificate(
    servers: Servers, pair: list[str], authority: Authority
) -> None:
    with auth_server() as server:
        server.answers["s"] = allowing("publish")
        door = f"127.0.0.1:{free_port()}"
        servers.gateway(
            *pair,
            f"--tls-root-ca-file={authority.ca_file}",
            "--tls-client-auth-policy=require-verify",
            f"--https-address={door}",
            f"--auth-http-address={server.address}",
        )
        stranger = ssl.create_default_context(cafile=authority.ca_file)
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            ask(door, stranger, "/ping")
        known = ssl.create_default_context(cafile=authority.ca_file)
        known.load_cert_chain(*authority.issue("sensor 7", client=True))
        assert ask(door, known, "/pub?topic=t", b"x")[0] == 401
        assert ask(door, known, "/pub?topic=t", b"x", "s")[:2] == (200, b"OK")
        assert [(each["tls"], each["common_name"]) for each in server.asked] == [
            ("true", "sensor 7")
        ]


def test_a_certificate_that_is_renewed_is_shown(
    servers: Servers, authority: Authority, trusting: ssl.SSLContext, tmp_path: Path
) -> None:
    own = [tmp_path / "cert.pem", tmp_path / "key.pem"]

    def install() -> None:
        for made, used in zip(authority.issue("x", dns=["localhost"]), own, strict=True):
            shutil.copyfile(made, f"{used}.new")
            os.replace(f"{used}.new", used)

    def shown() -> bytes | None:
        with secure(door, trusting) as connection:
            return connection.getpeercert(binary_form=True)

    install()
    door = f"127.0.0.1:{free_port()}"
    flags = f"--tls-cert={own[0]}", f"--tls-key={own[1]}", f"--https-address={door}"
    gateway = servers.gateway(*flags)
    with secure(door, trusting) as kept:
        before = shown()
        install()
        gateway.process.popen.send_signal(signal.SIGHUP)
        wait_for(lambda: shown() != before, "the new certificate")
        kept.sendall(b"GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert rest(kept).endswith(b"OK")


@pytest.fixture
def without_https(servers: Servers, pair: list[str]) -> Iterator[GatewayProcess]:
    return servers.gateway(*pair, "--https-address=", "--tls-required=true")


def test_without_an_address_there_is_no_https_door(without_https: GatewayProcess) -> None:
    assert http(without_https.http, "/ping")[:2] == (
        403,
        {"message": "TLS_REQUIRED", "https_port": 0},
    )


def test_a_hello_in_tiny_records_is_refused(gateway: GatewayProcess, door: str) -> None:
    """OpenSSL would take a third of a second for each."""
    with socket.create_connection(door.split(":"), 60) as crumbs:  # type: ignore[arg-type]
        crumbs.sendall(b"\x16\x03\x01\x00\x01\x01" * 8000)
        with contextlib.suppress(ConnectionResetError):
            assert not crumbs.recv(1000)
