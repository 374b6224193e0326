"""What every request of the API goes through: who calls, how long its body is, and how it is
refused or answered."""

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Protocol

from pydantic import BaseModel
from tornado.iostream import StreamClosedError
from tornado.web import HTTPError, stream_request_body

from distributor.control.service import Distributor
from distributor.errors import Forbidden, NotLeading, TooMany
from distributor.http.audit import entries
from distributor.http.bodies import HELD_BYTES, SMALL_BYTES, Body, Held, Turns
from distributor.http.connections import UNREAD_SECONDS, Connections
from distributor.http.refusals import refusal, refused
from distributor.http.replica import Replica
from srtm.host.audit_log import AuditLog
from srtm.host.certificates import Renewed
from srtm.http.access import Access
from srtm.http.callers import ANYBODY, Role
from srtm.http.handler import ApiHandler
from srtm.text.errors import SrtmError

SWALLOWED_BYTES = 64 * 1024 * 1024
"""of a body that is refused: read and dropped, so that its sender sees the answer and no reset"""
_STRANGERS_BYTES = 1024 * 1024
"""Bytes of a refused body that are read and dropped where its sender has not given the token."""
_SHOWN = 500
"""characters of a fault in an answer: it quotes what was given, which may be many MiB"""

Leading = Callable[[], Distributor]
"""The service where this process leads. Raises NotLeading."""


class Closable(Protocol):
    """A connection."""

    def close(self) -> None: ...


class Shared:
    """What all requests share: who may call, where changes are logged, and bounds on how many
    requests there are and on what they hold."""

    def __init__(
        self,
        connections: Connections,
        access: Access,
        audit: AuditLog | None,
        tls: Renewed | None,
        wall_seconds: Callable[[], float],
        replica: Replica,
    ) -> None:
        self.connections = connections
        self.access = access
        self.audit = audit
        self.tls = tls
        self.wall_seconds = wall_seconds
        self.replica = replica
        self.held = Held()
        self.answers = Held()
        self.turns = Turns()
        self.lines: dict[str, Closable] = {}
        """connections that go on with reports, by broker (`reports.py`)"""


