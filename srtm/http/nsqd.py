"""What nsqd, or the gateway before it, answers to /stats."""

import ssl
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from srtm.http.client import MAX_RESPONSE_BYTES, TIMEOUT_SECONDS, Answer, Endpoint, Kept
from srtm.text.address import Address
from srtm.text.errors import UnavailableError

HTTPS = "https://"
"""what an HTTP address of nsqd begins with where it is that of its HTTPS door"""


@dataclass(frozen=True, slots=True)
class NsqdDoor:
    """The HTTP door of an nsqd or a gateway, or its HTTPS door.

    address:     `HOST:PORT`, `https://HOST:PORT`, or the path of a unix socket
    tls:         how its certificate is verified; None: it is not read by HTTPS
    server_name: whom that must name; empty: the host of the address
    remedy:      what a person does so that it is
    """

    address: str
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    server_name: str = ""
    remedy: str = "start it with --tls-required=tcp-https, which leaves its HTTP door open"

    @property
    def endpoint(self) -> Endpoint:
        if self.tls is None or not self.address.startswith(HTTPS):
            return Endpoint(self.address)
        return Endpoint(self.address.removeprefix(HTTPS), "", self.tls, self.server_name)

    def https(self, port: int) -> Endpoint:
        """Its HTTPS door, of which the HTTP door said the port. Raises UnavailableError."""
        if not port or self.tls is None:
            raise UnavailableError(why_closed(self.address, port, self.remedy))
        address = str(Address.of(self.endpoint.address)._replace(port=port))
        return Endpoint(address, "", self.tls, self.server_name)


def why_closed(address: str, port: int, remedy: str) -> str:
    """What is wrong with an HTTP door that is closed. port: as `https_port` finds it"""
    closed = f"{address} answers by HTTPS alone (TLS_REQUIRED)"
    if not port:
        return f"{closed} and has no HTTPS door: start it with --https-address"
    return f"{closed}, at port {port}: {remedy}"


def https_port(answer: Answer) -> int | None:
    """The port of the HTTPS door of one whose HTTP door is closed, 0 where it has none; None for
    any other answer."""
    found = answer.document if answer.status == 403 else None
    if not isinstance(found, dict) or found.get("message") != "TLS_REQUIRED":
        return None
    port = found.get("https_port")
    return port if type(port) is int and 0 < port < 65536 else 0


class StatsReader:
    """Asks one nsqd or gateway, on connections that are kept.

    nsqlookupd and the distributor tell HTTP addresses alone. One whose HTTP door is closed names
    the port of its HTTPS door, and is asked there, as nsqadmin does.
    """

    def __init__(self, door: NsqdDoor) -> None:
        self._door = door
        self._kept = Kept(door.endpoint)
        self._secure: tuple[int, Kept] | None = None

    def read(
        self,
        topic: str = "",
        channel: str = "",
        *,
        clients: bool = False,
        timeout_seconds: float = TIMEOUT_SECONDS,
        max_bytes: int = MAX_RESPONSE_BYTES,
    ) -> dict[str, Any]:
        """Topics and channels; a gateway's own part is under `srtm`. Raises UnavailableError."""
        path = stats_path(topic, channel, clients)
        answer = self._kept.get(path, timeout_seconds=timeout_seconds, max_bytes=max_bytes)
        port = https_port(answer)
        if port is not None:
            kept = self._secured(port)
            answer = kept.get(path, timeout_seconds=timeout_seconds, max_bytes=max_bytes)
        return _document(answer)

    def _secured(self, port: int) -> Kept:
        """Raises UnavailableError."""
        if self._secure is None or self._secure[0] != port:
            endpoint = self._door.https(port)
            if self._secure is not None:
                self._secure[1].close()
            self._secure = port, Kept(endpoint)
        return self._secure[1]

    def close(self) -> None:
        """Close the connections; called by the thread that asked."""
        self._kept.close()
        if self._secure is not None:
            self._secure[1].close()


def stats(door: NsqdDoor | str, topic: str = "", channel: str = "") -> dict[str, Any]:
    """As `StatsReader.read` does, for one question. door: an address is enough where no more is
    needed to reach it"""
    with closing(StatsReader(NsqdDoor(door) if isinstance(door, str) else door)) as reader:
        return reader.read(topic, channel)


def stats_path(
    topic: str = "", channel: str = "", clients: bool = False, memory: bool = False
) -> str:
    """topic, channel: the only ones that are asked for; without, all."""
    return (
        f"/stats?format=json&topic={quote(topic, safe='')}&channel={quote(channel, safe='')}"
        f"&include_clients={str(clients).lower()}&include_mem={str(memory).lower()}"
    )


def _document(answer: Answer) -> dict[str, Any]:
    """A gateway whose nsqd is away says so by its status, 503, and tells its own part all the
    same. Raises UnavailableError."""
    document = answer.document if answer.status in (200, 503) else None
    if not isinstance(document, dict) or not isinstance(document.get("topics", 0), list | None):
        raise UnavailableError(f"{answer.where} answered {answer.status}: {answer.error}")
    return document
