"""HTTP to the programs of a deployment: JSON calls, and streams of JSON lines.

Whole requests have a deadline and answers a largest size, whatever the other side does. A service
is at `host:port`, or behind a unix socket (nsqd, the gateway's admin door). Each request has a
connection of its own, but for those of a `Kept`.
"""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import httpx

from srtm.address import Address
from srtm.errors import UnavailableError

logging.getLogger("httpx").setLevel("WARNING")
"""It tells of each request otherwise, and gateways make one a second."""

TIMEOUT_SECONDS = 5.0
"""nsqd's own default for requests to others (--http-client-request-timeout)"""
MAX_RESPONSE_BYTES = 64 << 20
"""/stats of nsqd takes about 1 kB a channel with its clients: room for tens of thousands"""
_MAX_LINE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A service at `host:port` or behind the path of a unix socket; `token` goes with each request
    where there is one."""

    address: str
    token: str = field(default="", repr=False)

    @property
    def is_socket(self) -> bool:
        return "/" in self.address and "://" not in self.address


@dataclass(frozen=True)
class Answer:
    """A whole response, whatever its status. where: of what, for the sentences of errors."""

    status: int
    body: bytes = b""
    where: str = field(default="", compare=False)

    @cached_property
    def document(self) -> Any:
        """Its JSON, or its text where it is none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return self.body.decode(errors="replace")

    @property
    def error(self) -> str:
        """What a refusal says, in one line: `error` (ours), `message` (nsqd's), or its text."""
        found = self.document
        if isinstance(found, dict):
            found = found.get("error") or found.get("message")
        return " ".join(str(found or "").split())[:300] or f"HTTP {self.status}"

    def json(self) -> Any:
        """Raises UnavailableError where it is none, and for any status but 200."""
        if self.status != 200:
            raise UnavailableError(f"{self.where} answered {self.status}: {self.error}")
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            shown = f"{self.body[:80]!r}"
            raise UnavailableError(f"{self.where} did not answer with JSON: {shown}") from None


class Refusal(UnavailableError):
    """The request of a stream was answered with an error."""

    def __init__(self, endpoint: Endpoint, answer: Answer) -> None:
        super().__init__(f"{endpoint.address}: {answer.error}")
        self.status = answer.status


async def call(
    endpoint: Endpoint,
    method: str,
    path: str,
    body: bytes | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
    max_bytes: int = MAX_RESPONSE_BYTES,
    kept: httpx.AsyncClient | None = None,
) -> Answer:
    """One request, with `body` as its JSON, on the connection of `kept` where there is one.

    Raises UnavailableError when no answer came, whole, in time and size.
    """
    where = f"{endpoint.address}: {path.partition('?')[0]}"
    content = bytearray()
    with _as_ours(endpoint, where, timeout_seconds):
        async with (
            asyncio.timeout(timeout_seconds),
            _exchange(endpoint, method, path, body, kept) as response,
        ):
            async for piece in response.aiter_raw():
                content += piece
                if len(content) > max_bytes:
                    raise UnavailableError(f"{where} answered more than {max_bytes} bytes")
    return Answer(response.status_code, bytes(content), where)


def request(
    address: str,
    method: str,
    path: str,
    *,
    document: object = None,
    token: str = "",
    timeout_seconds: float = TIMEOUT_SECONDS,
    max_bytes: int = MAX_RESPONSE_BYTES,
) -> Answer:
    """The same for programs without a loop, with `document` as its JSON."""
    body = None if document is None else json.dumps(document).encode()
    endpoint = Endpoint(address, token)
    return asyncio.run(call(endpoint, method, path, body, timeout_seconds, max_bytes))


class Kept:
    """Requests to one service, one after the other, on a connection that is kept: for a thread
    that asks several times a second. Opening one each time costs six times as much."""

    def __init__(self, address: str) -> None:
        self._endpoint = Endpoint(address)
        self._runner = asyncio.Runner()
        self._client = _client(self._endpoint)

    def get(
        self,
        path: str,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        max_bytes: int = MAX_RESPONSE_BYTES,
    ) -> Answer:
        """As `request`."""
        asked = call(self._endpoint, "GET", path, None, timeout_seconds, max_bytes, self._client)
        return self._runner.run(asked)

    def close(self) -> None:
        """By the thread that asked."""
        self._runner.run(self._client.aclose())
        self._runner.close()


