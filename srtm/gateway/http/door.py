"""The HTTP door: an allow-list of nsqd's API, with /pub and /mpub through the topic's bucket."""

import asyncio
import re
from contextlib import nullcontext
from math import inf
from typing import Any

from tornado.web import Application, stream_request_body

from srtm.address import Address
from srtm.api_handler import ApiHandler
from srtm.clock import monotonic_ns
from srtm.errors import UnavailableError
from srtm.gateway.backlog import Backlog
from srtm.gateway.host import Host
from srtm.gateway.http.metrics import exposition
from srtm.gateway.http.stats import as_text, stats_document
from srtm.gateway.reactor import Reactor
from srtm.gateway.run import Run
from srtm.gateway.tcp_door import MAX_HTTP_CONNECTIONS
from srtm.nsq.commands import BIG_BODY_BYTES, check_mpub, message
from srtm.nsq.errors import ERRORS, ProtocolError
from srtm.nsq.names import is_valid_topic_name

_MAX_SWALLOWED_BYTES = 64 * 1024 * 1024
"""Of a body that is too big: read and dropped, so that its sender sees the answer and no reset."""
_FOR_OTHERS = 16
"""Connections that publishes which wait for their tokens leave to /ping, /metrics and the like."""
_LONGEST_NUMBER = 16  # digits of a length that is read at all
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_BAD_QUERY = re.compile(r";|%(?![0-9a-fA-F]{2})")
"""What Go's url.ParseQuery refuses."""
_TRUE = {"1": True, "true": True, "0": False, "false": False}
ADMIN_PATHS = tuple(
    f"/{noun}/{verb}"
    for noun in ("topic", "channel")
    for verb in ("create", "delete", "empty", "pause", "unpause")
)


class HttpError(Exception):
    """A status and nsqd's word for it."""

    def __init__(self, status: int, message: str, retry_seconds: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_seconds = retry_seconds


class _Left(Exception):
    """Its sender has gone: nobody is answered."""


class Request:
    """One HTTP publish: the owner of its run."""

    def __init__(self, reactor: Reactor, publisher: str) -> None:
        self.publisher = publisher
        self._reactor = reactor
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settle(self, run: Run, count: int) -> None:
        if not run.left:
            self._finish(None)

    def refuse(self, run: Run, retry_seconds: float | None) -> None:
        assert run.refused is not None
        status = ERRORS[run.refused.code].http_status if retry_seconds is None else 429
        self._finish(HttpError(status, str(run.refused), retry_seconds))

    def lose(self, run: Run) -> None:
        self._finish(HttpError(504, "OUTCOME_UNKNOWN: nsqd went away before it answered"))

    def pause(self, reason: object) -> None:
        """Nothing more comes from this request anyway."""

    def resume(self, reason: object) -> None:
        pass

    def leave(self) -> None:
        """The connection is closed. What nsqd has been sent goes on."""
        self._finish(_Left())

    def _finish(self, error: Exception | None) -> None:
        if self.done.done():
            return
        self._reactor.let_asyncio_run()
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)


class _Handler(ApiHandler):
    gateway: Host

    def initialize(self, gateway: Host) -> None:
        self.gateway = gateway

    def set_default_headers(self) -> None:
        super().set_default_headers()
        self.set_header("X-NSQ-Content-Type", "nsq; version=1.0")

    def fail(self, error: HttpError) -> None:
        if error.retry_seconds is not None and error.retry_seconds < inf:
            self.set_header("Retry-After", str(max(1, round(error.retry_seconds + 0.5))))
        self.refuse(error.status, error.message)

    def argument(self, name: str) -> str | None:
        values = self.request.query_arguments.get(name)
        return values[0].decode("utf-8", "replace") if values else None