@stream_request_body
class Handler(ApiHandler):
    """Refuses as early as it can: before the body, or as soon as that is too much. `answer` is for
    requests that came whole."""

    line = "error"
    takes: tuple[str, ...] = ("GET",)
    role: Role | None
    """what a caller needs; None: nobody is asked who calls"""

    def initialize(self, leading: Leading, shared: Shared) -> None:
        self.leading = leading
        self.shared = shared
        self.caller = ANYBODY
        self.body = Body(None, shared.held)
        self.has_left = False
        self._refused = False
        self._dropped = 0
        self._dropped_most = SWALLOWED_BYTES

    def set_default_headers(self) -> None:
        super().set_default_headers()
        self.set_header("Content-Type", "application/json; charset=UTF-8")

    # --- before the body ----------------------------------------------------------------------

    def prepare(self) -> None:
        caller = self.shared.access.of_request(self.request) if self.role else ANYBODY
        if caller is None:
            self.set_header("WWW-Authenticate", "Bearer")
            self._dropped_most = _STRANGERS_BYTES
            self.refuse(HTTPStatus.UNAUTHORIZED, "show a token of --token-file as Bearer token")
            return
        self.caller = caller
        method = self.request.method or ""
        if method not in self.takes and not (method == "HEAD" and "GET" in self.takes):
            self.set_header("Allow", ", ".join(self.takes))
            words = f"no such method for this path: it takes {', '.join(self.takes)}"
            self.refuse(HTTPStatus.METHOD_NOT_ALLOWED, words)
            return
        try:
            self.check_role()
            self.expect()
            length = self.request.headers.get("Content-Length", "")
            if length.isascii() and length.isdigit():
                self.body.check(int(length[:18]))  # of thousands of digits Python makes no number
        except Exception as error:
            self.fail(error)

    def check_role(self) -> None:
        """Raises Forbidden."""
        if self.role and self.caller.role < self.role:
            raise Forbidden(
                f"{self.caller.name} has the role {self.caller.role}: {self.request.method} "
                f"{self.request.path} is for the role {self.role}"
            )

    def expect(self) -> None:
        """Set `body`. Raises what can be said before it comes."""

    # --- the body -----------------------------------------------------------------------------

    def data_received(self, chunk: bytes) -> None:
        if self._refused:
            self._dropped += len(chunk)
            if self._dropped > self._dropped_most:
                self.finish()  # which closes the connection: there is no other way to read no more
            return
        try:
            self.body.add(chunk)
        except SrtmError as error:
            self.fail(error)

    def on_connection_close(self) -> None:
        super().on_connection_close()  # ends the wait for the body
        self.has_left = True
        self.body.free()

    # --- the answer ---------------------------------------------------------------------------

    async def _serve(self, *names: str) -> None:
        if self._refused:
            self.finish()
        else:
            await self.answer(*names)

    get = post = put = delete = head = patch = options = _serve

    async def answer(self, *names: str) -> None:
        raise NotImplementedError

    def on_finish(self) -> None:
        self.body.free()
        stream = self.request.connection.stream  # type: ignore[union-attr]
        self.shared.connections.wait(stream, asyncio.get_running_loop().time())

    async def send(self, content: bytes) -> None:
        """Answer with what may be long, and count it until it is read."""
        answers = self.shared.answers
        if len(content) <= SMALL_BYTES:
            self.finish(content)
            return
        if answers.bytes + len(content) > HELD_BYTES:
            self.fail(
                TooMany(
                    f"answers that nobody has read yet hold {answers.bytes:,} bytes; what was "
                    "asked for is done, ask again what came of it"
                )
            )
            return
        answers.bytes += len(content)
        try:
            await asyncio.wait_for(self.finish(content), UNREAD_SECONDS)
        except (StreamClosedError, TimeoutError):
            self.leave()
        finally:
            answers.bytes -= len(content)

    def leave(self) -> None:
        """Cut the connection."""
        self.request.connection.stream.close()  # type: ignore[union-attr]

    def refuse(self, status: int, message: str, stands_by: bool = False) -> None:
        """Answer at once. What is still to come of the body is dropped. stands_by: another one
        leads"""
        self.body.free()
        words = " ".join(message.split())
        words = words if len(words) <= _SHOWN else f"{words[:_SHOWN]}..."
        content = refusal(words, stands_by, self.line)
        self.set_status(status)
        headers = self.request.headers
        has_body = "Transfer-Encoding" in headers or headers.get("Content-Length", "0") != "0"
        if self.came_whole or not has_body or "Expect" in headers:
            self.finish(content)
        else:
            self._refused = True
            self.set_header("Content-Length", len(content))
            self.write(content)
            self.flush()

    def note(self, body: BaseModel | None, status: HTTPStatus) -> None:
        """Tell the audit log of the request. body: what it asked for"""
        if self.shared.audit is not None:
            now, address = self.shared.wall_seconds(), self.request.remote_ip or ""
            request = f"{self.request.method} {self.request.path}"
            for line in entries(now, self.caller, address, request, body, status):
                self.shared.audit.write(line)

    @property
    def came_whole(self) -> bool:
        return self.request._body_future.done()

    def fail(self, error: Exception) -> None:
        if isinstance(error, HTTPError):
            raise error  # write_error tells it
        status, said = refused(error, f"{self.request.method} {self.request.path}")
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            self.set_header("Retry-After", "1")
        self.refuse(status, said, stands_by=isinstance(error, NotLeading))

    # --- what tornado refuses itself ----------------------------------------------------------

    def decode_argument(self, value: bytes, name: str | None = None) -> str:
        try:
            return value.decode()
        except UnicodeDecodeError:
            where = name or "the path"
            raise HTTPError(400, f"{where}: {value[:40]!r} is no UTF-8") from None

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        error = kwargs.get("exc_info", (None, None))[1]
        words = {405: "no such method"}.get(status_code, "a fault of the distributor")
        if isinstance(error, HTTPError) and error.log_message:
            words = error.log_message
        self.finish({self.line: words})

    def log_exception(self, kind: Any, error: Any, trace: Any) -> None:
        if not isinstance(error, HTTPError):  # one of those is the caller's, and is in the answer
            super().log_exception(kind, error, trace)