def get_json(
    address: str,
    path: str,
    *,
    timeout_seconds: float = TIMEOUT_SECONDS,
    max_bytes: int = MAX_RESPONSE_BYTES,
) -> Any:
    """The JSON of a GET. Raises UnavailableError, also for any status but 200."""
    answer = request(address, "GET", path, timeout_seconds=timeout_seconds, max_bytes=max_bytes)
    return answer.json()


async def lines(
    endpoint: Endpoint, path: str, body: bytes, silence_seconds: float
) -> AsyncGenerator[dict[str, Any], None]:
    """POST, and each line of the answer as it comes, until the other side ends it.

    Raises Refusal where the answer is an error, UnavailableError when the stream cannot be had or
    says nothing for `silence_seconds`. Close it (contextlib.aclosing) to hang up.
    """
    where = f"{endpoint.address}: {path.partition('?')[0]}"
    with _as_ours(endpoint, where, silence_seconds):
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(silence_seconds):
                response = await stack.enter_async_context(_exchange(endpoint, "POST", path, body))
            pieces = response.aiter_raw()
            rest = b""
            while True:
                try:
                    async with asyncio.timeout(silence_seconds):
                        piece = await anext(pieces)
                except StopAsyncIteration:
                    break
                *whole, rest = (rest + piece).split(b"\n")
                if len(rest) > _MAX_LINE_BYTES:
                    raise UnavailableError(f"{where}: a line of over {_MAX_LINE_BYTES} bytes")
                if response.status_code == 200:
                    for line in whole:
                        if line.strip():
                            yield _object(line, where)
            if response.status_code != 200:
                raise Refusal(endpoint, Answer(response.status_code, rest))


def _object(line: bytes, where: str) -> dict[str, Any]:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise UnavailableError(f"{where} failed: {line[:80]!r} is no JSON object")
    return document


def _client(endpoint: Endpoint) -> httpx.AsyncClient:
    socket = endpoint.address if endpoint.is_socket else None
    transport = httpx.AsyncHTTPTransport(verify=False, trust_env=False, uds=socket)
    return httpx.AsyncClient(transport=transport, timeout=None, trust_env=False)


@asynccontextmanager
async def _exchange(
    endpoint: Endpoint,
    method: str,
    path: str,
    body: bytes | None,
    kept: httpx.AsyncClient | None = None,
) -> AsyncIterator[httpx.Response]:
    """The response to one request, its body unread."""
    host = "localhost" if endpoint.is_socket else str(Address.of(endpoint.address))
    headers = {"Host": host, "Accept-Encoding": "identity"}
    if kept is None:
        headers["Connection"] = "close"
    if endpoint.token:
        headers["Authorization"] = f"Bearer {endpoint.token}"
    if body is not None:
        headers["Content-Type"] = "application/json"
    # The target as it is: a URL would lose segments such as "..", which name publishers here.
    target = {"target": path.encode()}
    async with AsyncExitStack() as stack:
        client = kept
        if client is None:
            client = await stack.enter_async_context(_client(endpoint))
        made = client.build_request(
            method, f"http://{host}", content=body, headers=headers, extensions=target
        )
        response = await client.send(made, stream=True)
        async with aclosing(response):
            yield response


@contextmanager
def _as_ours(endpoint: Endpoint, where: str, timeout_seconds: float) -> Iterator[None]:
    """Errors of sockets and HTTP as one line of ours."""
    try:
        yield
    except TimeoutError:
        raise UnavailableError(f"{where} did not answer within {timeout_seconds:g} s") from None
    except httpx.ConnectError as error:
        cause = _cause(error)
        if isinstance(cause, ConnectionRefusedError | FileNotFoundError):
            raise UnavailableError(f"{endpoint.address}: nothing listens there") from None
        raise UnavailableError(f"{where} failed: {_sentence(cause)}") from None
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        raise UnavailableError(f"{where} failed: {_sentence(error)}") from None


def _cause(error: BaseException) -> BaseException:
    """The system's own error below those of the libraries."""
    below: BaseException | None = error
    found = error
    while below is not None:
        if isinstance(below, ExceptionGroup):
            below = below.exceptions[0]
        if isinstance(below, OSError) and below.errno:
            found = below
        below = below.__cause__ or below.__context__
    return found


def _sentence(error: BaseException) -> str:
    said = error.strerror if isinstance(error, OSError) else None
    return " ".join(str(said or error).split()) or type(error).__name__