@stream_request_body
class _Publish(_Handler):
    def prepare(self) -> None:
        self.size = 0
        self._chunks: list[bytes] = []
        self._full = False  # the topic has no room for this body: it is dropped as it comes
        self._waits: Request | None = None
        self._expects(self._announced_bytes())
        self.gateway.uploads.add(self)
        self.request.connection.set_max_body_size(_MAX_SWALLOWED_BYTES)  # type: ignore[union-attr]

    def data_received(self, chunk: bytes) -> None:
        self.size += len(chunk)
        if self.size <= self._largest and not self._full:
            self._chunks.append(chunk)
        else:
            self._chunks.clear()

    @property
    def _largest(self) -> int:
        limits = self.gateway.limits
        return max(limits.max_body_size, limits.max_msg_size)

    def _announced_bytes(self) -> int:
        """At most; a chunked body may have any number."""
        headers = self.request.headers
        length = headers.get("Content-Length", "")
        if length.isdecimal() and len(length) < _LONGEST_NUMBER:
            return int(length)
        return self._largest if "Transfer-Encoding" in headers else 0

    def _expects(self, size: int) -> None:
        """A big body counts in its topic's bound from here on (see `Bodies`)."""
        self._backlog: Backlog | None = None
        name = (self.argument("topic") or "").encode()
        if not BIG_BODY_BYTES < size <= self._largest or not is_valid_topic_name(name):
            return
        topic = self.gateway.topics.find(name)
        if topic is not None:
            if topic.backlog.body_may_come(self, size, monotonic_ns()):
                self._backlog = topic.backlog
            else:
                self._full = True

    def resume(self, reason: object) -> None:
        """It never waits: its sender is told to come again."""

    def _take_body(self) -> bytes:
        """It has come, or its sender has gone."""
        body = b"".join(self._chunks)
        self._chunks.clear()
        self.gateway.uploads.discard(self)
        if self._backlog is not None:
            self._backlog.body_ended(self)
            self._backlog = None
        return body

    @property
    def partial_bytes(self) -> int:
        """Of a body that has not come whole."""
        return sum(map(len, self._chunks))

    def close(self) -> None:
        self.request.connection.stream.close()  # type: ignore[union-attr]

    def on_connection_close(self) -> None:
        self._take_body()
        if self._waits is not None:  # or those who have gone would keep all others out
            self._waits.leave()

    def on_finish(self) -> None:
        self._take_body()  # also of a request by another method

    async def post(self) -> None:
        stamp = monotonic_ns()
        self.gateway.http_requests += 1
        try:
            # No name for the body: it would be kept beside the run while that waits.
            run = self.run(self._take_body())
            if run is not None:
                await self._publish(run, stamp)
        except HttpError as error:
            self.fail(error)
        except _Left:
            pass
        else:
            self.set_header("Content-Type", "text/plain; charset=utf-8")
            self.finish("OK")
        finally:
            self.gateway.http_requests -= 1

    def run(self, body: bytes) -> Run | None:
        """What is to be published; None: nothing."""
        raise NotImplementedError

    def check_kept(self) -> None:
        if self._full:
            raise HttpError(429, "BACKLOG_FULL", 1.0)

    def topic(self) -> bytes:
        if _BAD_QUERY.search(self.request.query):
            raise HttpError(400, "INVALID_REQUEST")
        name = self.argument("topic")
        if name is None:
            raise HttpError(400, "MISSING_ARG_TOPIC")
        if not is_valid_topic_name(name.encode()):
            raise HttpError(400, "INVALID_TOPIC")
        return name.encode()

    async def _publish(self, run: Run, stamp: int) -> None:
        gateway = self.gateway
        if gateway.draining:
            raise HttpError(503, "EXITING")
        if gateway.http_requests > MAX_HTTP_CONNECTIONS - _FOR_OTHERS:
            raise HttpError(429, "BACKLOG_FULL", 1.0)
        if gateway.watch.ill:
            raise HttpError(503, f"NOT_ADMITTING: {gateway.watch.ill}")
        topic = gateway.topics.by_name.get(run.topic)
        # One body may go past the bounds, as at the TCP door: else a big one would never come in.
        if topic is not None and topic.backlog.is_full:
            raise HttpError(429, "BACKLOG_FULL", 1.0)
        owner = self._waits = Request(gateway.reactor, f"@{self.request.remote_ip}")
        run.owner = owner
        run.stamp = stamp
        gateway.topics.offer(run)
        gateway.reactor.soon()
        try:
            await owner.done
        except _Left:
            gateway.topics.give_up(run)
            raise


class _Pub(_Publish):
    def run(self, body: bytes) -> Run:
        limits = self.gateway.limits
        if self.size > limits.max_msg_size:
            raise HttpError(413, "MSG_TOO_BIG")
        self.check_kept()
        if not body:
            raise HttpError(400, "MSG_EMPTY")
        topic = self.topic()
        defer = self.argument("defer")
        defer_ms = None
        if defer is not None:
            if not _INTEGER.fullmatch(defer) or not 0 <= int(defer) <= limits.max_req_timeout_ms:
                raise HttpError(400, "INVALID_DEFER")
            defer_ms = int(defer) or None
        return Run(topic, [message(body)], 1, defer_ms is not None, defer_ms)


