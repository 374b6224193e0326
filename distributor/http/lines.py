"""Connections that go on with reports: a line is a report, and each has an answer with a status and
a length (see `srtm.http.exchange`).

In clear text a connection is a protocol of asyncio's, and a report that needs no disk is answered
in the call in which it came: tornado's stream costs as much again. By TLS it stays tornado's.
"""

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import cast

from tornado.iostream import IOStream, StreamClosedError, UnsatisfiableReadError

from distributor.control.service import Distributor
from distributor.errors import NotLeading
from distributor.gateway_api import Desired, Report
from distributor.http.bodies import HELD_BYTES, SMALL_BYTES, Body, Held
from distributor.http.connections import UNREAD_SECONDS
from distributor.http.refusals import refusal, refused

_LOOK_SECONDS = 10.0
"""from one look at a connection to the next: whether it goes on, and who the caller is"""
_SILENT_SECONDS = 60.0
"""after which a connection is closed; a gateway reports once a second"""
_LONGEST_SECONDS = 3600.0
"""after which it is closed too, so that a certificate that is shown is looked at again"""
_GOES_ON = (HTTPStatus.OK, HTTPStatus.NOT_FOUND)
"""after which more reports come: whoever is not known registers first"""


class Reporter:
    """Answers the reports of one broker.

    goes_on: may another report come?
    """

    def __init__(self, leading: Callable[[], Distributor], broker: str, held: Held) -> None:
        """leading: the service where this process leads, or NotLeading"""
        self.goes_on = True
        self._leading = leading
        self._broker = broker
        self._held = held

    def take(self, line: bytes) -> bytes | Awaitable[bytes]:
        """The answer; one that has to be awaited where something goes on disk first."""
        body = Body(Report, self._held)
        try:
            service = self._leading()
            body.add(line)
            report = body.read(f"report of broker {self._broker}")
            assert isinstance(report, Report)
            if service.brokers.registering == self._broker:
                return self._later(body, service.report(self._broker, report))
            received = service.receive(self._broker, report)
            if received.is_new:
                return self._later(body, service.finish(received))
            said = self._said(service.answer(received))
        except Exception as error:
            said = self._refused(error)
        body.free()
        return said

    async def _later(self, body: Body, answer: Awaitable[Desired]) -> bytes:
        try:
            return self._said(await answer)
        except Exception as error:
            return self._refused(error)
        finally:
            body.free()

    def _said(self, answer: Desired) -> bytes:
        return _framed(HTTPStatus.OK, answer.model_dump_json().encode())

    def _refused(self, error: Exception) -> bytes:
        status, words = refused(error, f"report of broker {self._broker}")
        self.goes_on = status in _GOES_ON
        return _framed(status, refusal(words, isinstance(error, NotLeading)))


def _framed(status: int, content: bytes) -> bytes:
    return b"%d %d\n%b" % (status, len(content), content)


