"""Requests that come byte by byte: their connections end within seconds, and no other does."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from tornado.httpserver import HTTPServer
from tornado.iostream import IOStream, SSLIOStream
from tornado.testing import bind_unused_port
from tornado.web import Application

from distributor.http import door
from distributor.http.connections import Connections
from distributor.http.door import Door
from srtm.http import server as patient_server
from srtm.http.handler import ApiHandler
from srtm.http.metrics import Text
from srtm.http.server import HANDSHAKE_SECONDS, HEAD_SECONDS, Heads
from srtm.http.status import status_server

HEAD = b"GET /stats HTTP/1.1\r\nHost: x\r\n\r\n"
Dialogue = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bytes]]


class Told:
    def fault(self) -> str:
        return ""

    def stats(self) -> dict[str, Any]:
        return {}

    def metrics(self) -> Text:
        return Text()


class Slow(ApiHandler):
    """As a watch: it begins to answer at once, and goes on for longer than a head may take."""

    async def get(self) -> None:
        await self.flush()
        await asyncio.sleep(1.0)
        self.finish("}")

    def post(self) -> None:
        self.finish("}")


def distributors() -> HTTPServer:
    return Door(Application([(r"/.*", Slow)], log_function=lambda _: None), Connections(9))


def status() -> HTTPServer:
    return status_server(Told())


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patient_server, "HEAD_SECONDS", 0.3)
    monkeypatch.setattr(patient_server, "_CHECK_SECONDS", 0.05)
    monkeypatch.setattr(door, "_BODY_SECONDS", 0.3)


def talk(server: Callable[[], HTTPServer], dialogue: Dialogue) -> bytes:
    async def run() -> bytes:
        made = server()
        listener, port = bind_unused_port()
        made.add_sockets([listener])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            return await asyncio.wait_for(dialogue(reader, writer), 30)
        finally:
            writer.close()
            made.stop()

    return asyncio.run(run())


async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """A byte each 50 ms, until the other side has enough; what it said. A byte that came as it
    closed the connection is answered with a reset, which is an end as well."""
    ended = asyncio.ensure_future(reader.read())
    while not ended.done():
        writer.write(b"x")
        await asyncio.sleep(0.05)
    return b"" if isinstance(ended.exception(), ConnectionResetError) else ended.result()


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("server", [distributors, status])
@pytest.mark.parametrize(
    "begin",
    [
        pytest.param(b"", id="from-the-start"),
        pytest.param(b"GET /stats HTTP/1.1\r\nX-", id="a-header"),
        pytest.param(HEAD + b"GET /", id="behind-a-request"),
    ],
)
def test_a_head_that_trickles_is_given_up(server: Callable[[], HTTPServer], begin: bytes) -> None:
    async def dialogue(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(begin)
        return await trickle(reader, writer)

    assert talk(server, dialogue).count(b"HTTP/1.1 200") == begin.count(HEAD)


@pytest.mark.usefixtures("fast")
def test_a_body_that_trickles_is_given_up() -> None:
    async def dialogue(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\n")
        return await trickle(reader, writer)

    assert talk(distributors, dialogue) == b""


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("server", [distributors, status])
def test_silence_between_requests_and_long_answers_are_no_trickle(
    server: Callable[[], HTTPServer],
) -> None:
    async def dialogue(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        answers = b""
        for _ in range(2):
            await asyncio.sleep(0.8)
            writer.write(HEAD)
            answers += await reader.readuntil(b"}")
            if server is distributors:
                await reader.readuntil(b"0\r\n\r\n")
        return answers

    assert talk(server, dialogue).count(b"HTTP/1.1 200") == 2


# --- pure -----------------------------------------------------------------------------------------


class FakeStream:
    def __init__(self) -> None:
        self._read_buffer_size = 0
        self._read_buffer = bytearray(b"G")
        self.closed = False

    def close(self) -> None:
        self.closed = True


def test_a_head_has_its_time_from_its_first_byte_on() -> None:
    heads, fake = Heads(), FakeStream()
    stream = cast(IOStream, fake)
    heads.wait(stream)
    heads.close_late(1000.0)
    fake._read_buffer_size = 1
    heads.close_late(2000.0)
    heads.close_late(2000.0 + HEAD_SECONDS - 0.1)
    heads.wait(stream)  # the next request, which begins behind the one before
    heads.close_late(2000.0 + HEAD_SECONDS)
    assert not fake.closed
    heads.close_late(2000.0 + 2 * HEAD_SECONDS)
    assert fake.closed
    assert not heads


def test_a_handshake_has_its_time_from_the_connection_on() -> None:
    class FakeTls(FakeStream, SSLIOStream):  # type: ignore[misc]
        _ssl_accepting = True

        def __hash__(self) -> int:
            return id(self)

    heads, fake = Heads(), FakeTls()
    heads.wait(cast(IOStream, fake))
    heads.close_late(1000.0)
    heads.close_late(1000.0 + HANDSHAKE_SECONDS - 0.1)
    assert not fake.closed
    fake._ssl_accepting = False
    heads.close_late(1000.0 + HANDSHAKE_SECONDS)
    assert not fake.closed
    fake._ssl_accepting = True
    heads.close_late(2000.0)
    heads.close_late(2000.0 + HANDSHAKE_SECONDS)
    assert fake.closed
    assert not heads


def test_who_begins_with_tls_at_a_door_of_plain_text_does_not_wait() -> None:
    heads, fake = Heads(), FakeStream()
    heads.wait(cast(IOStream, fake))
    fake._read_buffer_size, fake._read_buffer = 3, bytearray(b"\x16\x03\x01")
    heads.close_late(1000.0)
    assert fake.closed
