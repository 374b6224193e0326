"""The asyncio HTTP client against bytes that each test chooses, and the token's file."""

import asyncio
import json
import socket
import threading
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from srtm.http.bearer import read_token
from srtm.http.client import Answer, Endpoint, Refusal, call, lines, request
from srtm.text.address import Address
from srtm.text.errors import UnavailableError, UsageError


def serve(response: bytes, *, hang: bool = False, work: Any) -> tuple[Any, bytes]:
    """What `work(address)` gives when each connection is answered with `response`; the request."""
    seen = bytearray()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = [line for line in head.split(b"\r\n") if line.startswith(b"Content-Length: ")]
        body = await reader.readexactly(int(length[0][16:])) if length else b""
        seen.extend(head + body)
        writer.write(response)
        if hang:
            await reader.read()
        writer.close()

    async def run() -> Any:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with asyncio.timeout(10):
            try:
                return await work(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
            finally:
                server.close()

    return asyncio.run(run()), bytes(seen)


def plain(body: bytes, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)


def chunked(*pieces: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + end


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        pytest.param(plain(b'{"a": 1}'), Answer(200, b'{"a": 1}'), id="by-length"),
        pytest.param(chunked(b'{"a"', b": 1}"), Answer(200, b'{"a": 1}'), id="in-chunks"),
        pytest.param(b"HTTP/1.0 200 OK\r\n\r\n[1]", Answer(200, b"[1]"), id="until-the-end"),
        pytest.param(plain(b"oops", b"500 No"), Answer(500, b"oops"), id="text"),
        pytest.param(plain(b"[" * 100_000), Answer(200, b"[" * 100_000), id="too-deep"),
        pytest.param(plain(b"", b"204 None"), Answer(204), id="nothing"),
    ],
)
def test_any_status_is_an_answer(response: bytes, answer: Answer) -> None:
    found, _ = serve(response, work=lambda address: call(Endpoint(address), "GET", "/x"))
    assert found == answer


def test_a_request_has_body_and_token() -> None:
    _, seen = serve(
        plain(b"{}"),
        work=lambda address: call(Endpoint(address, "s3cret"), "POST", "/v1/x", b'{"a": 1}'),
    )
    assert seen.startswith(b"POST /v1/x HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"\r\nAuthorization: Bearer s3cret\r\n" in seen
    assert seen.endswith(b'\r\nContent-Length: 8\r\n\r\n{"a": 1}')


def test_a_path_goes_as_it_is() -> None:
    path = "/v1/topics/t/publishers/../%2E%2f?a=%20"
    _, seen = serve(plain(b"{}"), work=lambda address: call(Endpoint(address), "GET", path))
    assert seen.startswith(f"GET {path} HTTP/1.1\r\n".encode())


@pytest.mark.parametrize(
    ("response", "sentence"),
    [
        pytest.param(b"", "closed the connection without an answer", id="nothing"),
        pytest.param(b"SSH-2.0-x\r\n\r\n", "illegal status line", id="another-protocol"),
        pytest.param(plain(b"1234567890")[:-3], "peer closed connection", id="cut-short"),
        pytest.param(chunked(b"12345", end=b""), "peer closed connection", id="no-last-chunk"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
            "peer closed connection",
            id="more-is-promised-than-comes",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            "illegal chunk header",
            id="a-chunk-without-a-size",
        ),
        pytest.param(b"HTTP/1.1 200 OK\r\n" + b"x" * 100_000, "failed: ", id="an-endless-head"),
    ],
)
def test_what_is_no_answer_is_one_line(response: bytes, sentence: str) -> None:
    with pytest.raises(UnavailableError, match=sentence) as caught:
        serve(response, work=lambda address: call(Endpoint(address), "GET", "/x?secret=1"))
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_nobody_there_and_no_answer_in_time_are_told_apart() -> None:
    with pytest.raises(UnavailableError, match="nothing listens there"):
        asyncio.run(call(Endpoint("127.0.0.1:1"), "GET", "/"))
    with pytest.raises(UnavailableError, match=r"/x did not answer within 0\.05 s"):
        serve(b"", hang=True, work=lambda address: call(Endpoint(address), "GET", "/x", None, 0.05))


async def read_all(address: str, silence_seconds: float = 5) -> list[dict[str, Any]]:
    found = []
    stream = lines(Endpoint(address), "/watch", b"{}", silence_seconds)
    async with aclosing(stream):
        async for line in stream:
            found.append(line)
    return found


@pytest.mark.parametrize("size", [1, 3, 7, 1000], ids="chunks-of-{}".format)
def test_lines_come_whole_however_they_are_cut(size: int) -> None:
    documents = [{"id": f"p{n}", "é": n} for n in range(20)]
    text = "\n".join(json.dumps(each, ensure_ascii=False) for each in documents) + "\n\n"
    raw = text.encode()
    pieces = [raw[start : start + size] for start in range(0, len(raw), size)]
    assert serve(chunked(*pieces), work=read_all)[0] == documents


def test_a_refused_stream_tells_status_and_reason() -> None:
    with pytest.raises(Refusal, match=r"127.0.0.1:\d+: no such topic") as caught:
        serve(plain(b'{"error": "no such\\ntopic"}', b"404 Not Found"), work=read_all)
    assert caught.value.status == 404
    with pytest.raises(Refusal, match="HTTP 503"):
        serve(plain(b"", b"503 Busy"), work=read_all)


def test_a_stream_that_falls_silent_or_is_no_json_is_one_line() -> None:
    with pytest.raises(UnavailableError, match=r"/watch did not answer within 0\.05 s"):
        serve(
            chunked(b'{"a": 1}\n', end=b""), hang=True, work=lambda address: read_all(address, 0.05)
        )
    with pytest.raises(UnavailableError, match="is no JSON object"):
        serve(chunked(b"[1]\n"), work=read_all)
    with pytest.raises(UnavailableError, match="b'beat' is no JSON object"):
        serve(chunked(b"beat\n"), work=read_all)


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        pytest.param("h:1", ("h", 1), id="a-name"),
        pytest.param("127.0.0.1:4180", ("127.0.0.1", 4180), id="v4"),
        pytest.param("[::1]:80", ("::1", 80), id="v6"),
    ],
)
def test_an_address_is_read(text: str, pair: tuple[str, int]) -> None:
    assert Address.of(text) == pair


