"""One connection to a service, on which HTTP is spoken, and its failures in one line each."""

import _thread
import asyncio
import errno
import os
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from http import HTTPStatus
from typing import Any, Self

import h11

from srtm.http.endpoint import Endpoint, TlsFailed
from srtm.text.address import Address
from srtm.text.certificates import why_tls_failed
from srtm.text.errors import UnavailableError

JSON = "application/json"
_READ_BYTES = 64 << 10


class _NoAnswer(h11.RemoteProtocolError):
    """The other side closed the connection, or broke it, before the first byte of its answer."""


class Connection:
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
        headers = [] if keep else [("Connection", "close")]
        if body is not None:
            headers += [("Content-Type", content_type), ("Content-Length", str(len(body)))]
        return await self._answered(endpoint, method, path, headers, body or b"")

    async def switch(self, endpoint: Endpoint, path: str, protocol: str) -> int:
        """Ask to go on with another protocol: then `read_line`, `read` and `write` speak it. The
        status of the answer: 101 where that is agreed upon; otherwise its body comes by
        `pieces`."""
        headers = [("Connection", "Upgrade"), ("Upgrade", protocol)]
        return await self._answered(endpoint, "GET", path, headers, b"")

    async def _answered(
        self,
        endpoint: Endpoint,
        method: str,
        path: str,
        more: list[tuple[str, str]],
        body: bytes,
    ) -> int:
        is_first = self._http.our_state is not h11.DONE
        if not is_first:
            self._http.start_next_cycle()
        host = "localhost" if endpoint.is_socket else str(Address.of(endpoint.address))
        headers = [("Host", host), ("User-Agent", "srtm"), ("Accept-Encoding", "identity")]
        if endpoint.token:
            headers.append(("Authorization", f"Bearer {endpoint.token}"))
        headers += more
        sent = [
            self._http.send(h11.Request(method=method, target=path, headers=headers)),
            self._http.send(h11.Data(data=body)),
            self._http.send(h11.EndOfMessage()),
        ]
        await self.write(b"".join(each for each in sent if each))
        try:
            while not isinstance(event := await self._event(), h11.Response):
                if event.status_code == HTTPStatus.SWITCHING_PROTOCOLS:
                    break  # any other 1xx: the answer itself is to come
        except _NoAnswer:
            if endpoint.tls is None or not is_first:
                raise
            # In TLS 1.3 the other side judges a client after the handshake, and what it says of
            # that may be lost with the connection.
            why = "it closed the connection after the TLS handshake"
            raise TlsFailed(
                f"{endpoint.address}: {why}; does it accept only clients with a certificate?"
            ) from None
        return int(event.status_code)

    async def write(self, content: bytes) -> None:
        self._writer.write(content)
        await self._writer.drain()

    async def read_line(self) -> bytes:
        """Raises OSError where it ends before, ValueError where it is longer than 64 KiB."""
        found = await self._reader.readline()
        if not found.endswith(b"\n"):
            raise ConnectionResetError(errno.ECONNRESET, "closed")
        return found

    async def read(self, size: int) -> bytes:
        """Raises OSError where there is less."""
        try:
            return await self._reader.readexactly(size)
        except asyncio.IncompleteReadError:
            raise ConnectionResetError(errno.ECONNRESET, "closed") from None

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

    @property
    def is_over(self) -> bool:
        """Has the other side closed it?"""
        return self._reader.at_eof() or self._reader.exception() is not None

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


@asynccontextmanager
async def connected(
    endpoint: Endpoint, timeout_seconds: float | None = None
) -> AsyncIterator[Connection]:
    async with asyncio.timeout(timeout_seconds):
        connection = await Connection.open(endpoint)
    try:
        yield connection
    finally:
        connection.close()


def place_of(endpoint: Endpoint, path: str) -> str:
    """What errors name: no query, which may hold a secret."""
    return f"{endpoint.address}: {path.partition('?')[0]}"


@contextmanager
def as_ours(where: str, timeout_seconds: float) -> Iterator[None]:
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
