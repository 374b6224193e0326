"""A small HTTP/1.1 client for asyncio: JSON calls, and streams of JSON lines, with a bearer token.

For the Load Distributor's API. One request a connection; nothing blocks the loop that it runs in.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field
from typing import Any

from srtm.errors import UnavailableError, UsageError

TIMEOUT_SECONDS = 5.0
MAX_RESPONSE_BYTES = 16 << 20
"""What the API bounds a body to."""
_MAX_LINE_BYTES = 1 << 20
_MAX_HEAD_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A service at `host:port`; `token` goes with each request where there is one."""

    address: str
    token: str = field(default="", repr=False)

    @property
    def host_port(self) -> tuple[str, int]:
        return split_address(self.address)


def split_address(address: str) -> tuple[str, int]:
    """host:port or [v6]:port as a pair. Raises UsageError."""
    if "://" in address:
        raise UsageError(f"{address!r} is a URL; write host:port alone, such as 127.0.0.1:4180")
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        raise UsageError(f"{address!r} is not an address; write host:port, such as 127.0.0.1:4180")
    return host.removeprefix("[").removesuffix("]"), int(port)


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole response; `document` is its JSON, or its text where it is none."""

    status: int
    document: Any

    @property
    def error(self) -> str:
        """What a refusal says, in one line."""
        found = self.document.get("error") if isinstance(self.document, dict) else self.document
        return " ".join(str(found or "").split())[:300] or f"HTTP {self.status}"


async def call(
    endpoint: Endpoint,
    method: str,
    path: str,
    body: bytes | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Answer:
    """One request, with `body` as its JSON. Any status is an answer. Raises UnavailableError when
    none came, whole, in time and size."""
    content = bytearray()
    with _as_ours(endpoint, path, timeout_seconds):
        async with (
            asyncio.timeout(timeout_seconds),
            _Exchange(endpoint, method, path, body) as exchange,
        ):
            async for piece in exchange.pieces():
                content += piece
                if len(content) > MAX_RESPONSE_BYTES:
                    raise ValueError(f"more than {MAX_RESPONSE_BYTES} bytes")
    return Answer(exchange.status, _json(bytes(content)))


async def lines(
    endpoint: Endpoint, path: str, body: bytes, silence_seconds: float
) -> AsyncGenerator[dict[str, Any], None]:
    """POST, and each line of the answer as it comes, until the other side ends it.

    Raises Refusal where the answer is an error, UnavailableError when the stream cannot be had or
    says nothing for `silence_seconds`. Close it (contextlib.aclosing) to hang up.
    """
    with _as_ours(endpoint, path, silence_seconds):
        async with contextlib.AsyncExitStack() as stack:
            exchange = _Exchange(endpoint, "POST", path, body)
            async with asyncio.timeout(silence_seconds):
                await stack.enter_async_context(exchange)
            pieces = await stack.enter_async_context(contextlib.aclosing(exchange.pieces()))
            rest = b""
            while True:
                try:
                    async with asyncio.timeout(silence_seconds):
                        piece = await anext(pieces)
                except StopAsyncIteration:
                    break
                if exchange.status != 200:
                    raise Refusal(endpoint, exchange.status, piece)
                *whole, rest = (rest + piece).split(b"\n")
                if len(rest) > _MAX_LINE_BYTES:
                    raise ValueError(f"a line of more than {_MAX_LINE_BYTES} bytes")
                for line in whole:
                    if line.strip():
                        document = json.loads(line)
                        if not isinstance(document, dict):
                            raise ValueError(f"{line[:80]!r} is no JSON object")
                        yield document
            if exchange.status != 200:
                raise Refusal(endpoint, exchange.status, b"")


class Refusal(UnavailableError):
    """The request of a stream was answered with an error."""

    def __init__(self, endpoint: Endpoint, status: int, content: bytes) -> None:
        super().__init__(f"{endpoint.address}: {Answer(status, _json(content)).error}")
        self.status = status


class _Exchange:
    """One request on a connection of its own."""

    status = 0

    def __init__(self, endpoint: Endpoint, method: str, path: str, body: bytes | None) -> None:
        self._endpoint = endpoint
        head = f"{method} {path} HTTP/1.1\r\nHost: {endpoint.address}\r\nConnection: close\r\n"
        if endpoint.token:
            head += f"Authorization: Bearer {endpoint.token}\r\n"
        if body is not None:
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        self._request = head.encode() + b"\r\n" + (body or b"")

    async def __aenter__(self) -> "_Exchange":
        host, port = self._endpoint.host_port
        self._reader, self._writer = await asyncio.open_connection(
            host, port, limit=_MAX_HEAD_BYTES
        )
        try:
            self._writer.write(self._request)
            await self._writer.drain()
            await self._read_head()
        except BaseException:
            self._writer.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def _read_head(self) -> None:
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *fields = head.rstrip("\r\n").split("\r\n")
        version, _, rest = first.partition(" ")
        if not version.startswith("HTTP/1.") or not rest[:3].isdigit():
            raise ValueError(f"{first[:80]!r} is no HTTP")
        self.status = int(rest[:3])
        pairs = (field.partition(":") for field in fields)
        self._headers = {name.strip().lower(): value.strip() for name, _, value in pairs}

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The body as it comes. Raises asyncio.IncompleteReadError when it is cut short."""
        reader = self._reader
        if self._headers.get("transfer-encoding", "").lower() == "chunked":
            while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
                if not 0 < size <= MAX_RESPONSE_BYTES:
                    raise ValueError(f"a chunk of {size} bytes")
                yield await reader.readexactly(size)
                await reader.readexactly(2)
            return
        length = self._headers.get("content-length")
        if length is None:
            while piece := await reader.read(1 << 16):
                yield piece
        elif int(length) > MAX_RESPONSE_BYTES:
            raise ValueError(f"a body of {length} bytes")
        elif int(length) > 0:
            yield await reader.readexactly(int(length))


def _json(content: bytes) -> Any:
    """Its document, or its text where it is none."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return content.decode(errors="replace")


@contextlib.contextmanager
def _as_ours(endpoint: Endpoint, path: str, timeout_seconds: float) -> Iterator[None]:
    """Errors of sockets, HTTP and JSON as one line of ours."""
    where = f"{endpoint.address}: {path.partition('?')[0]}"
    try:
        yield
    except TimeoutError:
        raise UnavailableError(f"{where} did not answer within {timeout_seconds:g} s") from None
    except ConnectionRefusedError:
        raise UnavailableError(f"{endpoint.address}: nothing listens there") from None
    except (asyncio.IncompleteReadError, ConnectionError):
        raise UnavailableError(f"{where}: the connection was cut") from None
    except (OSError, ValueError, RecursionError, asyncio.LimitOverrunError) as error:
        what = " ".join(str(error).split()) or type(error).__name__
        raise UnavailableError(f"{where} failed: {what}") from None
