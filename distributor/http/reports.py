"""A gateway's reports on one connection: lines in, and answers out (see `srtm.http.exchange`)."""

import asyncio
import json
from http import HTTPStatus

from tornado.iostream import IOStream, StreamClosedError, UnsatisfiableReadError

from distributor.gateway_api import Report
from distributor.http.bodies import SMALL_BYTES, Body
from distributor.http.handler import Handler
from distributor.http.routes import PROTOCOL, REPORT, Call
from srtm.http.access import Shown

_LOOK_SECONDS = 10.0
"""from one look at who the caller is to the next"""
_SILENT_SECONDS = 60.0
"""after which a connection is closed; a gateway reports once a second"""


class Reports(Handler):
    """Goes on with PROTOCOL: each line is a report of the broker of the path."""

    role = REPORT.role

    async def answer(self, name: str) -> None:  # type: ignore[override]
        try:
            self.leading()
            REPORT.check_broker(self.caller, Call((name,), None))
        except Exception as error:
            self.fail(error)
            return
        if self.request.headers.get("Upgrade", "").lower() != PROTOCOL:
            self.set_header("Upgrade", PROTOCOL)
            self.refuse(HTTPStatus.UPGRADE_REQUIRED, f"this path is for the protocol {PROTOCOL}")
            return
        shown = self.shared.access.shown(self.request)
        self.set_status(HTTPStatus.SWITCHING_PROTOCOLS)
        self.clear_header("Content-Type")
        self.set_header("Connection", "Upgrade")
        self.set_header("Upgrade", PROTOCOL)
        self.finish()
        stream: IOStream = self.detach()
        connection = _Connection(stream)
        self.shared.connections.keep(connection)
        try:
            await self._go_on(name, stream, shown)
        except (StreamClosedError, UnsatisfiableReadError, TimeoutError):
            pass
        finally:
            self.shared.connections.forget(connection)
            stream.close()

    async def _go_on(self, name: str, stream: IOStream, shown: Shown) -> None:
        loop = asyncio.get_running_loop()
        looked_at = loop.time()
        while True:
            read = stream.read_until(b"\n", max_bytes=SMALL_BYTES + 1)
            line = await asyncio.wait_for(read, _SILENT_SECONDS)
            if stream.writing():
                return  # it does not read its answers
            now = loop.time()
            if now >= looked_at + _LOOK_SECONDS:
                looked_at = now
                if self.shared.access.caller(*shown) != self.caller:
                    return
            status, said = await self._report(name, line)
            await stream.write(b"%d %d\n%b" % (status, len(said), said))
            if status not in _GOES_ON:
                return

    async def _report(self, name: str, line: bytes) -> tuple[int, bytes]:
        body = Body(Report, self.shared.held)
        try:
            service = self.leading()
            body.add(line)
            call = Call((name,), body.read(f"report of broker {name}"))
            answer = await REPORT.call(service, call)
        except Exception as error:
            status, said = self.told(error)
            return status, json.dumps({self.line: said}).encode()
        finally:
            body.free()
        return HTTPStatus.OK, answer.model_dump_json().encode()


_GOES_ON = (HTTPStatus.OK, HTTPStatus.NOT_FOUND)
"""It registers, and reports again."""


class _Connection:
    def __init__(self, stream: IOStream) -> None:
        self._stream = stream

    def close(self) -> None:
        self._stream.close()

    def writing(self) -> bool:
        return self._stream.writing()
