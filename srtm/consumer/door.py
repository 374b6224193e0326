"""/ping, /stats and /metrics of a program whose main thread is at work elsewhere."""

import asyncio
import threading
from typing import Any, Protocol

from tornado.httpserver import HTTPServer
from tornado.web import Application, RequestHandler

from srtm.address import Address, cannot_listen
from srtm.errors import SrtmError, UnavailableError

_MAX_HEAD_BYTES = 8 * 1024
_MAX_BODY_BYTES = 1024  # nobody has to send one


class Status(Protocol):
    """Who is asked, in the door's thread. fault: "" while all is well."""

    def fault(self) -> str: ...

    def stats(self) -> dict[str, Any]: ...

    def metrics(self) -> str: ...


def open_door(address: Address, told: Status, where: str) -> None:
    """It stays open until the process ends. Raises UnavailableError."""
    opened = threading.Event()
    faults: list[SrtmError] = []

    def serve() -> None:
        async def listen() -> None:
            try:
                _server(told).listen(address.port, address.host or None)
            except OSError as error:
                faults.append(cannot_listen(f"{where}: http-address {address}", error))
                opened.set()
                return
            opened.set()
            await asyncio.Event().wait()

        asyncio.run(listen())

    threading.Thread(target=serve, name="http", daemon=True).start()
    if not opened.wait(10):
        raise UnavailableError(f"{where}: http-address {address} cannot be listened on")
    if faults:
        raise faults[0]


def _server(told: Status) -> HTTPServer:
    class Handler(RequestHandler):
        def get(self) -> None:
            if self.request.path == "/ping":
                fault = told.fault()
                self.set_status(500 if fault else 200)
                self.set_header("Content-Type", "text/plain; charset=utf-8")
                self.finish(f"NOK - {fault}" if fault else "OK")
            elif self.request.path == "/stats":
                self.finish(told.stats())
            elif self.request.path == "/metrics":
                self.set_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.finish(told.metrics())
            else:
                self.set_status(404)
                self.finish({"message": "NOT_FOUND"})

        def compute_etag(self) -> None:
            return None

        def log_exception(self, *_: Any) -> None:
            return None

    return HTTPServer(
        Application([(r"/.*", Handler)], log_function=lambda _: None),
        max_header_size=_MAX_HEAD_BYTES,
        max_body_size=_MAX_BODY_BYTES,
        idle_connection_timeout=75,
        body_timeout=5,
    )
