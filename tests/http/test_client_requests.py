"""The HTTP client for sockets of this host: answers, refusals, and far sides that misbehave."""

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from srtm.host.certificates import TlsFiles, client_context, server_context
from srtm.http.client import Endpoint, Kept, get_json, request
from srtm.text.errors import UnavailableError
from tests.support.certificates import Authority

Serve = Callable[[bytes], str]
seen: list[bytes] = []  # what servers were asked
OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s"


@pytest.fixture(params=["unix", "tcp"])
def serve(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Serve]:
    """A server that answers one request with the given bytes, as they are, and closes."""
    with contextlib.ExitStack() as stack:

        def start(answer: bytes) -> str:
            if request.param == "unix":
                listener = socket.socket(socket.AF_UNIX)
                listener.bind(where := str(tmp_path / "s.sock"))
            else:
                listener = socket.socket()
                listener.bind(("127.0.0.1", 0))
                where = f"127.0.0.1:{listener.getsockname()[1]}"
            listener.listen()

            def work() -> None:
                with contextlib.suppress(OSError):
                    connection, _ = listener.accept()
                    with connection:
                        seen.append(connection.recv(65536))
                        if b"Content-Length" in seen[-1] and not seen[-1].endswith(b"}"):
                            seen[-1] += connection.recv(65536)  # the body came by itself
                        connection.sendall(answer)

            thread = threading.Thread(target=work)
            thread.start()
            stack.callback(thread.join)
            stack.callback(listener.close)
            stack.callback(lambda: listener.shutdown(socket.SHUT_RDWR))
            return where

        yield start


def test_json_comes_back(serve: Serve) -> None:
    assert get_json(serve(OK % (8, b'{"a": 1}')), "/x") == {"a": 1}


def test_a_document_is_sent_as_json(serve: Serve) -> None:
    answer = request(serve(OK % (0, b"")), "PUT", "/topics/a%23b", document={"rate": 1})
    assert answer.status == 200
    assert seen[-1].startswith(b"PUT /topics/a%23b HTTP/1.1\r\n")
    assert b"Content-Type: application/json" in seen[-1]
    assert seen[-1].endswith(b'{"rate": 1}')


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        pytest.param(OK % (3, b"NOK"), "did not answer with JSON: b'NOK'", id="no-json"),
        pytest.param(
            b'HTTP/1.1 500 X\r\n\r\n{"message": "no\\ndisk"}', "answered 500: no disk", id="refusal"
        ),
        pytest.param(OK % (3000, b"x" * 3000), "more than 2000 bytes", id="too-big"),
    ],
)
def test_what_is_no_answer_is_one_line(serve: Serve, answer: bytes, said: str) -> None:
    with pytest.raises(UnavailableError, match=said) as caught:
        get_json(serve(answer), "/x", max_bytes=2000)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("where", ["/nowhere/at.sock", "127.0.0.1:1"])
def test_nobody_there(where: str) -> None:
    with pytest.raises(UnavailableError, match=f"{where}: nothing listens there"):
        request(where, "GET", "/ping")


def test_a_server_that_drips_is_given_up_in_time(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s.sock"))
        listener.listen()
        stop = threading.Event()

        def drip() -> None:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                while not stop.wait(0.05):
                    connection.sendall(b"x")

        thread = threading.Thread(target=drip)
        thread.start()
        began = time.monotonic()
        with pytest.raises(UnavailableError, match=r"did not answer within 0\.4 s"):
            request(str(tmp_path / "s.sock"), "GET", "/x", timeout_seconds=0.4)
        assert time.monotonic() - began < 5
        stop.set()
        thread.join()


@contextlib.contextmanager
def answering(
    *connections: list[bytes], tls: ssl.SSLContext | None = None
) -> Iterator[tuple[str, list[int]]]:
    """A server that answers each request of its first connection with the next of the first list,
    and so on, and closes a connection whose answers are used up. Also how many it has taken."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken: list[int] = []

        def work() -> None:
            for number, answers in enumerate(connections):
                connection, _ = listener.accept()
                taken.append(number)
                if tls is not None:
                    connection = tls.wrap_socket(connection, server_side=True)
                with connection:
                    for answer in answers:
                        connection.recv(65536)
                        connection.sendall(answer)

        thread = threading.Thread(target=work)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}", taken
        thread.join()


def test_a_kept_connection_serves_request_after_request_and_is_made_anew() -> None:
    one, two, three = (OK % (1, digit) for digit in (b"1", b"2", b"3"))
    with answering([one, two], [three]) as (address, taken):
        kept = Kept(Endpoint(address))
        assert [kept.get("/x").document for _ in range(2)] == [1, 2]
        assert taken == [0]
        assert kept.get("/x").document == 3, "the other side had closed meanwhile"
        kept.close()
    kept = Kept(Endpoint(address))
    with pytest.raises(UnavailableError, match="nothing listens there"):
        kept.get("/x")
    kept.close()


@pytest.mark.parametrize("is_https", [False, True])
def test_a_kept_connection_that_ends_as_it_is_asked_is_made_anew(
    authority: Authority, is_https: bool
) -> None:
    server = client = None
    if is_https:
        pair = authority.issue("s", ip=["127.0.0.1"])
        server, client = (
            server_context(TlsFiles(*pair)),
            client_context(TlsFiles(root_ca=authority.ca_file)),
        )
    with answering([OK % (1, b"1"), b""], [OK % (1, b"2")], tls=server) as (address, taken):
        kept = Kept(Endpoint(address, tls=client))
        assert [kept.get("/x").document for _ in range(2)] == [1, 2]
        assert taken == [0, 1]
        kept.close()


def test_after_an_answer_that_is_too_big_a_kept_connection_begins_anew() -> None:
    with answering([OK % (9, b"123456789")], [OK % (1, b"1")]) as (address, taken):
        kept = Kept(Endpoint(address))
        with pytest.raises(UnavailableError, match="more than 4 bytes"):
            kept.get("/x", max_bytes=4)
        assert kept.get("/x", max_bytes=4).document == 1
        assert taken == [0, 1]
        kept.close()