@pytest.mark.parametrize("text", ["", "h", ":1", "h:", "h:x", "h:0", "h:65536", "h:-1", "h:²"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"write HOST:PORT|from 1 to 65535"):
        Address.of(text)


# --- token --------------------------------------------------------------------------------------

SECRET = b"0123456789abcdef"


def test_without_a_file_there_is_no_token() -> None:
    assert read_token("", "--token-file") == ""


@pytest.mark.parametrize(
    ("content", "mode", "sentence"),
    [
        pytest.param(SECRET, 0o640, "chmod 600", id="the-group-may-read"),
        pytest.param(b"", 0o600, "16 to 4096", id="empty"),
        pytest.param(b"short", 0o600, "16 to 4096", id="too-short"),
        pytest.param(b"x" * 4097, 0o600, "16 to 4096", id="too-long"),
        pytest.param(b"two words " * 5, 0o600, "16 to 4096", id="with-spaces"),
        pytest.param(SECRET + b"\n" + SECRET, 0o600, "16 to 4096", id="two-lines"),
        pytest.param(b"\xff\xfe", 0o600, "not text", id="no-text"),
    ],
)
def test_a_token_file_of_no_use_is_refused_without_showing_it(
    tmp_path: Path, content: bytes, mode: int, sentence: str
) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    file.chmod(mode)
    with pytest.raises(UsageError, match=sentence) as caught:
        read_token(str(file), "--token-file")
    assert str(caught.value).startswith(f"--token-file {file}: ")
    assert not content or content.decode(errors="replace") not in str(caught.value)


def test_a_token_is_the_files_one_line(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_bytes(SECRET + b"\n")
    file.chmod(0o600)
    assert read_token(str(file), "--token-file") == SECRET.decode()


def test_an_object_without_what_is_needed_is_told_with_its_place() -> None:
    answer = Answer(200, b'{"a": {"b": 1}}', "127.0.0.1:1: /stats")
    assert answer.document["a"]["b"] == answer.json()["a"]["b"] == 1
    for miss in (lambda: answer.document["topics"], lambda: answer.json()["a"]["c"]):
        with pytest.raises(UnavailableError, match=r"127.0.0.1:1: /stats answered without '"):
            miss()


def test_a_refusal_of_a_stream_is_read_whole_and_no_longer_than_an_error_is() -> None:
    async def ask(address: str) -> None:
        async with aclosing(lines(Endpoint(address), "/x", b"{}", 5)) as stream:
            async for _ in stream:
                pass

    refused = b'{"error": "the real reason"}\n'
    with pytest.raises(Refusal, match="the real reason"):
        serve(plain(refused, b"503 No"), work=ask)
    with pytest.raises(UnavailableError, match="answered more than"):
        serve(plain(b"x\n" * 100_000, b"503 No"), work=ask)


def test_what_an_error_says_is_printable() -> None:
    assert Answer(500, b'{"error": "a\\u001b[31m\\nb"}').error == "a?[31m b"


def test_nobody_waits_for_a_resolver_longer_than_for_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    over = threading.Event()

    def hang(*_: object, flags: int = 0, **__: object) -> None:
        if flags & socket.AI_NUMERICHOST:
            raise socket.gaierror
        over.wait(60)

    monkeypatch.setattr("srtm.http.connection.socket.getaddrinfo", hang)
    began = time.monotonic()
    with pytest.raises(UnavailableError, match=r"did not answer within 0\.2 s"):
        request("broker.example:80", "GET", "/", timeout_seconds=0.2)
    over.set()
    assert time.monotonic() - began < 30
