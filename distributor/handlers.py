"""HTTP in front of the service: bodies in, JSON out, every refusal one line."""

import asyncio
import json
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from tornado.iostream import StreamClosedError
from tornado.web import Application, RequestHandler, stream_request_body

from distributor import api
from distributor.access import allowed
from distributor.errors import NotLeading, status_of
from distributor.metrics import exposition
from distributor.openapi import document
from distributor.routes import PREFIX, ROUTES, WATCH, Call, Route
from distributor.service import Distributor
from srtm.errors import SrtmError, UsageError, one_line

log = logging.getLogger("srtm.distributor")

MAX_BODY_BYTES = 16 * 1024 * 1024
SWALLOWED_BYTES = 64 * 1024 * 1024
"""of a body that is too long: read and dropped, so that its sender sees the answer and no reset"""
BEAT_SECONDS = 10.0
_STALLED_SECONDS = 30.0
"""a watcher that reads nothing for so long is left; it can come back"""
_LINES = 500
"""of a watch in one write"""
_SHOWN = 500
"""characters of a fault in a body"""

Body = TypeVar("Body", bound=BaseModel)
Leading = Callable[[], Distributor]
"""The service where this process leads. Raises NotLeading."""


@stream_request_body
class _Handler(RequestHandler):
    def initialize(self, leading: Leading, token: str | None, **_: Any) -> None:
        self.leading = leading
        self.token = token
        self._chunks: list[bytes] = []
        self._size = 0

    def set_default_headers(self) -> None:
        self.set_header("Server", "srtm")
        self.set_header("Content-Type", "application/json; charset=UTF-8")

    def prepare(self) -> None:
        if not allowed(self.request.headers.get("Authorization"), self.token):
            self.set_header("WWW-Authenticate", "Bearer")
            self.refuse(HTTPStatus.UNAUTHORIZED, "give the token of --token-file as Bearer token")

    def data_received(self, chunk: bytes) -> None:
        self._size += len(chunk)
        if self._size <= MAX_BODY_BYTES:
            self._chunks.append(chunk)
        else:
            self._chunks.clear()

    def refuse(self, status: int, message: str) -> None:
        self.set_status(status)
        self.finish(json.dumps({"error": message}))

    def fail(self, error: Exception) -> None:
        status = status_of(error)
        if status == HTTPStatus.INTERNAL_SERVER_ERROR:
            log.error("%s %s", self.request.method, self.request.path, exc_info=error)
            self.refuse(status, "a fault of the distributor; its log has more")
        else:
            if status == HTTPStatus.SERVICE_UNAVAILABLE:
                self.set_header("Retry-After", "1")
            self.refuse(status, str(error))

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        words = {405: "no such method for this path"}
        self.finish(json.dumps({"error": words.get(status_code, "a fault of the distributor")}))

    def read(self, model: type[Body]) -> Body:
        """The body. Raises UsageError that names the field."""
        where = f"{self.request.method} {self.request.path}"
        body = b"".join(self._chunks)
        self._chunks.clear()
        try:
            return model.model_validate_json(body)
        except ValidationError as error:
            raise _short(one_line(error, where)) from None

    def too_long(self) -> bool:
        if self._size > MAX_BODY_BYTES:
            self.refuse(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"the body is longer than {MAX_BODY_BYTES:,} bytes; send it in parts",
            )
        return self._size > MAX_BODY_BYTES


class _Json(_Handler):
    """All methods of one path."""

    def initialize(  # type: ignore[override]
        self, leading: Leading, token: str | None, routes: dict[str, Route]
    ) -> None:
        super().initialize(leading, token)
        self._routes = routes

    async def _answer(self, *names: str) -> None:
        method = self.request.method or ""
        route = self._routes.get("GET" if method == "HEAD" else method)
        if route is None:
            self.set_header("Allow", ", ".join(sorted(self._routes)))
            self.refuse(
                HTTPStatus.METHOD_NOT_ALLOWED, f"this path takes {', '.join(sorted(self._routes))}"
            )
            return
        if self.too_long():
            return
        try:
            service = self.leading()
            body = None if route.body is None else self.read(route.body)
            answer = await route.call(service, Call(names, body))
        except Exception as error:
            self.fail(error)
        else:
            self.finish(answer.model_dump_json())

    get = post = put = delete = head = _answer


class _Watch(_Handler):
    async def get(self, topic: str) -> None:
        ids = self.get_query_arguments("id", strip=False)
        await self._stream(topic, lambda: api.WatchAsked.model_validate({"ids": ids}))

    async def post(self, topic: str) -> None:
        if not self.too_long():
            await self._stream(topic, lambda: self.read(api.WatchAsked))

    async def _stream(self, topic: str, asked: Callable[[], api.WatchAsked]) -> None:
        try:
            service = self.leading()
            ids = asked().ids
            service.topic(topic)
            watch = service.watches.add(topic, ids)
        except ValidationError as error:
            self.fail(_short(one_line(error, f"GET {self.request.path}")))
            return
        except Exception as error:
            self.fail(error)
            return
        self.watch, self.service = watch, service
        self.set_header("Content-Type", "application/x-ndjson")
        try:
            while not watch.ended:
                if await watch.wait(BEAT_SECONDS):
                    for each in watch.take(_LINES):
                        self.write(service.place_of(topic, each).model_dump_json() + "\n")
                else:
                    self.write('{"beat": true}\n')
                if self._write_buffer:
                    await asyncio.wait_for(self.flush(), _STALLED_SECONDS)
        except (StreamClosedError, TimeoutError):
            pass
        finally:
            service.watches.remove(watch)
            if not self._finished:
                self._leave()

    def _leave(self) -> None:
        """Not the end of the stream, as clients must come back: cut off."""
        self.request.connection.stream.close()  # type: ignore[union-attr]

    def on_connection_close(self) -> None:
        if hasattr(self, "watch"):
            self.watch.end()
            self.service.watches.remove(self.watch)


class _Health(_Handler):
    def prepare(self) -> None:
        """Whoever watches over the process needs no token."""

    async def get(self) -> None:
        try:
            self.leading()
        except SrtmError as error:
            answer = api.Health(leading=False, detail=str(error))
        else:
            answer = api.Health(leading=True, detail="leads")
        self.finish(answer.model_dump_json())


class _Metrics(_Handler):
    async def get(self) -> None:
        try:
            service = self.leading()
        except NotLeading:
            service = None
        self.set_header("Content-Type", "text/plain; version=0.0.4; charset=UTF-8")
        self.finish(exposition(service))


class _OpenApi(_Handler):
    async def get(self) -> None:
        self.finish(json.dumps(document(), indent=1))


class _Missing(_Handler):
    async def _answer(self) -> None:
        path = self.request.path
        self.refuse(HTTPStatus.NOT_FOUND, f"no such path: {path}; see {PREFIX}/openapi.json")

    get = post = put = delete = head = _answer


def _short(error: UsageError) -> UsageError:
    """It quotes what was given, which may be a body of many MiB."""
    text = str(error)
    return error if len(text) <= _SHOWN else UsageError(f"{text[:_SHOWN]}...")


def application(leading: Leading, token: str | None) -> Application:
    shared = {"leading": leading, "token": token}
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
