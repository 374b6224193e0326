"""/ping, /stats and /metrics of a program that serves nothing else by HTTP."""

from typing import Any, Protocol

from tornado.httpserver import HTTPServer
from tornado.iostream import IOStream
from tornado.web import Application

from srtm.http.handler import ApiHandler
from srtm.http.metrics import CONTENT_TYPE, Text
from srtm.http.server import PatientServer

_MAX_HEAD_BYTES = 8 * 1024
_MAX_BODY_BYTES = 1024  # nobody has to send one
_MOST_CONNECTIONS = 100
"""The most connections. More are closed at once: each takes a descriptor that the program needs for
its work."""


class Status(Protocol):
    """Who is asked. fault: "" while all is well."""

    def fault(self) -> str: ...

    def stats(self) -> dict[str, Any]: ...

    def metrics(self) -> Text: ...


class _Server(PatientServer):
    def handle_stream(self, stream: IOStream, address: tuple[Any, ...]) -> None:
        if len(self._connections) >= _MOST_CONNECTIONS:
            stream.close()
            return
        super().handle_stream(stream, address)


def status_server(told: Status) -> HTTPServer:
    """A server of what `told` says. It listens nowhere yet."""

    class Handler(ApiHandler):
        def get(self) -> None:
            if self.request.path == "/ping":
                fault = told.fault()
                self.set_status(500 if fault else 200)
                self.set_header("Content-Type", "text/plain; charset=utf-8")
                self.finish(f"NOK - {fault}" if fault else "OK")
            elif self.request.path == "/stats":
                self.finish(told.stats())
            elif self.request.path == "/metrics":
                self.set_header("Content-Type", CONTENT_TYPE)
                self.finish(told.metrics().encode())
            else:
                self.refuse(404, "NOT_FOUND")

        def log_exception(self, *_: Any) -> None:
            return None

    return _Server(
        Application([(r"/.*", Handler)], log_function=lambda _: None),
        max_header_size=_MAX_HEAD_BYTES,
        max_body_size=_MAX_BODY_BYTES,
        idle_connection_timeout=75,
        body_timeout=5,
    )
