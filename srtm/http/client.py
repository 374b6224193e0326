"""HTTP to the programs of a deployment: JSON calls, and streams of JSON lines.

Whole requests have a deadline and answers a largest size, whatever the other side does. A service
is at `host:port`, or behind a unix socket (nsqd, the gateway's admin door). Each request has a
connection of its own, but for those of a `Kept`.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any

import h11

from srtm.http.connection import JSON, Connection, as_ours, connected, place_of
from srtm.http.endpoint import Answer, Endpoint, Refusal, TlsFailed, parsed
from srtm.text.errors import UnavailableError

__all__ = [
    "Answer",
    "Endpoint",
    "Kept",
    "Refusal",
    "TlsFailed",
    "call",
    "get_json",
    "lines",
    "request",
]

TIMEOUT_SECONDS = 5.0
"""nsqd's own default for requests to others (--http-client-request-timeout)"""
MAX_RESPONSE_BYTES = 64 << 20
"""/stats of nsqd takes about 1 kB a channel with its clients: room for tens of thousands"""
_OPEN_SECONDS = 3.0
"""for a connection to one of several addresses; the host may be gone"""
_MAX_LINE_BYTES = 1 << 20
_MAX_ERROR_BYTES = 64 << 10
"""of the answer to a stream that is refused"""


async def call(
    endpoint: Endpoint,
    method: str,
    path: str,
    body: bytes | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
    max_bytes: int = MAX_RESPONSE_BYTES,
    content_type: str = JSON,
) -> Answer:
    """One request on a connection of its own. content_type: that of `body`. Of a service with
    several addresses the next one is asked where one cannot be reached, is another program, or says
    that another one leads. Who took the request and said nothing may have carried it out, and so
    may who is behind a proxy that failed: a GET is made again elsewhere, anything else is for the
    next call.

    Raises UnavailableError when no answer came, whole, in time and size.
    """
    at, left = endpoint.now(), endpoint.count
    opening = _OPEN_SECONDS if left > 1 else None
    while True:
        where, left, may_repeat = place_of(at, path), left - 1, True
        try:
            with as_ours(where, timeout_seconds):
                async with asyncio.timeout(timeout_seconds), connected(at, opening) as connection:
                    may_repeat = method == "GET"
                    status = await connection.ask(at, method, path, body, False, content_type)
                    answer = Answer(status, await _whole(connection, where, max_bytes), where)
            if not left or not (answer.stands_by or answer.is_foreign):
                return answer
            if answer.is_foreign and answer.status >= 500 and not may_repeat:
                endpoint.turn(at)
                return answer
        except UnavailableError:
            if not (may_repeat and left):
                endpoint.turn(at)
                raise
        at = endpoint.turn(at)


async def _whole(connection: Connection, where: str, max_bytes: int) -> bytes:
    content = bytearray()
    async for piece in connection.pieces():
        content += piece
        if len(content) > max_bytes:
            raise UnavailableError(f"{where} answered more than {max_bytes} bytes")
    return bytes(content)


def request(
    service: Endpoint | str,
    method: str,
    path: str,
    *,
    document: object = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
    max_bytes: int = MAX_RESPONSE_BYTES,
) -> Answer:
    """One request like that of `call`, for programs without a loop, with `document` as its JSON.
    service: an address is enough where no more is needed to reach it"""
    body = None if document is None else json.dumps(document).encode()
    endpoint = Endpoint(service) if isinstance(service, str) else service
    return asyncio.run(call(endpoint, method, path, body, timeout_seconds, max_bytes))


class Kept:
    """Requests to one service, one after the other, on a connection that is kept: for a thread
    that asks several times a second. Opening one each time costs several times as much."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._runner = asyncio.Runner()
        self._connection: Connection | None = None

    def get(
        self,
        path: str,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        max_bytes: int = MAX_RESPONSE_BYTES,
    ) -> Answer:
        """One GET on the connection that is kept, otherwise like `request`."""
        return self._runner.run(self._get(path, timeout_seconds, max_bytes))

    async def _get(self, path: str, timeout_seconds: float, max_bytes: int) -> Answer:
        where = place_of(self._endpoint, path)
        with as_ours(where, timeout_seconds):
            async with asyncio.timeout(timeout_seconds):
                await asyncio.sleep(0)  # what has come since, its end above all, is seen then
                if self._connection is not None and self._connection.is_free():
                    with suppress(h11.RemoteProtocolError, ConnectionError):
                        return await self._ask(self._connection, path, where, max_bytes)
                self._drop()  # or it was closed as the request went out
                self._connection = await Connection.open(self._endpoint)
                return await self._ask(self._connection, path, where, max_bytes)

    async def _ask(self, connection: Connection, path: str, where: str, max_bytes: int) -> Answer:
        status = await connection.ask(self._endpoint, "GET", path, None, keep=True)
        return Answer(status, await _whole(connection, where, max_bytes), where)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        """Close the connection; called by the thread that asked."""
        self._drop()
        self._runner.close()


def get_json(
    service: Endpoint | str,
    path: str,
    *,
    timeout_seconds: float = TIMEOUT_SECONDS,
    max_bytes: int = MAX_RESPONSE_BYTES,
) -> Any:
    """The JSON of a GET. Raises UnavailableError, also for any status but 200."""
    answer = request(service, "GET", path, timeout_seconds=timeout_seconds, max_bytes=max_bytes)
    return answer.json()


async def lines(
    endpoint: Endpoint, path: str, body: bytes, silence_seconds: float
) -> AsyncGenerator[dict[str, Any], None]:
    """POST, and each line of the answer as it comes, until the other side ends it.

    Raises Refusal where the answer is an error, UnavailableError when the stream cannot be had or
    says nothing for `silence_seconds`; of a service with several addresses the next one is asked
    by the next call. Close it (contextlib.aclosing) to hang up.
    """
    at = endpoint.now()
    try:
        async with aclosing(_lines(at, path, body, silence_seconds)) as stream:
            async for each in stream:
                yield each
    except Refusal as error:
        is_foreign = endpoint.count > 1 and error.answer.is_foreign
        if is_foreign or error.answer.stands_by:
            endpoint.turn(at)
        if is_foreign:  # it does not refuse what was asked for
            raise UnavailableError(f"{error}: is it another program?") from None
        raise
    except UnavailableError:
        endpoint.turn(at)
        raise


async def _lines(
    endpoint: Endpoint, path: str, body: bytes, silence_seconds: float
) -> AsyncGenerator[dict[str, Any], None]:
    """As `lines`, at one address."""
    where = place_of(endpoint, path)
    with as_ours(where, silence_seconds):
        async with connected(endpoint, silence_seconds) as connection:
            async with asyncio.timeout(silence_seconds):
                status = await connection.ask(endpoint, "POST", path, body, keep=False)
                if status != 200:
                    refused = await _whole(connection, where, _MAX_ERROR_BYTES)
                    raise Refusal(endpoint, Answer(status, refused, where))
            pieces = connection.pieces()
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
                for line in whole:
                    if line.strip():
                        yield _object(line, where)


def _object(line: bytes, where: str) -> dict[str, Any]:
    try:
        document = parsed(line, where)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise UnavailableError(f"{where} failed: {line[:80]!r} is no JSON object")
    return document
