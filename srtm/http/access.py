"""Whether a request is answered: who calls, told by a token or by a client certificate."""

import logging
import ssl
from collections.abc import Callable, Mapping
from typing import Any

from tornado.httputil import HTTPServerRequest

from srtm.host.clock import NS, monotonic_ns
from srtm.host.seldom import Seldom
from srtm.http.callers import (
    ANYBODY,
    Caller,
    Tokens,
    bearer_of,
    holder_of,
    read_tokens,
)
from srtm.text.errors import UsageError

_QUIET_SECONDS = 60.0
"""from one line about strangers to the next: they choose how many requests they send"""


Shown = tuple[str | None, Mapping[str, Any] | None]
"""What a request shows of who sent it: its Authorization, or a verified certificate."""


class Access:
    """Knows the callers of one server, and follows the file of their tokens.

    token_file:   a file as `srtm.http.callers` describes it; empty: no tokens are taken
    require_peer: the server takes only clients with a certificate; without either everybody may
                  do everything
    strangers:    requests so far that showed no token, or a wrong one, where one is needed
    """

    def __init__(
        self,
        token_file: str,
        where: str,
        log: logging.Logger,
        require_peer: bool = False,
        seconds: Callable[[], float] = lambda: monotonic_ns() / NS,
    ) -> None:
        """where: what names the file, for errors. Raises UsageError."""
        self._file = token_file
        self._where = where
        self._log = log
        self._asks = bool(token_file) or require_peer
        self._tokens: Tokens | None = read_tokens(token_file, where) if token_file else None
        self._failed = ""
        self._lines = Seldom(_QUIET_SECONDS, seconds)
        self.strangers = 0

    @property
    def has_operator(self) -> bool:
        """May anybody do everything?"""
        return not self._asks or (self._tokens is not None and self._tokens.has_operator)

    def look(self) -> None:
        """Read the file again. One that is wrong leaves the callers as they are, and is told
        once."""
        if not self._file:
            return
        try:
            tokens = read_tokens(self._file, self._where)
        except UsageError as error:
            if str(error) != self._failed:
                self._failed = str(error)
                self._log.error("the callers stay as they were: %s", error)
            return
        self._failed = ""
        if tokens != self._tokens:
            self._tokens = tokens
            self._log.info("%s was read anew: %d tokens", self._file, len(tokens.known))

    def caller(
        self, authorization: str | None, certificate: Mapping[str, Any] | None
    ) -> Caller | None:
        """Who calls; None: a stranger. A token that is shown decides, and a wrong one is not made
        good by a certificate. certificate: verified, as `SSLSocket.getpeercert` tells it."""
        if not self._asks:
            return ANYBODY
        token = bearer_of(authorization)
        if token is not None and self._tokens is not None:
            return self._tokens.caller(token)
        return holder_of(certificate)

    def of_request(self, request: HTTPServerRequest) -> Caller | None:
        """Who sent a request; None: a stranger, who is counted."""
        caller = self.peek(request)
        if caller is None:
            self._count_stranger(request.remote_ip or "")
        return caller

    def peek(self, request: HTTPServerRequest) -> Caller | None:
        """As `of_request`, without counting."""
        return self.caller(*self.shown(request))

    def shown(self, request: HTTPServerRequest) -> Shown:
        """By what `caller` knows who sent a request."""
        header = request.headers.get("Authorization")
        socket = request.connection.stream.socket  # type: ignore[union-attr]
        is_secure = isinstance(socket, ssl.SSLSocket)
        return header, socket.getpeercert() if is_secure and not header else None

    def _count_stranger(self, address: str) -> None:
        """Count a request of a stranger, and log it unless one was logged in the last minute."""
        self.strangers += 1
        count = self._lines.count()
        if count:
            self._log.warning(
                "%d requests with a wrong token or none, the last from %s", count, address
            )
