"""/pub and /mpub, through the topic's bucket."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial

from srtm.gateway.backlog import Backlog
from srtm.gateway.http.authorizing import check_publish
from srtm.gateway.http.handler import PLAIN, Handler, HttpError
from srtm.gateway.http.waiting import Full
from srtm.gateway.listening import MAPPED
from srtm.gateway.reactor import Reactor
from srtm.gateway.run import Run
from srtm.gateway.topics import Topics
from srtm.host.clock import monotonic_ns
from srtm.nsq.commands import BIG_BODY_BYTES, check_mpub, message
from srtm.nsq.errors import ERRORS, ProtocolError
from srtm.nsq.names import is_valid_topic_name

_LONGEST_NUMBER = 18  # digits of a length that is read at all
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
TRUE = {"1": True, "true": True, "0": False, "false": False}


class _Left(Exception):
    """Its sender has gone: nobody is answered."""


class Request:
    """One HTTP publish: the owner of its run."""

    def __init__(self, reactor: Reactor, topics: Topics, publisher: str) -> None:
        self.publisher = publisher
        self._reactor = reactor
        self._topics = topics
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
        """Nothing is to be paused: no more comes from this request anyway."""

    def resume(self, reason: object) -> None:
        pass

    def leave(self, run: Run) -> None:
        """The connection is closed. What nsqd has been sent goes on."""
        self._give_up(run, _Left())

    def yields(self, run: Run) -> bool:
        """Its place is wanted for a topic that has none. Not where some of it has a token: that may
        be stored."""
        if self.done.done() or run.without_token < run.count:
            return False
        self._give_up(run, Full())
        return True

    def _give_up(self, run: Run, error: Exception) -> None:
        """Give the run up before its sender can be told: a token may come meanwhile."""
        if not self.done.done():
            self._topics.give_up(run)
            self._finish(error)

    def _finish(self, error: Exception | None) -> None:
        if self.done.done():
            return
        self._reactor.let_asyncio_run()
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)


class _Publish(Handler):
    def prepare(self) -> Awaitable[None] | None:  # type: ignore[override]
        super().prepare()
        self.size = 0
        self._chunks: list[bytes] = []
        self._kept_bytes = 0
        self._full = False  # the topic has no room for this body: it is dropped as it comes
        self._leave: Callable[[], None] | None = None  # a publish waits here
        self._backlog: Backlog | None = None
        if self.gateway.auth is not None:
            return self._prepare_when_allowed()
        self._prepare_body()
        return None

    async def _prepare_when_allowed(self) -> None:
        """The body of whoever may not publish is not kept, nor is one whose sender is asked for."""
        self.gateway.http_requests += 1
        try:
            await check_publish(self, self.command, self.argument("topic") or "")
        except HttpError as error:
            self._refuse_now(error)
        else:
            self._prepare_body()
        finally:
            self.gateway.http_requests -= 1

    def _prepare_body(self) -> None:
        announced = self._announced_bytes()
        if announced > self.most_bytes:
            self._refuse_now(self.too_big())
            return
        self._expects(announced)
        self.gateway.uploads.add(self)

    command = ""
    """as the TCP door calls it"""

    @property
    def most_bytes(self) -> int:
        """The most bytes that a body may have."""
        raise NotImplementedError

    def run(self, body: bytes) -> Run | None:
        """What is to be published; None: nothing."""
        raise NotImplementedError

    def too_big(self) -> HttpError:
        raise NotImplementedError

    # --- the body -----------------------------------------------------------------------------

    def data_received(self, chunk: bytes) -> None:
        self.size += len(chunk)
        if self.is_told or self._full:
            return
        if self.size > self.most_bytes:
            self._drop()
            self._refuse_now(self.too_big())
            return
        self._chunks.append(chunk)
        self._kept_bytes += len(chunk)

    @property
    def is_told(self) -> bool:
        """Is it answered already?"""
        return self._headers_written

    def _refuse_now(self, error: HttpError) -> None:
        """Refuse a body that is too big or not allowed, which its sender may hear before all of it
        has come; the rest is read and dropped, so that who only listens at the end sees the answer
        and no reset."""
        self.prepare_failure(error)
        self.write({self.line: error.message})
        if "Expect" in self.request.headers or self.gateway.draining:
            # It asked before it sends any, or there is no time left for that.
            self.set_header("Connection", "close")
            self.finish()
            return
        self.set_header("Content-Length", str(sum(map(len, self._write_buffer))))
        self.flush()

    def _announced_bytes(self) -> int:
        """0 of a chunked body, which does not say."""
        length = self.request.headers.get("Content-Length", "")
        return int(length) if length.isdecimal() and len(length) <= _LONGEST_NUMBER else 0

    def _expects(self, announced: int) -> None:
        """A big body counts in its topic's bound from here on (see `Bodies`)."""
        size = self.most_bytes if "Transfer-Encoding" in self.request.headers else announced
        name = (self.argument("topic") or "").encode()
        if size <= BIG_BODY_BYTES or not is_valid_topic_name(name):
            return
        topic = self.gateway.topics.find(name)
        if topic is not None:
            if topic.backlog.body_may_come(self, size, monotonic_ns()):
                self._backlog = topic.backlog
            else:
                self._full = True

    def resume(self, reason: object) -> None:
        """A body that finds no room never waits: its sender is told to come again."""

    def _take_body(self) -> bytes:
        """What came of the body, which is held no more: it has come whole, or its sender has
        gone."""
        body = b"".join(self._chunks)
        self._drop()
        self.gateway.uploads.discard(self)
        if self._backlog is not None:
            self._backlog.body_ended(self)
            self._backlog = None
        return body

    def _drop(self) -> None:
        self._chunks.clear()
        self._kept_bytes = 0

    @property
    def partial_bytes(self) -> int:
        """The bytes of a body that has not come whole."""
        return self._kept_bytes

    def close(self) -> None:
        self.request.connection.stream.close()  # type: ignore[union-attr]

    def on_connection_close(self) -> None:
        self._take_body()
        if self._leave is not None:  # or those who have gone would keep all others out
            self._leave()

    def on_finish(self) -> None:
        self._take_body()  # also of one that failed on its way

    # --- the publish --------------------------------------------------------------------------

    async def post(self) -> None:
        if self.is_told:
            self.finish()
            return
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
            self.set_header("Content-Type", PLAIN)
            self.finish("OK")
        finally:
            self.gateway.http_requests -= 1

    def check_kept(self) -> None:
        if self._full:
            raise HttpError(429, "BACKLOG_FULL", 1.0)

    def topic(self) -> bytes:
        self.check_query()
        name = self.argument("topic")
        if name is None:
            raise HttpError(400, "MISSING_ARG_TOPIC")
        if not is_valid_topic_name(name.encode()):
            raise HttpError(400, "INVALID_TOPIC")
        return name.encode()

    async def _publish(self, run: Run, stamp: int) -> None:
        gateway = self.gateway
        if self.request.connection.stream.closed():  # type: ignore[union-attr]
            raise _Left  # tornado tells of a sender that leaves from here on, not before
        # It may have ended while the body came.
        await check_publish(self, self.command, run.topic.decode())
        if gateway.draining:
            raise HttpError(503, "EXITING")
        if gateway.watch.ill:
            raise HttpError(503, f"NOT_ADMITTING: {gateway.watch.ill}")
        topic = gateway.topics.by_name.get(run.topic)
        # One body may go past the bounds, as at the TCP door: else a big one would never come in.
        if topic is not None and topic.backlog.is_full:
            raise HttpError(429, "BACKLOG_FULL", 1.0)
        publisher = f"@{(self.request.remote_ip or '').removeprefix(MAPPED)}"
        owner = Request(gateway.reactor, gateway.topics, publisher)
        run.owner = owner
        run.stamp = stamp
        try:
            with self.waiting.place(run.topic, lambda: owner.yields(run)):
                self._leave = partial(owner.leave, run)
                gateway.topics.offer(run)
                gateway.reactor.soon()
                await owner.done
        except Full:
            raise HttpError(429, "BACKLOG_FULL", 1.0) from None


class Pub(_Publish):
    command = "PUB"

    @property
    def most_bytes(self) -> int:
        return self.gateway.limits.max_msg_size

    def too_big(self) -> HttpError:
        return HttpError(413, "MSG_TOO_BIG")

    def run(self, body: bytes) -> Run:
        limits = self.gateway.limits
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


class Mpub(_Publish):
    command = "MPUB"

    @property
    def most_bytes(self) -> int:
        return self.gateway.limits.max_body_size

    def too_big(self) -> HttpError:
        if "Content-Length" not in self.request.headers:
            try:
                self.topic()  # nsqd looks at it before it reads
            except HttpError as error:
                return error
        return HttpError(413, "BODY_TOO_BIG")

    def run(self, body: bytes) -> Run | None:
        limits = self.gateway.limits
        self.check_kept()
        topic = self.topic()
        binary = self.argument("binary")
        if binary is not None and TRUE.get(binary, True):
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
