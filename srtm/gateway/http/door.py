"""The HTTP door: an allow-list of nsqd's API."""

import asyncio
from typing import Any

from tornado.httputil import HTTPInputError, HTTPServerRequest
from tornado.web import Application

from srtm.gateway.host import Host
from srtm.gateway.http.arrivals import Arrivals
from srtm.gateway.http.asking import Asking
from srtm.gateway.http.audit import note, sender_of
from srtm.gateway.http.authorizing import check_publish, check_subscribe
from srtm.gateway.http.handler import PLAIN, Handler, HttpError
from srtm.gateway.http.metrics import exposition
from srtm.gateway.http.publish import TRUE, Mpub, Pub
from srtm.gateway.http.routes import ADMIN_PATHS, Answer, Route, route
from srtm.gateway.http.stats import nsqds_head, stats_document
from srtm.gateway.http.stats_text import as_text
from srtm.gateway.http.waiting import Waiting
from srtm.http.metrics import CONTENT_TYPE
from srtm.text.address import Address
from srtm.text.errors import UnavailableError

_CALLS = 4
"""of one kind that nsqd answers at a time; those that come then have their turn"""

_IN_HTML = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&#34;", "'": "&#39;"}  # Go's html package's
)


class _Ping(Handler):
    async def get(self) -> None:
        self.set_header("Content-Type", PLAIN)
        self.clear_header("X-NSQ-Content-Type")
        if self.gateway.draining:
            self.set_status(500)
            self.finish("NOK - draining")
        elif self.gateway.watch.ill:
            self.set_status(500)
            self.finish(f"NOK - {self.gateway.watch.ill}")
        else:
            self.finish("OK")


class _Info(Handler):
    async def get(self) -> None:
        gateway, options = self.gateway, self.gateway.options
        document = dict(gateway.info)
        document.update(
            broadcast_address=options.broadcast_address,
            tcp_port=Address.parse(gateway.tcp.address, lowest=0).port,
            http_port=Address.parse(gateway.http.address, lowest=0).port,
        )
        self.finish(document)


class _Metrics(Asking):
    """One scrape at a time: each takes a part of every turn of the loop."""

    async def get(self) -> None:
        stream = self.request.connection.stream  # type: ignore[union-attr]
        try:
            async with self.turn() as is_there:
                text = await exposition(self.gateway, stream.closed) if is_there else None
            if text is not None:
                self.set_header("Content-Type", CONTENT_TYPE)
                self.finish(text)
        except HttpError as error:
            self.fail(error)


class _Stats(Asking):
    async def get(self) -> None:
        try:
            self.check_query()
            async with self.turn() as is_there:
                if is_there:
                    await self._answer()
        except HttpError as error:
            self.fail(error)

    async def _answer(self) -> None:
        include = {
            name: TRUE.get(self.argument(name) or "", True)
            for name in ("include_clients", "include_mem")
        }
        document = await stats_document(
            self.gateway,
            self.argument("topic") or "",
            self.argument("channel") or "",
            **include,
        )
        if document["srtm"]["nsqd_away"]:  # whoever knows nsqd alone must not take this for idle
            self.set_status(503)
        if self.argument("format") == "json":
            self.finish(document)
        else:
            head = await nsqds_head(self.gateway, document)
            self.set_header("Content-Type", PLAIN)
            self.finish(as_text(document, head))


class _Admin(Asking):
    """nsqd's own topic and channel calls, passed on only with --http-admin."""

    _sender = ""

    async def post(self) -> None:
        self._sender = sender_of(self.request)
        if not self.gateway.options.http_admin:
            # Not 403: nsqadmin takes that for a broker that wants TLS, asks again by https, and
            # shows what becomes of that. An empty Allow: switched off by configuration (RFC 9110).
            self.set_header("Allow", "")
            self.fail(HttpError(405, "FORBIDDEN: start the gateway with --http-admin"))
            return
        try:
            self.check_query()
            await self._check_allowed()
            async with self.turn() as is_there:
                if is_there:
                    await self._pass_on()
        except UnavailableError as error:
            self.fail(HttpError(502, str(error)))
        except HttpError as error:
            self.fail(error)

    def on_finish(self) -> None:
        super().on_finish()
        if self.gateway.options.http_admin and self.request.method == "POST":
            asked = {name: self.argument(name) for name in ("topic", "channel")}
            note(self.gateway, self.request, self._sender, asked, self.get_status())

    async def _pass_on(self) -> None:
        path = self.request.path
        response = await self.gateway.nsqd_http.call("POST", f"{path}?{self.request.query}")
        if path == "/topic/delete" and response.status == 200:
            self.gateway.topics.deleted(self.argument("topic") or "")
        self.set_status(response.status)
        if response.body:
            self.set_header("Content-Type", "application/json; charset=utf-8")
        self.finish(response.body)

    async def _check_allowed(self) -> None:
        """Raises HttpError. What is missing is nsqd's to refuse."""
        topic, channel = self.argument("topic") or "", self.argument("channel") or ""
        if self.request.path.startswith("/channel/"):
            await check_subscribe(self, topic, channel)
        else:
            await check_publish(self, "PUB", topic)


