"""/ping, /stats and /metrics of a program, and what it is told by POST of JSON.

With a file of callers, /stats and /metrics are for the role `read`, and a POST for the role
`agent`; /ping is for everybody.
"""

import asyncio
import json
import logging
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tornado.httpserver import HTTPServer
from tornado.iostream import IOStream
from tornado.web import Application

from srtm.host.certificates import LOOK_SECONDS, Renewed, TlsFiles
from srtm.http.access import Access
from srtm.http.callers import ANYBODY, Role
from srtm.http.handler import ApiHandler
from srtm.http.metrics import CONTENT_TYPE, Text
from srtm.http.server import PatientServer
from srtm.text.address import Address

_MAX_HEAD_BYTES = 8 * 1024
_MAX_BODY_BYTES = 1024 * 1024
_MOST_CONNECTIONS = 100
"""The most connections. More are closed at once: each takes a descriptor that the program needs for
its work."""


log = logging.getLogger("srtm.http")


class Door(Protocol):
    """The options of a program's HTTP door."""

    @property
    def http_address(self) -> Address | None: ...
    @property
    def token_file(self) -> str: ...
    @property
    def tls_files(self) -> TlsFiles | None: ...
    @property
    def requires_certificates(self) -> bool: ...


class Status(Protocol):
    """Who is asked. fault: "" while all is well."""

    def fault(self) -> str: ...

    def stats(self) -> dict[str, Any]: ...

    def metrics(self) -> Text: ...


Posts = Mapping[str, Callable[[Any], dict[str, Any]]]
"""path -> what takes a JSON document that is posted there, and answers; it raises ValueError for
one that is wrong"""


class StatusServer(PatientServer):
    def follow(self, access: Access, tls: Renewed | None) -> None:
        """Follow the files of certificates and callers, from now on until the loop ends."""

        def look() -> None:
            if tls is not None:
                self.renew(tls)
            access.look()
            loop.call_later(LOOK_SECONDS, look)

        loop = asyncio.get_running_loop()
        loop.call_later(LOOK_SECONDS, look)

    def handle_stream(self, stream: IOStream, address: tuple[Any, ...]) -> None:
        if len(self._connections) >= _MOST_CONNECTIONS:
            stream.close()
            return
        super().handle_stream(stream, address)


def listen(door: Door, told: Status, posts: Posts | None = None) -> HTTPServer:
    """A server of what `told` says, at the door's address. Raises OSError where nobody can listen
    there, UsageError for a file that is wrong."""
    assert door.http_address is not None
    tls = Renewed.of(door.tls_files)
    access = Access(door.token_file, "token-file", log, door.requires_certificates)
    server = status_server(told, access, None if tls is None else tls.context, posts)
    server.listen(door.http_address.port, door.http_address.host or None)
    server.follow(access, tls)
    return server


def status_server(
    told: Status,
    access: Access | None = None,
    tls: ssl.SSLContext | None = None,
    posts: Posts | None = None,
) -> StatusServer:
    """A server of what `told` says. It listens nowhere yet. access: None: everybody may ask"""

    class Handler(ApiHandler):
        def prepare(self) -> None:
            caller = access.of_request(self.request) if access else ANYBODY
            if self.request.path == "/ping":
                return
            if caller is None:
                self.set_header("WWW-Authenticate", "Bearer")
                self.refuse(401, "UNAUTHORIZED")
            elif self.request.method == "POST" and caller.role < Role.AGENT:
                self.refuse(403, f"FORBIDDEN: role {caller.role} may not post; {Role.AGENT} may")

        def get(self) -> None:
            if self.request.path == "/ping":
                fault = told.fault()
                self.set_status(500 if fault else 200)
                self.set_header("Content-Type", "text/plain; charset=utf-8")
                self.finish(f"NOK - {fault}" if fault else "OK")
            elif self.request.path == "/stats":
                self.finish(told.stats())
            elif self.request.path == "/metrics":
                self.set_header("Content-Type", CONTENT_TYPE)
                self.finish(told.metrics().encode())
            else:
                self.refuse(404, "NOT_FOUND")

        def post(self) -> None:
            take = (posts or {}).get(self.request.path)
            if take is None:
                known = self.request.path in ("/ping", "/stats", "/metrics")
                self.refuse(405 if known else 404, "METHOD_NOT_ALLOWED" if known else "NOT_FOUND")
                return
            try:
                document = json.loads(self.request.body)
                self.finish(take(document))
            except (ValueError, RecursionError) as error:
                self.refuse(400, " ".join(str(error).split())[:300])

        def log_exception(self, *_: Any) -> None:
            return None

    return StatusServer(
        Application([(r"/.*", Handler)], log_function=lambda _: None),
        ssl_options=tls,
        max_header_size=_MAX_HEAD_BYTES,
        max_body_size=_MAX_BODY_BYTES if posts else 1024,  # nobody has to send one
        idle_connection_timeout=75,
        body_timeout=5,
    )
