"""A server as its callers reach it: TLS that fails in one line, and files that change."""

import asyncio
import logging
import re
import shutil
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tornado.httputil import HTTPHeaders, HTTPServerRequest, ResponseStartLine
from tornado.netutil import bind_sockets

from srtm.host.certificates import PLAIN_TEXT, TlsFiles, server_context
from srtm.http import service
from srtm.http.client import Endpoint, TlsFailed, request
from srtm.http.server import PatientServer
from srtm.http.service import ClientFiles, service_at
from srtm.text.errors import UnavailableError, UsageError
from tests.support.certificates import Authority


@contextmanager
def serving(tls: ssl.SSLContext | None) -> Iterator[str]:
    """The address of a server like ours that answers with the Authorization that it was shown."""
    (door,) = bind_sockets(0, "127.0.0.1")
    stopped, loops = threading.Event(), []

    def answer(asked: HTTPServerRequest) -> None:
        shown = asked.headers.get("Authorization", "").encode()
        assert asked.connection is not None
        start = ResponseStartLine("HTTP/1.1", 200, "OK")
        asked.connection.write_headers(
            start, HTTPHeaders({"Content-Length": str(len(shown))}), shown
        )
        asked.connection.finish()

    async def run() -> None:
        loops.append((asyncio.get_running_loop(), ended := asyncio.Event()))
        server = PatientServer(answer, ssl_options=tls)
        server.add_sockets([door])
        stopped.set()
        await ended.wait()
        server.stop()
        await server.close_all_connections()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    stopped.wait()
    try:
        yield f"127.0.0.1:{door.getsockname()[1]}"
    finally:
        loop, ended = loops[0]
        loop.call_soon_threadsafe(ended.set)
        thread.join()


def of_server(authority: Authority, *, required: bool = False, **named: object) -> ssl.SSLContext:
    cert, key = authority.issue("d", **({"ip": ["127.0.0.1"]} | named))  # type: ignore[arg-type]
    return server_context(TlsFiles(cert, key, authority.ca_file, require_peer=required))


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        pytest.param("another-name", "is not valid for '127.0.0.1'", id="another-name"),
        pytest.param("expired", "is not accepted: certificate has expired", id="expired"),
        pytest.param("another-authority", "its certificate is not accepted", id="authority"),
        pytest.param("plain", "is it a port of plain text?", id="plain-text"),
        pytest.param("required", "takes only clients that show a certificate", id="no-certificate"),
        pytest.param("strange-client", "does not know the authority", id="a-strange-client"),
        pytest.param("expired-client", "was shown has expired", id="an-expired-client"),
    ],
)
def test_tls_that_fails_is_one_line(
    tmp_path: Path, authority: Authority, kind: str, said: str
) -> None:
    other = Authority(tmp_path / "other")
    contexts = {
        "another-name": lambda: of_server(authority, ip=[], dns=["elsewhere"]),
        "expired": lambda: of_server(authority, expired=True),
        "another-authority": lambda: of_server(other),
        "plain": lambda: None,
    }
    client = {
        "strange-client": lambda: other.issue("b", client=True),
        "expired-client": lambda: authority.issue("b", client=True, expired=True),
    }.get(kind, lambda: ("", ""))()
    files = ClientFiles("", authority.ca_file, *client)
    context = contexts.get(kind, lambda: of_server(authority, required=True))()
    with serving(context) as address, pytest.raises(TlsFailed) as caught:
        request(service_at(address, files, "--token-file"), "GET", "/x")
    # What the other side says of a client in TLS 1.3 may be lost with the connection.
    is_of_client = kind in ("required", "strange-client", "expired-client")
    lost = "does it accept only clients with a certificate?" if is_of_client else said
    assert said in str(caught.value) or lost in str(caught.value)
    assert str(caught.value).startswith(f"{address}: ")
    assert "\n" not in str(caught.value)


def test_plain_text_at_a_port_of_tls_is_one_line(authority: Authority) -> None:
    said = "For one of TLS give the"
    with serving(of_server(authority)) as address, pytest.raises(UnavailableError, match=said):
        request(address, "GET", "/x")


def test_a_certificate_is_shown(authority: Authority) -> None:
    with serving(of_server(authority, required=True)) as address:
        files = ClientFiles("", authority.ca_file, *authority.issue("b", client=True))
        assert request(service_at(address, files, "--token-file"), "GET", "/x").status == 200


def test_a_token_that_changes_is_shown_and_a_wrong_file_leaves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 0
    monkeypatch.setattr(service, "monotonic_ns", lambda: now)
    file = tmp_path / "token"

    def write(text: str) -> None:
        file.write_text(text)
        file.chmod(0o600)

    write("a" * 32)
    endpoint = service_at("localhost:1", ClientFiles(str(file)), "--token-file")
    write("b" * 32)
    assert endpoint.now().token == "a" * 32
    now += 10_000_000_000
    assert endpoint.now().token == "b" * 32
    for wrong in ("short", "short"):
        write(wrong)
        now += 10_000_000_000
        assert endpoint.now().token == "b" * 32
    assert [each.levelno for each in caplog.records] == [logging.ERROR]
    assert "b" * 32 not in repr(endpoint)


def test_an_authority_that_changes_is_followed(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0
    monkeypatch.setattr(service, "monotonic_ns", lambda: now)
    ca = tmp_path / "ca.pem"
    shutil.copy(Authority(tmp_path / "other").ca_file, ca)
    with serving(of_server(authority)) as address:
        endpoint = service_at(address, ClientFiles("", str(ca)), "--token-file")
        with pytest.raises(TlsFailed):
            request(endpoint, "GET", "/x")
        shutil.copy(authority.ca_file, ca)
        now += 10_000_000_000
        assert request(endpoint, "GET", "/x").status == 200


def test_two_of_the_same_files_are_one_subject(tmp_path: Path, authority: Authority) -> None:
    files = ClientFiles("", authority.ca_file)
    first, second = (
        service_at("h:1", files, "--token-file"),
        service_at("h:1", files, "--token-file"),
    )
    assert first == second
    assert hash(first) == hash(second)
    assert first != service_at("h:1", ClientFiles(), "--token-file")
    assert Endpoint("h:1").now() == Endpoint("h:1")


@pytest.mark.parametrize("address", ["10.0.0.1:4180", "[fd00::1]:4180", "127.example.com:4180"])
def test_a_token_does_not_go_to_other_hosts_in_clear_text_by_mistake(
    tmp_path: Path, authority: Authority, address: str
) -> None:
    token = tmp_path / "token"
    token.write_text("a" * 32)
    token.chmod(0o600)
    said = rf"^--distributor-token-file {token}: .* to {re.escape(address)} in clear text: give"
    with pytest.raises(UsageError, match=said):
        service_at(address, ClientFiles(str(token)), "--distributor-token-file")
    assert service_at(address, ClientFiles(str(token), authority.ca_file), "").now().tls
    for there, root_ca in ((address, PLAIN_TEXT), ("127.0.0.2:1", ""), ("[::1]:1", "")):
        found = service_at(there, ClientFiles(str(token), root_ca), "").now()
        assert (found.token, found.tls) == ("a" * 32, None)
    assert service_at(address, ClientFiles(), "").now().token == ""


def test_a_file_that_is_not_there_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^--token-file /no: No such file"):
        service_at("h:1", ClientFiles("/no"), "--token-file")
    with pytest.raises(UsageError, match=r"^/no: No such file"):
        service_at("h:1", ClientFiles("", "/no"), "--token-file")
