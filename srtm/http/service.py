"""A server as programs of ours reach it, by files that may change while they run: the Load
Distributor, or a bridge."""

import logging
import re
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from srtm.host.certificates import LOOK_SECONDS, PLAIN_TEXT, Renewed, TlsFiles, client_context
from srtm.host.clock import NS, monotonic_ns
from srtm.http.bearer import read_token
from srtm.http.client import Endpoint
from srtm.text.address import Address, addresses_of
from srtm.text.errors import UsageError

log = logging.getLogger("srtm.http")

_SERVER = re.compile(r"(\w+)-token-file")
"""whose token it is, where its file's name says so"""


@dataclass(frozen=True, slots=True)
class ClientFiles:
    """Paths of what a program shows a server, and of what it verifies the server by.

    token:     its token, mode 0600
    root_ca:   PEM with the authority of the server's certificate; empty: no TLS, and the token goes
               to this host alone; PLAIN_TEXT: no TLS, and it goes anywhere
    cert, key: PEM of its own certificate
    """

    token: str = ""
    root_ca: str = ""
    cert: str = ""
    key: str = ""

    @property
    def tls(self) -> TlsFiles | None:
        if self.root_ca in ("", PLAIN_TEXT):
            return None
        return TlsFiles(self.cert, self.key, self.root_ca)

    def check(self, address: str, where: str) -> None:
        """Raises UsageError where the token would cross a network in clear text by mistake."""
        if self.token and not self.root_ca and not Address.of(address).is_local:
            named = _SERVER.search(where)
            key = f"{named[1] if named else 'distributor'}-tls-root-ca-file"
            raise UsageError(
                f"{where} {self.token}: the token would go to {address} in clear text: give {key} "
                f"too, use a loopback address, or give {key}={PLAIN_TEXT} where the network is "
                "safe already"
            )


class ReachOptions(Protocol):
    """Options by which a program reaches the distributor."""

    @property
    def distributor_token_file(self) -> str: ...
    @property
    def distributor_tls_root_ca_file(self) -> str: ...
    @property
    def distributor_tls_cert(self) -> str: ...
    @property
    def distributor_tls_key(self) -> str: ...


def distributor_files(options: ReachOptions) -> ClientFiles:
    return ClientFiles(
        options.distributor_token_file,
        options.distributor_tls_root_ca_file,
        options.distributor_tls_cert,
        options.distributor_tls_key,
    )


class _Read:
    """What was read of the files, and when that was; and which of the addresses is asked now."""

    def __init__(self, addresses: str, files: ClientFiles, where: str) -> None:
        """Raises UsageError."""
        self._addresses = deque(map(str, addresses_of(addresses)))
        self.count = len(self._addresses)
        self._files = files
        self._where = where
        self._tls = Renewed(files.tls, client_context) if files.tls else None
        self._token = read_token(files.token, where)
        for each in self._addresses:
            files.check(each, where)
        self._failed = ""
        self._looked_at = monotonic_ns()
        self.endpoint = self._made()

    def _made(self) -> Endpoint:
        tls = None if self._tls is None else self._tls.context
        return Endpoint(self._addresses[0], self._token, tls)

    def look(self, now: int) -> None:
        """Read the files again where that is due. One that is wrong leaves what was read, and is
        told once."""
        if now - self._looked_at < LOOK_SECONDS * NS:
            return
        self._looked_at = now
        if self._tls is not None:
            self._tls.look()
        try:
            self._token = read_token(self._files.token, self._where)
            self._failed = ""
        except UsageError as error:
            if str(error) != self._failed:
                self._failed = str(error)
                log.error("the token in use stays: %s", error)
        self.endpoint = self._made()

    def turn(self, failed: Endpoint) -> None:
        """Somebody else may have turned to the next address already."""
        if failed.address == self._addresses[0]:
            self._addresses.rotate(-1)
            self.endpoint = self._made()


@dataclass(frozen=True, slots=True)
class _Followed(Endpoint):
    """Two of the same address and files are equal, whatever was read of them."""

    files: ClientFiles = ClientFiles()
    read: _Read = field(kw_only=True, compare=False, repr=False)

    def now(self) -> Endpoint:
        self.read.look(monotonic_ns())
        return self.read.endpoint

    @property
    def count(self) -> int:
        return self.read.count

    def turn(self, failed: Endpoint) -> Endpoint:
        self.read.turn(failed)
        return self.read.endpoint


def service_at(address: str, files: ClientFiles, where: str) -> Endpoint:
    """The server at `host:port`, or at one of several with commas between: the first one is asked
    until it is not there, or does not serve, and then the next. where: what names the token's file.
    Raises UsageError."""
    return _Followed(address, files=files, read=_Read(address, files, where))