class _Mpub(_Publish):
    def run(self, body: bytes) -> Run | None:
        limits = self.gateway.limits
        if self.size > limits.max_body_size:
            raise HttpError(413, "BODY_TOO_BIG")
        self.check_kept()
        topic = self.topic()
        binary = self.argument("binary")
        if binary is not None and _TRUE.get(binary, True):
            try:
                count = check_mpub(body, 0, len(body), limits)
            except ProtocolError as error:
                raise HttpError(413, error.code.removeprefix("E_")) from None
            return Run(topic, [body[4:]], count, True, None)
        messages = [line for line in body.split(b"\n") if line]
        if any(len(line) > limits.max_msg_size for line in messages):
            raise HttpError(413, "MSG_TOO_BIG")
        if not messages:
            return None  # done, says nsqd
        elements = list(map(message, messages))
        chunk = b"".join(elements)
        if len(chunk) + 4 > limits.max_body_size:
            # Its four bytes of size for each line make it more than one MPUB may be.
            return Run(topic, elements, len(elements), False, None)
        return Run(topic, [chunk], len(messages), True, None)


class _Ping(_Handler):
    async def get(self) -> None:
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.clear_header("X-NSQ-Content-Type")
        if self.gateway.draining:
            self.set_status(500)
            self.finish("NOK - draining")
        elif self.gateway.watch.ill:
            self.set_status(500)
            self.finish(f"NOK - {self.gateway.watch.ill}")
        else:
            self.finish("OK")


class _Info(_Handler):
    async def get(self) -> None:
        gateway, options = self.gateway, self.gateway.options
        document = dict(gateway.info)
        document.update(
            broadcast_address=options.broadcast_address,
            tcp_port=Address.parse(gateway.tcp.address, lowest=0).port,
            http_port=Address.parse(gateway.http.address, lowest=0).port,
        )
        self.finish(document)


class _Stats(_Handler):
    async def get(self) -> None:
        if _BAD_QUERY.search(self.request.query):
            self.fail(HttpError(400, "INVALID_REQUEST"))
            return
        include = {
            name: _TRUE.get(self.argument(name) or "", True)
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
            self.set_header("Content-Type", "text/plain; charset=utf-8")
            self.finish(as_text(document))


class _Metrics(_Handler):
    async def get(self) -> None:
        self.set_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.finish(await exposition(self.gateway))


class _Admin(_Handler):
    """nsqd's own topic and channel calls, passed on only with --http-admin."""

    async def post(self) -> None:
        if not self.gateway.options.http_admin:
            # Not 403: nsqadmin takes that for a broker that wants TLS, asks again by https, and
            # shows what becomes of that. An empty Allow: switched off by configuration (RFC 9110).
            self.set_header("Allow", "")
            self.fail(HttpError(405, "FORBIDDEN: start the gateway with --http-admin"))
            return
        path = self.request.path
        topic = self.argument("topic") or ""
        deletes = path in ("/channel/delete", "/topic/delete")
        try:
            async with self.gateway.probes.without(topic) if deletes else nullcontext():
                response = await self.gateway.nsqd_http.call("POST", self.request.uri or path)
        except UnavailableError as error:
            self.fail(HttpError(502, str(error)))
            return
        if path == "/topic/delete" and response.status == 200:
            self.gateway.topics.deleted(topic)
        self.set_status(response.status)
        self.finish(response.body)


class _NotFound(_Handler):
    async def prepare(self) -> None:
        self.fail(HttpError(404, "NOT_FOUND"))


def door_application(gateway: Host) -> Application:
    shared = {"gateway": gateway}
    routes: list[Any] = [
        (r"/pub", _Pub, shared),
        (r"/mpub", _Mpub, shared),
        (r"/ping", _Ping, shared),
        (r"/info", _Info, shared),
        (r"/stats", _Stats, shared),
        (r"/metrics", _Metrics, shared),
        *((path, _Admin, shared) for path in ADMIN_PATHS),
    ]
    return Application(
        routes,
        default_handler_class=_NotFound,
        default_handler_args=shared,
        log_function=lambda handler: None,
    )
