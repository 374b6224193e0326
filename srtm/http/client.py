"""HTTP to the programs of a deployment: JSON calls, and streams of JSON lines.

Whole requests have a deadline and answers a largest size, whatever the other side does. A service
is at `host:port`, or behind a unix socket (nsqd, the gateway's admin door). Each request has a
connection of its own, but for those of a `Kept`.
"""

import _thread
import asyncio
import json
import os
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from typing import Any, Self

import h11

from srtm.text.address import Address
from srtm.text.certificates import why_tls_failed
from srtm.text.errors import UnavailableError

TIMEOUT_SECONDS = 5.0
"""nsqd's own default for requests to others (--http-client-request-timeout)"""
JSON = "application/json"
MAX_RESPONSE_BYTES = 64 << 20
"""/stats of nsqd takes about 1 kB a channel with its clients: room for tens of thousands"""
_MAX_LINE_BYTES = 1 << 20
_READ_BYTES = 64 << 10
_MOST_TEXT = 300
_MAX_ERROR_BYTES = 64 << 10
"""of the answer to a stream that is refused"""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A service at `host:port` or behind the path of a unix socket; `token` goes with each request
    where there is one.

    tls:         how its certificate is verified; None: plain HTTP
    server_name: whom that must name; empty: the host of the address
    """

    address: str
    token: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    server_name: str = ""

    def now(self) -> "Endpoint":
        """The service as it is reached at this moment."""
        return self

    @property
    def count(self) -> int:
        """Addresses that the service may be at."""
        return 1

    def turn(self, failed: "Endpoint") -> "Endpoint":
        """The service as it is reached where it was not there at `failed`."""
        return self

    @property
    def is_socket(self) -> bool:
        return "/" in self.address and "://" not in self.address

    @property
    def expected_name(self) -> str:
        if self.server_name:
            return self.server_name
        return "localhost" if self.is_socket else Address.of(self.address).host


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
            return _parsed(self.body, self.where)
        except (ValueError, RecursionError):
            return self.body.decode(errors="replace")

    @property
    def error(self) -> str:
        """What a refusal says, in one line: `error` (ours), `message` (nsqd's), or its text."""
        found = self.document
        if isinstance(found, dict):
            found = found.get("error") or found.get("message")
        text = " ".join(str(found or "").split())[:_MOST_TEXT]
        shown = "".join(each if each.isprintable() else "?" for each in text)
        return shown or f"HTTP {self.status}"

    def json(self) -> Any:
        """Raises UnavailableError where it is none, and for any status but 200."""
        if self.status != 200:
            raise UnavailableError(f"{self.where} answered {self.status}: {self.error}")
        try:
            return _parsed(self.body, self.where)
        except (ValueError, RecursionError):
            shown = f"{self.body[:80]!r}"
            raise UnavailableError(f"{self.where} did not answer with JSON: {shown}") from None


class _Missing(UnavailableError, KeyError):
    """A KeyError for whoever looks for one, and one line for a person where nobody does."""

    __str__ = Exception.__str__


class _Document(dict[str, Any]):
    """An object of an answer. What is missed in it is missed at the other side: that is another
    program, or another version."""

    where = ""

    def __missing__(self, key: str) -> Any:
        raise _Missing(f"{self.where} answered without {key!r}: is it another program?")


def _parsed(body: bytes, where: str) -> Any:
    """Raises ValueError, RecursionError."""

    def made(found: dict[str, Any]) -> _Document:
        document = _Document(found)
        document.where = where
        return document

    return json.loads(body, object_hook=made)


class Refusal(UnavailableError):
    """The request of a stream was answered with an error."""

    def __init__(self, endpoint: Endpoint, answer: Answer) -> None:
        super().__init__(f"{endpoint.address}: {answer.error}")
        self.status = answer.status


class _NoAnswer(h11.RemoteProtocolError):
    """The other side closed the connection, or broke it, before the first byte of its answer."""


class TlsFailed(UnavailableError):
    """A service is there, and is not trusted, or does not speak TLS."""


class _Connection:
    """One connection to a service, and where HTTP stands on it; one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.CLIENT)

    @classmethod
    async def open(cls, endpoint: Endpoint) -> Self:
        """Raises OSError; UnavailableError where nobody listens."""
        try:
            options: dict[str, Any] = {}
            if endpoint.tls is not None:
                options = {"ssl": endpoint.tls, "server_hostname": endpoint.expected_name}
            if endpoint.is_socket:
                return cls(*await asyncio.open_unix_connection(endpoint.address, **options))
            reached = await _reached(Address.of(endpoint.address))
            try:
                return cls(*await asyncio.open_connection(sock=reached, **options))
            except ConnectionResetError:  # by one that takes a handshake for a request
                why = "it closed the connection during the TLS handshake"
                raise TlsFailed(f"{endpoint.address}: {why}; is it a port of plain text?") from None
        except (ConnectionRefusedError, FileNotFoundError):
            raise UnavailableError(f"{endpoint.address}: nothing listens there") from None

    async def ask(
        self,
        endpoint: Endpoint,
        method: str,
        path: str,
        body: bytes | None,
        keep: bool,
        content_type: str = JSON,
    ) -> int:
        """The status of the answer; its body comes by `pieces`."""
        is_first = self._http.our_state is not h11.DONE
        if not is_first:
            self._http.start_next_cycle()
        host = "localhost" if endpoint.is_socket else str(Address.of(endpoint.address))
        headers = [("Host", host), ("User-Agent", "srtm"), ("Accept-Encoding", "identity")]
        if not keep:
            headers.append(("Connection", "close"))
        if endpoint.token:
            headers.append(("Authorization", f"Bearer {endpoint.token}"))
        if body is not None:
            headers += [("Content-Type", content_type), ("Content-Length", str(len(body)))]
        sent = [
            self._http.send(h11.Request(method=method, target=path, headers=headers)),
            self._http.send(h11.Data(data=body or b"")),
            self._http.send(h11.EndOfMessage()),
        ]
        self._writer.write(b"".join(each for each in sent if each))
        await self._writer.drain()
        try:
            while not isinstance(event := await self._event(), h11.Response):
                pass  # 1xx: the answer itself is to come
        except _NoAnswer:
            if endpoint.tls is None or not is_first:
                raise
            # In TLS 1.3 the other side judges a client after the handshake, and what it says of
            # that may be lost with the connection.
            why = "it closed the connection after the TLS handshake"
            raise TlsFailed(
                f"{endpoint.address}: {why}; does it accept only clients with a certificate?"
            ) from None
        return event.status_code

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body of the answer, as it comes."""
        while isinstance(event := await self._event(), h11.Data):
            yield bytes(event.data)

    async def _event(self) -> Any:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            try:
                data = await self._reader.read(_READ_BYTES)
            except ConnectionResetError:
                data = b""
            if not data and self._http.their_state is h11.SEND_RESPONSE:
                raise _NoAnswer("closed without an answer")
            self._http.receive_data(data)
        return event

    def is_free(self) -> bool:
        """May another request be sent? What the one before left unread, or the other side has
        closed, is not."""
        states = self._http.our_state, self._http.their_state
        is_between = states in ((h11.IDLE, h11.IDLE), (h11.DONE, h11.DONE))
        return is_between and not self._reader.at_eof()

    def close(self) -> None:
        transport = self._writer.transport
        transport.abort()
        # asyncio's transports hold a method of theirs, which holds them: garbage that is found only
        # by a collection, and the gateway collects rarely.
        with suppress(AttributeError):
            del transport._read_ready_cb  # type: ignore[attr-defined]


async def _reached(address: Address) -> socket.socket:
    """Connected to the first of a name's addresses that takes it."""
    loop = asyncio.get_running_loop()
    failure = OSError(f"{address.host} has no address")
    for family, kind, protocol, _, where in await _looked_up(address):
        made = socket.socket(family, kind, protocol)
        made.setblocking(False)
        try:
            await loop.sock_connect(made, where)
        except OSError as error:
            made.close()
            failure = error
        except BaseException:
            made.close()
            raise
        else:
            return made
    try:
        raise failure
    finally:
        del failure  # or it would keep this frame, which keeps it


async def _looked_up(address: Address) -> list[Any]:
    """What getaddrinfo says of a name, by a thread that nobody waits for: those of asyncio's own
    are waited for when a loop ends, however long a resolver takes."""
    with suppress(OSError, ValueError):
        flags = socket.AI_NUMERICHOST  # a number needs no resolver
        return socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=flags)
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[list[Any]] = loop.create_future()

    def tell(found: list[Any] | Exception) -> None:
        if answer.done():
            return
        if isinstance(found, Exception):
            answer.set_exception(found)
        else:
            answer.set_result(found)

    def ask() -> None:
        found: list[Any] | Exception
        try:
            found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
        except (OSError, ValueError) as error:
            found = error
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(tell, found)

    # `Thread.start` would wait until the system lets it run: on a busy host for milliseconds.
    _thread.start_new_thread(ask, ())
    return await answer


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
    several addresses the next one is asked where one cannot be reached, or does not serve (503);
    one that took the request and said nothing may have carried it out, and is asked last by the
    next call.

    Raises UnavailableError when no answer came, whole, in time and size.
    """
    at, left = endpoint.now(), endpoint.count
    while True:
        where, left, is_asked = _place(at, path), left - 1, False
        try:
            with _as_ours(where, timeout_seconds):
                async with asyncio.timeout(timeout_seconds), _connected(at) as connection:
                    is_asked = True
                    status = await connection.ask(at, method, path, body, False, content_type)
                    answer = Answer(status, await _whole(connection, where, max_bytes), where)
            if status != HTTPStatus.SERVICE_UNAVAILABLE or not left:
                return answer
        except UnavailableError:
            if is_asked or not left:
                endpoint.turn(at)
                raise
        at = endpoint.turn(at)


async def _whole(connection: _Connection, where: str, max_bytes: int) -> bytes:
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
        self._connection: _Connection | None = None

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
        where = _place(self._endpoint, path)
        with _as_ours(where, timeout_seconds):
            async with asyncio.timeout(timeout_seconds):
                await asyncio.sleep(0)  # what has come since, its end above all, is seen then
                if self._connection is not None and self._connection.is_free():
                    with suppress(h11.RemoteProtocolError, ConnectionError):
                        return await self._ask(self._connection, path, where, max_bytes)
                self._drop()  # or it was closed as the request went out
                self._connection = await _Connection.open(self._endpoint)
                return await self._ask(self._connection, path, where, max_bytes)

    async def _ask(self, connection: _Connection, path: str, where: str, max_bytes: int) -> Answer:
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
        async for each in _lines(at, path, body, silence_seconds):
            yield each
    except UnavailableError:
        endpoint.turn(at)
        raise


async def _lines(
    endpoint: Endpoint, path: str, body: bytes, silence_seconds: float
) -> AsyncGenerator[dict[str, Any], None]:
    """As `lines`, at one address."""
    where = _place(endpoint, path)
    with _as_ours(where, silence_seconds):
        async with _connected(endpoint, silence_seconds) as connection:
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
        document = _parsed(line, where)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise UnavailableError(f"{where} failed: {line[:80]!r} is no JSON object")
    return document


@asynccontextmanager
async def _connected(
    endpoint: Endpoint, timeout_seconds: float | None = None
) -> AsyncIterator[_Connection]:
    async with asyncio.timeout(timeout_seconds):
        connection = await _Connection.open(endpoint)
    try:
        yield connection
    finally:
        connection.close()


def _place(endpoint: Endpoint, path: str) -> str:
    """What errors name: no query, which may hold a secret."""
    return f"{endpoint.address}: {path.partition('?')[0]}"


@contextmanager
def _as_ours(where: str, timeout_seconds: float) -> Iterator[None]:
    """Errors of sockets and HTTP as one line of ours."""
    try:
        yield
    except TimeoutError:
        raise UnavailableError(f"{where} did not answer within {timeout_seconds:g} s") from None
    except ssl.SSLError as error:  # its number is not one of errno
        raise TlsFailed(f"{where} failed: {why_tls_failed(error)}") from None
    except (h11.ProtocolError, OSError, ValueError) as error:
        error.__traceback__ = None  # h11 raises an error that keeps its own frame
        raise UnavailableError(f"{where} failed: {_sentence(error)}") from None


def _sentence(error: BaseException) -> str:
    if isinstance(error, _NoAnswer):
        return (
            "it closed the connection without an answer; is it an HTTP port? For one of TLS give "
            "the ...-tls-root-ca-file by which it is verified"
        )
    if isinstance(error, h11.ProtocolError):
        # What h11 quotes may be our own request, its secret included, where an echo listens.
        said = str(error).partition(": ")[0]
        return f"it does not answer as HTTP does ({said}); is it an HTTP port?"
    if isinstance(error, socket.gaierror):
        return f"its name is not known ({error.strerror})"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno) if error.errno > 0 else error.strerror or str(error)
    return " ".join(str(error).split()) or type(error).__name__
