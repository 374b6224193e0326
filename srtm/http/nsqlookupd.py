"""What nsqlookupd answers, for all that ask it."""

import contextlib
from typing import Any, NamedTuple
from urllib.parse import quote

from srtm.http.client import request
from srtm.text.address import Address
from srtm.text.errors import SrtmError, UnavailableError

_TIMEOUT_SECONDS = 3.0
_MAX_BYTES = 8 << 20
_MOST_PRODUCERS = 1000
_MAX_ADDRESS = 261  # a name of 255, and a port


class Producer(NamedTuple):
    """An nsqd, or the gateway that stands for it: `host:port` of both its doors; "" where the
    nsqlookupd has no address that could be."""

    tcp: str
    http: str


def producers_of(lookupd: str, topic: str) -> list[Producer]:
    """Those that have the topic. Raises UnavailableError."""
    path = f"/lookup?topic={quote(topic, safe='')}"
    return _producers(lookupd, path)


def all_producers(lookupd: str) -> list[Producer]:
    """Those that the nsqlookupd knows. Raises UnavailableError."""
    return _producers(lookupd, "/nodes")


def topics(lookupd: str) -> list[str]:
    """The topics that the nsqlookupd knows. Raises UnavailableError."""
    document = _ask(lookupd, "/topics")
    try:
        return [each.encode().decode() for each in document["topics"]]
    except (KeyError, TypeError, AttributeError, UnicodeError):
        raise UnavailableError(f"nsqlookupd {lookupd}: /topics is no list of topics") from None


def _producers(lookupd: str, path: str) -> list[Producer]:
    document = _ask(lookupd, path)
    if document is None:  # nobody has it yet
        return []
    try:
        return [_producer(each) for each in document["producers"][:_MOST_PRODUCERS]]
    except (KeyError, TypeError):
        raise UnavailableError(f"nsqlookupd {lookupd}: {path} is no list of nsqds") from None


def _producer(entry: dict[str, Any]) -> Producer:
    host = entry["broadcast_address"]
    return Producer(_address(host, entry["tcp_port"]), _address(host, entry["http_port"]))


def _address(host: str, port: int) -> str:
    with contextlib.suppress(SrtmError):
        found = str(Address.of(str(Address(host, port))))
        if len(found) <= _MAX_ADDRESS:
            return found
    return ""


def _ask(lookupd: str, path: str) -> Any:
    """What it answers; None where it knows of nothing. Raises UnavailableError that names it."""
    try:
        answer = request(
            lookupd, "GET", path, timeout_seconds=_TIMEOUT_SECONDS, max_bytes=_MAX_BYTES
        )
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise UnavailableError(f"{lookupd}: {answer.error}")
        return answer.json()
    except UnavailableError as error:
        raise UnavailableError(f"nsqlookupd {error}") from None
