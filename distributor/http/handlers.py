"""HTTP in front of the service: bodies in, JSON out, every refusal one line."""

import asyncio
import json
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, ValidationError
from tornado.iostream import StreamClosedError
from tornado.web import Application, HTTPError, RequestHandler, stream_request_body

from distributor import api
from distributor.control.places import place_of
from distributor.control.service import Distributor
from distributor.control.watches import Watch
from distributor.errors import NotFound, NotLeading, TooMany, status_of
from distributor.http.access import allowed
from distributor.http.bodies import HELD_BYTES, SMALL_BYTES, Body, Held, Turns
from distributor.http.connections import UNREAD_SECONDS, Connections
from distributor.http.metrics import exposition
from distributor.http.openapi import document
from distributor.http.routes import PREFIX, ROUTES, WATCH, Call, Route
from srtm.http.handler import ApiHandler
from srtm.http.metrics import CONTENT_TYPE
from srtm.text.errors import SrtmError, one_line

log = logging.getLogger("srtm.distributor")

SWALLOWED_BYTES = 64 * 1024 * 1024
"""of a body that is refused: read and dropped, so that its sender sees the answer and no reset"""
_STRANGERS_BYTES = 1024 * 1024
"""Bytes of a refused body that are read and dropped where its sender has not given the token."""
_REPORT_SECONDS = 5.0
"""for a report's body; its gateway has given up after 2 s"""
BEAT_SECONDS = 10.0
_LINES = 500
"""of a watch in one write"""
_SHOWN = 500
"""characters of a fault in an answer: it quotes what was given, which may be many MiB"""

Leading = Callable[[], Distributor]
"""The service where this process leads. Raises NotLeading."""


class Shared:
    """What all requests share: bounds on how many there are and on what they hold."""

    def __init__(self, connections: Connections) -> None:
        self.connections = connections
        self.held = Held()
        self.answers = Held()
        self.turns = Turns()


@stream_request_body
class _Handler(ApiHandler):
    """Refuses as early as it can: before the body, or as soon as that is too much. `answer` is for
    requests that came whole."""

    line = "error"
    takes: tuple[str, ...] = ("GET",)
    needs_token = True

    def initialize(self, leading: Leading, token: str | None, shared: Shared) -> None:
        self.leading = leading
        self.token = token
        self.shared = shared
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
        if self.needs_token and not allowed(self.request.headers.get("Authorization"), self.token):
            self.set_header("WWW-Authenticate", "Bearer")
            self._dropped_most = _STRANGERS_BYTES
            self.refuse(HTTPStatus.UNAUTHORIZED, "give the token of --token-file as Bearer token")
            return
        method = self.request.method or ""
        if method not in self.takes and not (method == "HEAD" and "GET" in self.takes):
            self.set_header("Allow", ", ".join(self.takes))
            words = f"no such method for this path: it takes {', '.join(self.takes)}"
            self.refuse(HTTPStatus.METHOD_NOT_ALLOWED, words)
            return
        try:
            self.expect()
            length = self.request.headers.get("Content-Length", "")
            if length.isascii() and length.isdigit():
                self.body.check(int(length[:18]))  # of thousands of digits Python makes no number
        except Exception as error:
            self.fail(error)

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

    def refuse(self, status: int, message: str) -> None:
        """Answer at once. What is still to come of the body is dropped."""
        self.body.free()
        words = " ".join(message.split())
        words = words if len(words) <= _SHOWN else f"{words[:_SHOWN]}..."
        content = json.dumps({self.line: words}).encode()
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

    @property
    def came_whole(self) -> bool:
        return self.request._body_future.done()

    def fail(self, error: Exception) -> None:
        if isinstance(error, HTTPError):
            raise error  # write_error tells it
        status = status_of(error)
        if status == HTTPStatus.INTERNAL_SERVER_ERROR:
            log.error("%s %s", self.request.method, self.request.path, exc_info=error)
            self.refuse(status, "a fault of the distributor; its log has more")
        else:
            if status == HTTPStatus.SERVICE_UNAVAILABLE:
                self.set_header("Retry-After", "1")
            self.refuse(status, str(error))

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