class _TlsRequired(Handler):
    """What is asked without TLS where that is required, whatever it is, /ping too."""

    async def get(self) -> None:
        address = self.gateway.http.https_address
        port = Address.parse(address).port if address else 0
        self.set_status(403)
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.finish(f'{{"message": "TLS_REQUIRED", "https_port": {port}}}')

    head = get


class _Elsewhere(Handler):
    """What has no handler is answered alike, whatever its method."""

    def initialize(  # type: ignore[override]
        self, gateway: Host, waiting: Waiting, found: Route, method: str
    ) -> None:
        super().initialize(gateway, waiting)
        self._found = found
        self._method = method

    async def get(self) -> None:
        found = self._found
        if found.answer is Answer.MOVED:
            self._redirect()
        elif found.answer is Answer.OPTIONS:
            self.clear_header("X-NSQ-Content-Type")
            if found.elsewhere:
                self.set_header("Allow", found.elsewhere)
            self.finish()
        elif found.answer is Answer.NOT_ALLOWED:
            self.set_header("Allow", found.elsewhere)
            self.fail(HttpError(405, "METHOD_NOT_ALLOWED"))
        else:
            self.fail(HttpError(404, "NOT_FOUND"))

    head = get

    def _redirect(self) -> None:
        """Answer with a redirect, as Go's http.Redirect does."""
        where = self._found.elsewhere
        self.clear_header("X-NSQ-Content-Type")
        self.set_header("Location", where)
        if self._method != "GET":
            self.set_status(307)
            self.finish()
            return
        self.set_status(301)
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.finish(f'<a href="{where.translate(_IN_HTML)}">Moved Permanently</a>.\n\n')


class _Door(Application):
    """Finds handlers by `route`."""

    def __init__(self, gateway: Host, waiting: Waiting, asking: Waiting) -> None:
        """waiting: who publishes; asking: who waits for a call of nsqd's"""
        super().__init__(log_function=lambda handler: None)
        self._requires_tls = gateway.options.http_requires_tls
        self._shared = {"gateway": gateway, "waiting": waiting}
        stats, admin = ({"turns": asyncio.Semaphore(_CALLS), "waiting": asking} for _ in range(2))
        self._handlers: dict[str, tuple[type[Handler], dict[str, Any]]] = {
            "/pub": (Pub, {}),
            "/mpub": (Mpub, {}),
            "/ping": (_Ping, {}),
            "/info": (_Info, {}),
            "/stats": (_Stats, stats),
            "/arrivals": (Arrivals, {"turns": asyncio.Semaphore(1), "waiting": asking}),
            "/metrics": (_Metrics, {"turns": asyncio.Semaphore(1), "waiting": asking}),
            **dict.fromkeys(ADMIN_PATHS, (_Admin, admin)),
        }

    def find_handler(self, request: HTTPServerRequest, **_: Any) -> Any:
        method = request.method or ""
        if self._requires_tls and request.protocol != "https":
            if method != "HEAD":
                request.method = "GET"
            return self.get_handler_delegate(request, _TlsRequired, self._shared)
        found = route(method, request.uri or "")
        if found.answer is Answer.BAD:
            raise HTTPInputError(f"{request.uri}: a broken percent escape")
        if found.answer is None:
            request.path = found.path
            kind, more = self._handlers[found.path]
        else:
            kind, more = _Elsewhere, {"found": found, "method": method}
            if method != "HEAD":
                request.method = "GET"
        return self.get_handler_delegate(request, kind, {**self._shared, **more})


def door_application(gateway: Host, waiting: Waiting, asking: Waiting) -> Application:
    return _Door(gateway, waiting, asking)
