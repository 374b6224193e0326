"""Services and their answers: where one is, how it is reached, and what it said."""

import json
import ssl
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from typing import Any

from srtm.text.address import Address
from srtm.text.errors import UnavailableError

_MOST_TEXT = 300
_NO_SUCH_PATH = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)


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
            return parsed(self.body, self.where)
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

    @property
    def stands_by(self) -> bool:
        """Does who answered say that another one of the service leads?"""
        found = self.document if self.status == HTTPStatus.SERVICE_UNAVAILABLE else None
        return isinstance(found, dict) and found.get("leading") is False

    @property
    def is_foreign(self) -> bool:
        """Is it by another program than the service, or by a proxy? Its answers are JSON objects,
        and it knows the paths that it is asked for, or says `error`."""
        found = self.document
        if not isinstance(found, dict):
            return True
        return self.status in _NO_SUCH_PATH and "error" not in found

    def json(self) -> Any:
        """Raises UnavailableError where it is none, and for any status but 200."""
        if self.status != 200:
            raise UnavailableError(f"{self.where} answered {self.status}: {self.error}")
        try:
            return parsed(self.body, self.where)
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


def parsed(body: bytes, where: str) -> Any:
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
        self.answer = answer


class TlsFailed(UnavailableError):
    """A service is there, and is not trusted, or does not speak TLS."""