class _Json(_Handler):
    """The handler of all methods of one path."""

    def initialize(  # type: ignore[override]
        self, leading: Leading, token: str | None, shared: Shared, routes: dict[str, Route]
    ) -> None:
        super().initialize(leading, token, shared)
        self.takes = tuple(sorted(routes))
        self._routes = routes

    def expect(self) -> None:
        self.leading()
        method = self.request.method or ""
        self._route = self._routes["GET" if method == "HEAD" else method]
        self.body = Body(self._route.body, self.shared.held)
        if self.body.is_report:
            self.request.connection.set_body_timeout(_REPORT_SECONDS)  # type: ignore[union-attr]

    async def answer(self, *names: str) -> None:
        if self.body.size <= SMALL_BYTES:
            answer = await self._call(names)
        else:
            async with self.shared.turns.take(self.body.is_report):
                answer = None if self.has_left else await self._call(names)
        if answer is not None:  # its turn is over: a client may take long to read it
            await self.send(answer.model_dump_json().encode())

    async def _call(self, names: tuple[str, ...]) -> BaseModel | None:
        """What the route answers; None: the call failed, and that is told."""
        try:
            service = self.leading()
            body = self.body.read(f"{self.request.method} {self.request.path}")
            after = self.get_query_argument("after", "", strip=False)
            return await self._route.call(service, Call(names, body, after))
        except Exception as error:
            self.fail(error)
            return None


class _Watch(_Handler):
    takes = ("GET", "POST")
    service: Distributor
    watch: Watch | None = None

    def expect(self) -> None:
        self.leading()
        if not self.shared.connections.has_room_to_watch:
            raise TooMany("so many watches are open that reports have just room; watch later")
        if self.request.method == "POST":
            self.body = Body(api.WatchAsked, self.shared.held)

    async def answer(self, topic: str) -> None:  # type: ignore[override]
        try:
            if self.body.size <= SMALL_BYTES:
                watch = self._begin(topic)
            else:
                async with self.shared.turns.take(is_report=False):
                    watch = self._begin(topic)
        except Exception as error:
            self.fail(error)
        else:
            await self._stream(topic, watch)

    def _begin(self, topic: str) -> Watch:
        """Raises what `fail` tells."""
        service = self.leading()
        service.topic(topic)
        where = f"{self.request.method} {self.request.path}"
        if self.request.method == "POST":
            asked = self.body.read(where)
            self.body.free()
        else:
            try:
                ids = self.get_query_arguments("id", strip=False)
                asked = api.WatchAsked.model_validate({"ids": ids})
            except ValidationError as error:
                raise one_line(error, where) from None
        assert isinstance(asked, api.WatchAsked)
        watch = service.watches.add(topic, asked.ids)
        self.service, self.watch = service, watch
        return watch

    async def _stream(self, topic: str, watch: Watch) -> None:
        service = self.service
        self.set_header("Content-Type", "application/x-ndjson")
        try:
            while not watch.ended and not self.has_left:
                if await watch.wait(BEAT_SECONDS):
                    for each in watch.take(_LINES):
                        self.write(place_of(service.state, topic, each).model_dump_json() + "\n")
                else:
                    self.write('{"beat": true}\n')
                if self._write_buffer:
                    await asyncio.wait_for(self.flush(), UNREAD_SECONDS)
        except (StreamClosedError, TimeoutError):
            pass
        finally:
            service.watches.remove(watch)
            if not self._finished:
                self.leave()  # not the end of the stream, as clients must come back

    def on_connection_close(self) -> None:
        super().on_connection_close()
        if self.watch is not None:
            self.watch.end()
            self.service.watches.remove(self.watch)


class _Health(_Handler):
    needs_token = False  # whoever watches over the process has none

    async def answer(self) -> None:  # type: ignore[override]
        try:
            service = self.leading()
        except SrtmError as error:
            answer = api.Health(leading=False, detail=str(error))
        else:
            answer = api.Health(leading=True, detail="leads", warnings=service.warnings())
        self.finish(answer.model_dump_json())


class _Metrics(_Handler):
    async def answer(self) -> None:  # type: ignore[override]
        try:
            service = self.leading()
        except NotLeading:
            service = None
        self.set_header("Content-Type", CONTENT_TYPE)
        await self.send(exposition(service).encode())


class _OpenApi(_Handler):
    async def answer(self) -> None:  # type: ignore[override]
        await self.send(json.dumps(document(), indent=1).encode())


class _Missing(_Handler):
    takes = RequestHandler.SUPPORTED_METHODS

    def expect(self) -> None:
        raise NotFound(f"no such path: {self.request.path}; see {PREFIX}/openapi.json")


def application(leading: Leading, token: str | None, connections: Connections) -> Application:
    shared = {"leading": leading, "token": token, "shared": Shared(connections)}
    by_pattern: dict[str, dict[str, Route]] = {}
    for route in ROUTES:
        by_pattern.setdefault(route.pattern, {})[route.method] = route
    watch = Route("GET", WATCH, "", None, api.Done, (), ROUTES[0].call).pattern
    return Application(
        [
            *((pattern, _Json, {**shared, "routes": its}) for pattern, its in by_pattern.items()),
            (watch, _Watch, shared),
            (f"{PREFIX}/health", _Health, shared),
            (f"{PREFIX}/openapi.json", _OpenApi, shared),
            (r"/metrics", _Metrics, shared),
        ],
        default_handler_class=_Missing,
        default_handler_args=shared,
        log_function=lambda handler: None,
    )
