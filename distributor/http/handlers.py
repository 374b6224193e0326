"""The paths of the API: JSON in and out, watches, metrics and the API's description."""

import asyncio
import json
from http import HTTPStatus
from math import ceil

from pydantic import BaseModel, ValidationError
from tornado.iostream import StreamClosedError
from tornado.web import Application, RequestHandler

from distributor import api
from distributor.control.places import place_of
from distributor.control.service import Distributor
from distributor.control.watches import Watch
from distributor.errors import Forbidden, NotFound, NotLeading, TooMany, status_of
from distributor.http.bodies import SMALL_BYTES, Body
from distributor.http.connections import UNREAD_SECONDS
from distributor.http.handler import Handler, Leading, Shared
from distributor.http.metrics import exposition
from distributor.http.openapi import document
from distributor.http.reports import Reports
from distributor.http.routes import (
    PREFIX,
    REPORTS,
    ROUTES,
    WATCH,
    WATCH_ROLE,
    Call,
    Route,
    pattern_of,
)
from srtm.http.callers import Role
from srtm.http.metrics import CONTENT_TYPE
from srtm.text.errors import SrtmError, one_line

_REPORT_SECONDS = 5.0
"""for a report's body; its gateway has given up after 2 s"""
BEAT_SECONDS = 10.0
_LINES = 500
"""of a watch in one write"""


class _Json(Handler):
    """The handler of all methods of one path."""

    def initialize(  # type: ignore[override]
        self, leading: Leading, shared: Shared, routes: dict[str, Route]
    ) -> None:
        super().initialize(leading, shared)
        self._age_seconds: float | None = None  # of what is answered; None: it is the leader's
        self.takes = tuple(sorted(routes))
        method = self.request.method or ""
        # Of a method that is not taken the caller learns so whatever its role.
        self._route = routes.get("GET" if method == "HEAD" else method) or next(
            iter(routes.values())
        )
        self.role = self._route.role

    def check_role(self) -> None:
        try:
            super().check_role()
        except Forbidden:
            self._note(None, HTTPStatus.FORBIDDEN)
            raise

    def expect(self) -> None:
        if not self._may_be_stale:
            self.leading()
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
            await self.send(self._content(answer))

    @property
    def _may_be_stale(self) -> bool:
        """May who stands by answer?"""
        return self._route.is_stored and self.get_query_argument("stale", "") == "yes"

    async def _service(self) -> Distributor:
        """Raises NotLeading."""
        try:
            return self.leading()
        except NotLeading:
            if not self._may_be_stale:
                raise
        read = await self.shared.replica.read()
        self._age_seconds = max(0.0, read.service.now() - read.at)
        self.set_header("Age", ceil(self._age_seconds))
        return read.service

    def _content(self, answer: BaseModel) -> bytes:
        if self._age_seconds is None:
            return answer.model_dump_json().encode()
        document = answer.model_dump(mode="json")
        return json.dumps({"age_seconds": round(self._age_seconds, 3), **document}).encode()

    async def _call(self, names: tuple[str, ...]) -> BaseModel | None:
        """What the route answers; None: the call failed, and that is told."""
        body: BaseModel | None = None
        try:
            service = await self._service()
            body = self.body.read(f"{self.request.method} {self.request.path}")
            after = self.get_query_argument("after", "", strip=False)
            call = Call(names, body, after)
            self._route.check_broker(self.caller, call)
            answer = await self._route.call(service, call)
        except Exception as error:
            self._note(body, status_of(error))
            self.fail(error)
            return None
        self._note(body, HTTPStatus.OK)
        return answer

    def _note(self, body: BaseModel | None, status: HTTPStatus) -> None:
        """Tell the audit log of a change, of one that was refused, and of a report for another
        broker."""
        route = self._route
        is_stopped = status is HTTPStatus.FORBIDDEN and route.method != "GET"
        if route.is_change or is_stopped:
            self.note(body, status)


class _Watch(Handler):
    takes = ("GET", "POST")
    role = WATCH_ROLE
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
            while not watch.ended and not self.has_left and self._may_go_on():
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

    def _may_go_on(self) -> bool:
        """Is the caller who it was at the beginning? Its token may have been taken out since."""
        return self.shared.access.peek(self.request) == self.caller

    def on_connection_close(self) -> None:
        super().on_connection_close()
        if self.watch is not None:
            self.watch.end()
            self.service.watches.remove(self.watch)


class _Health(Handler):
    role = None  # whoever watches over the process has no token

    async def answer(self) -> None:  # type: ignore[override]
        try:
            service = self.leading()
        except SrtmError as error:
            answer = api.Health(leading=False, detail=str(error))
        else:
            answer = api.Health(leading=True, detail="leads", warnings=service.warnings())
        self.finish(answer.model_dump_json())


class _Metrics(Handler):
    role = Role.READ

    async def answer(self) -> None:  # type: ignore[override]
        try:
            service = self.leading()
        except NotLeading:
            service = None
        self.set_header("Content-Type", CONTENT_TYPE)
        await self.send(exposition(service, self.shared).encode())


class _OpenApi(Handler):
    role = Role.READ

    async def answer(self) -> None:  # type: ignore[override]
        await self.send(json.dumps(document(), indent=1).encode())


class _Missing(Handler):
    role = Role.READ
    takes = RequestHandler.SUPPORTED_METHODS

    def expect(self) -> None:
        raise NotFound(f"no such path: {self.request.path}; see {PREFIX}/openapi.json")


def application(leading: Leading, shared: Shared) -> Application:
    both = {"leading": leading, "shared": shared}
    by_pattern: dict[str, dict[str, Route]] = {}
    for route in ROUTES:
        by_pattern.setdefault(route.pattern, {})[route.method] = route
    return Application(
        [
            *((pattern, _Json, {**both, "routes": its}) for pattern, its in by_pattern.items()),
            (pattern_of(WATCH), _Watch, both),
            (pattern_of(REPORTS), Reports, both),
            (f"{PREFIX}/health", _Health, both),
            (f"{PREFIX}/openapi.json", _OpenApi, both),
            (r"/metrics", _Metrics, both),
        ],
        default_handler_class=_Missing,
        default_handler_args=both,
        log_function=lambda handler: None,
    )
