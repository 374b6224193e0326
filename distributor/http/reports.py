"""A gateway's reports on one connection: lines in, and answers out (see `srtm.http.exchange`)."""

import asyncio
from http import HTTPStatus

from tornado.iostream import IOStream, StreamClosedError, UnsatisfiableReadError

from distributor.errors import Forbidden, NotLeading
from distributor.gateway_api import Report
from distributor.http.bodies import HELD_BYTES, SMALL_BYTES, Body
from distributor.http.connections import UNREAD_SECONDS
from distributor.http.handler import Handler
from distributor.http.routes import REPORT, Call
from srtm.http.access import Shown
from srtm.http.exchange import REPORTS_PROTOCOL

_LOOK_SECONDS = 10.0
"""from one look at who the caller is to the next"""
_SILENT_SECONDS = 60.0
"""after which a connection is closed; a gateway reports once a second"""
_LONGEST_SECONDS = 3600.0
"""after which it is closed too, so that a certificate that is shown is looked at again"""


class Reports(Handler):
    """Goes on with REPORTS_PROTOCOL: each line is a report of the broker of the path."""

    role = REPORT.role

    def check_role(self) -> None:
        try:
            super().check_role()
        except Forbidden:
            self.note(None, HTTPStatus.FORBIDDEN)
            raise

    async def answer(self, name: str) -> None:  # type: ignore[override]
        try:
            REPORT.check_broker(self.caller, Call((name,), None))
            self.leading().gateway(name)
        except Exception as error:
            if isinstance(error, Forbidden):
                self.note(None, HTTPStatus.FORBIDDEN)
            self.fail(error)
            return
        if self.request.headers.get("Upgrade", "").lower() != REPORTS_PROTOCOL:
            self.set_header("Upgrade", REPORTS_PROTOCOL)
            self.refuse(
                HTTPStatus.UPGRADE_REQUIRED, f"this path is for the protocol {REPORTS_PROTOCOL}"
            )
            return
        shown = self.shared.access.shown(self.request)
        self.set_status(HTTPStatus.SWITCHING_PROTOCOLS)
        self.clear_header("Content-Type")
        self.set_header("Connection", "Upgrade")
        self.set_header("Upgrade", REPORTS_PROTOCOL)
        self.finish()
        stream: IOStream = self.detach()
        stream.set_nodelay(True)
        lines = self.shared.lines
        if name in lines:
            lines[name].close()  # one for each broker: the others would only take room
        lines[name] = stream
        try:
            await self._go_on(name, stream, shown)
        except (StreamClosedError, UnsatisfiableReadError, TimeoutError):
            pass
        finally:
            stream.close()
            if lines.get(name) is stream:
                del lines[name]

    async def _go_on(self, name: str, stream: IOStream, shown: Shown) -> None:
        loop = asyncio.get_running_loop()
        begun = looked_at = now = loop.time()
        while now < begun + _LONGEST_SECONDS:
            read = stream.read_until(b"\n", max_bytes=SMALL_BYTES + 1)
            line = await asyncio.wait_for(read, _SILENT_SECONDS)
            now = loop.time()
            if now >= looked_at + _LOOK_SECONDS:
                looked_at = now
                if self.shared.access.caller(*shown) != self.caller:
                    return
            status, said = await self._report(name, line)
            await self._say(stream, b"%d %d\n%b" % (status, len(said), said))
            if status not in _GOES_ON:
                return

    async def _say(self, stream: IOStream, answer: bytes) -> None:
        """Raises StreamClosedError, TimeoutError where it is not read."""
        written, answers = stream.write(answer), self.shared.answers
        if not stream.writing():
            return
        if answers.bytes + len(answer) > HELD_BYTES:
            raise TimeoutError
        answers.bytes += len(answer)
        try:
            await asyncio.wait_for(written, UNREAD_SECONDS)
        finally:
            answers.bytes -= len(answer)

    async def _report(self, name: str, line: bytes) -> tuple[int, bytes]:
        body = Body(Report, self.shared.held)
        try:
            service = self.leading()
            body.add(line)
            call = Call((name,), body.read(f"report of broker {name}"))
            answer = await REPORT.call(service, call)
        except Exception as error:
            status, said = self.told(error)
            return status, self.refusal(said, isinstance(error, NotLeading))
        finally:
            body.free()
        return HTTPStatus.OK, answer.model_dump_json().encode()


_GOES_ON = (HTTPStatus.OK, HTTPStatus.NOT_FOUND)
"""after which more reports come: whoever is not known registers first"""
