"""A small HTTP/1.1 client for the services of a host: by `host:port` or through a unix socket.

nsqd, nsqlookupd and the gateway's admin door speak HTTP, and urllib reaches no unix socket. It
blocks, and makes one request a connection.
"""

import contextlib
import http.client
import json
import socket
from dataclasses import dataclass
from typing import Any

from srtm.clock import NS, monotonic_ns
from srtm.errors import UnavailableError

TIMEOUT_SECONDS = 5.0
"""nsqd's own default for requests to others (--http-client-request-timeout)"""
MAX_RESPONSE_BYTES = 64 << 20
"""/stats of nsqd takes about 1 kB a channel with its clients: room for tens of thousands"""
_CHUNK_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Response:
    """A whole response; `where` and `path` are kept for the messages of errors."""

    where: str
    path: str
    status: int
    body: bytes

    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except ValueError:
            raise UnavailableError(
                f"{self.where}: {self.path} did not answer with JSON: {self.body[:80]!r}"
            ) from None

    @property
    def message(self) -> str:
        """What a refusal says: its JSON `message`, or else its text, as one line."""
        text = self.body.decode(errors="replace")
        with contextlib.suppress(ValueError, KeyError, TypeError):
            text = str(json.loads(text)["message"])
        return " ".join(text.split())[:300] or f"HTTP {self.status}"


class _Connection(http.client.HTTPConnection):
    """Connects where it is told to; http.client itself knows no unix sockets."""

    def __init__(self, where: str, timeout_seconds: float) -> None:
        super().__init__("localhost", timeout=timeout_seconds)
        self._where = where
        self._timeout_seconds = timeout_seconds

    def connect(self) -> None:
        if "/" in self._where:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(self._timeout_seconds)
            self.sock.connect(self._where)
        else:
            host, _, port = self._where.rpartition(":")
            address = (host.strip("[]") or "127.0.0.1", int(port))
            self.sock = socket.create_connection(address, self._timeout_seconds)


def request(
    where: str,
    method: str,
    path: str,
    *,
    document: object = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
    max_bytes: int = MAX_RESPONSE_BYTES,
) -> Response:
    """One request, with `document` as its JSON body; `where` is `host:port` or a socket's path.

    Any status is an answer. Raises UnavailableError when none came, whole, in time and size.
    """
    deadline_ns = monotonic_ns() + int(timeout_seconds * NS)
    connection = _Connection(where, timeout_seconds)
    try:
        body = None if document is None else json.dumps(document).encode()
        headers = {"Connection": "close"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection.connect()
        sock = connection.sock
        connection.request(method, path, body, headers)
        with connection.getresponse() as response:
            content = _read(response, sock, deadline_ns, max_bytes)
            return Response(where, path, response.status, content)
    except _TooBig:
        raise UnavailableError(f"{where}: {path} answered more than {max_bytes} bytes") from None
    except TimeoutError:
        raise UnavailableError(
            f"{where}: {path} did not answer within {timeout_seconds:g} s"
        ) from None
    except (ConnectionRefusedError, FileNotFoundError):
        raise UnavailableError(f"{where}: nothing listens there") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        what = " ".join(str(error).split()) or type(error).__name__
        raise UnavailableError(f"{where}: {path} failed: {what}") from None
    finally:
        connection.close()


def get_json(
    where: str,
    path: str,
    *,
    timeout_seconds: float = TIMEOUT_SECONDS,
    max_bytes: int = MAX_RESPONSE_BYTES,
) -> Any:
    """The JSON of a GET. Raises UnavailableError, also for any status but 200."""
    response = request(where, "GET", path, timeout_seconds=timeout_seconds, max_bytes=max_bytes)
    if response.status != 200:
        raise UnavailableError(f"{where}: {path} answered {response.status}: {response.message}")
    return response.json()


class _TooBig(Exception):
    pass


def _read(
    response: http.client.HTTPResponse, sock: socket.socket, deadline_ns: int, max_bytes: int
) -> bytes:
    """The body, within one deadline for all of it: a timeout for each read alone never ends."""
    content = bytearray()
    while True:
        left_seconds = (deadline_ns - monotonic_ns()) / NS
        if left_seconds <= 0:
            raise TimeoutError
        if sock.fileno() >= 0:  # http.client closes it once it has read the whole of the body
            sock.settimeout(left_seconds)
        chunk = response.read1(_CHUNK_BYTES)
        if not chunk:
            if response.length:  # promised by Content-Length, and cut short
                raise http.client.IncompleteRead(bytes(content), response.length)
            return bytes(content)
        content += chunk
        if len(content) > max_bytes:
            raise _TooBig