class PlainLines(asyncio.BufferedProtocol):
    """A connection in clear text. One report is answered at a time; the next is read once its
    answer has gone."""

    def __init__(
        self,
        came: bytes,
        reporter: Reporter,
        is_known: Callable[[], bool],
        unread: Held,
        opened: Callable[["PlainLines"], None],
        closed: Callable[["PlainLines"], None],
    ) -> None:
        """came: on the connection until now; is_known: does who opened it still call as before?
        unread: bytes of answers, over all connections"""
        self._opened = opened
        self._reporter = reporter
        self._is_known = is_known
        self._all_unread = unread
        self._closed = closed
        self._loop = asyncio.get_running_loop()
        self._begun = self._heard_at = self._loop.time()
        self._came = came
        self._unread = 0
        self._is_last = False  # no answer comes after the one that is under way
        self._answering: asyncio.Task[bytes] | None = None
        self._transport: asyncio.Transport
        self._look: asyncio.TimerHandle

    # --- what asyncio calls ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=0)  # so that it is told when an answer is not read
        self._look = self._loop.call_later(_LOOK_SECONDS, self._look_at_it)
        self._opened(self)
        self._loop.call_soon(self._go_on)  # once asyncio reads, which it may be told not to

    def get_buffer(self, sizehint: int) -> memoryview:
        return _BUFFER  # of all connections: what comes is taken out of it at once

    def buffer_updated(self, nbytes: int) -> None:
        self._came += bytes(_BUFFER[:nbytes])
        self._heard_at = self._loop.time()
        self._go_on()

    def pause_writing(self) -> None:
        self._unread = self._transport.get_write_buffer_size()
        self._all_unread.bytes += self._unread
        if self._all_unread.bytes > HELD_BYTES:
            self._transport.abort()

    def resume_writing(self) -> None:
        self._read_at_last()
        self._loop.call_soon(self._go_on)  # asyncio is not to be closed within its own call

    def connection_lost(self, exc: Exception | None) -> None:
        self._look.cancel()
        self._read_at_last()
        self._closed(self)

    # --- reports and answers --------------------------------------------------------------------

    def close(self) -> None:
        """End it at once: nobody waits for a gateway that does not read."""
        if self._unread:
            self._transport.abort()
        else:
            self._transport.close()

    def _go_on(self) -> None:
        """Answer a report that came. Whoever sends more at once waits for its turn after others."""
        if self._unread or self._answering or self._transport.is_closing():
            return  # it goes on from there
        line, end, rest = self._came.partition(b"\n")
        if self._is_last or len(line) > SMALL_BYTES:
            self.close()
            return
        if end:
            self._came = rest
            self._answer(line)
        if self._unread or self._answering:
            self._transport.pause_reading()
        elif end and (rest or self._is_last):
            self._transport.pause_reading()
            self._loop.call_soon(self._go_on)
        else:
            self._transport.resume_reading()

    def _answer(self, line: bytes) -> None:
        said = self._reporter.take(line)
        if isinstance(said, bytes):
            self._say(said)
        else:
            self._answering = asyncio.ensure_future(said)
            self._answering.add_done_callback(self._answered)

    def _answered(self, answering: "asyncio.Task[bytes]") -> None:
        self._answering = None
        if not answering.cancelled():
            self._say(answering.result())
            self._go_on()

    def _say(self, said: bytes) -> None:
        self._transport.write(said)
        is_old = self._loop.time() > self._begun + _LONGEST_SECONDS
        self._is_last = is_old or not self._reporter.goes_on

    def _read_at_last(self) -> None:
        self._all_unread.bytes -= self._unread
        self._unread = 0

    def _look_at_it(self) -> None:
        """Is it to be closed?"""
        silent = self._loop.time() - self._heard_at
        most = UNREAD_SECONDS if self._unread else _SILENT_SECONDS
        if silent > most or not self._is_known():
            self.close()
        else:
            self._look = self._loop.call_later(_LOOK_SECONDS, self._look_at_it)


_BUFFER = memoryview(bytearray(SMALL_BYTES))


async def open_plain(stream: IOStream, make: Callable[[bytes], PlainLines]) -> None:
    """Take the connection of tornado's stream over, with what came on it. Raises StreamClosedError
    or OSError where it is closed already."""
    early = cast("asyncio.Future[bytes]", stream.read_bytes(SMALL_BYTES, partial=True))
    came = early.result() if early.done() else b""
    connection = stream.socket.dup()
    connection.setblocking(False)
    stream.close()
    early.add_done_callback(lambda ended: ended.exception())  # that the stream is closed
    loop = asyncio.get_running_loop()
    await loop.create_connection(lambda: make(came), sock=connection)


class SecureLines:
    """A connection by TLS."""

    def __init__(
        self, stream: IOStream, reporter: Reporter, is_known: Callable[[], bool], unread: Held
    ) -> None:
        """As of PlainLines."""
        self._stream = stream
        self._reporter = reporter
        self._is_known = is_known
        self._all_unread = unread

    def close(self) -> None:
        self._stream.close()

    async def run(self) -> None:
        """Answer until it is over."""
        try:
            await self._go_on()
        except (StreamClosedError, UnsatisfiableReadError, TimeoutError):
            pass
        finally:
            self._stream.close()

    async def _go_on(self) -> None:
        """Raises StreamClosedError, UnsatisfiableReadError, TimeoutError."""
        loop = asyncio.get_running_loop()
        begun = looked_at = now = loop.time()
        while self._reporter.goes_on and now < begun + _LONGEST_SECONDS:
            read = self._stream.read_until(b"\n", max_bytes=SMALL_BYTES + 1)
            line = await asyncio.wait_for(read, _SILENT_SECONDS)
            now = loop.time()
            if now >= looked_at + _LOOK_SECONDS:
                looked_at = now
                if not self._is_known():
                    return
            said = self._reporter.take(line)
            await self._say(said if isinstance(said, bytes) else await said)

    async def _say(self, answer: bytes) -> None:
        """Raises StreamClosedError, TimeoutError where it is not read."""
        written, unread = self._stream.write(answer), self._all_unread
        if not self._stream.writing():
            return
        if unread.bytes + len(answer) > HELD_BYTES:
            raise TimeoutError
        unread.bytes += len(answer)
        try:
            await asyncio.wait_for(written, UNREAD_SECONDS)
        finally:
            unread.bytes -= len(answer)
