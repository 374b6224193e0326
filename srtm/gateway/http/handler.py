"""What the handlers of the HTTP door have in common: nsqd's headers, JSON and refusals."""

import re
import sys
from math import inf
from typing import Any

from tornado.web import stream_request_body

from srtm.gateway.host import Host
from srtm.gateway.http.waiting import Waiting
from srtm.http.handler import ApiHandler
from srtm.nsq.go_json import dumps

PLAIN = "text/plain; charset=utf-8"
_BAD_QUERY = re.compile(r";|%(?![0-9a-fA-F]{2})")
"""What Go's url.ParseQuery refuses."""


class HttpError(Exception):
    """A status and nsqd's word for it."""

    def __init__(self, status: int, message: str, retry_seconds: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_seconds = retry_seconds


@stream_request_body
class Handler(ApiHandler):
    """Reads a body of any size, and keeps none of it."""

    gateway: Host
    waiting: Waiting

    def initialize(self, gateway: Host, waiting: Waiting) -> None:
        self.gateway = gateway
        self.waiting = waiting

    def set_default_headers(self) -> None:
        super().set_default_headers()
        self.clear_header("Content-Type")
        self.set_header("X-NSQ-Content-Type", "nsq; version=1.0")

    def prepare(self) -> None:
        self.request.connection.set_max_body_size(sys.maxsize)  # type: ignore[union-attr]

    def data_received(self, chunk: bytes) -> None:
        pass

    def write(self, chunk: str | bytes | dict[str, Any]) -> None:
        if isinstance(chunk, dict):
            self.set_header("Content-Type", "application/json; charset=utf-8")
            chunk = dumps(chunk)
        super().write(chunk)

    def prepare_failure(self, error: HttpError) -> None:
        """Set the head of the answer to a request that fails."""
        self.set_status(error.status)
        if error.retry_seconds is not None and error.retry_seconds < inf:
            self.set_header("Retry-After", str(max(1, round(error.retry_seconds + 0.5))))

    def fail(self, error: HttpError) -> None:
        self.prepare_failure(error)
        self.refuse(error.status, error.message)

    def argument(self, name: str) -> str | None:
        """The first of its name."""
        values = self.request.query_arguments.get(name)
        return values[0].decode("utf-8", "replace") if values else None

    def check_query(self) -> None:
        if _BAD_QUERY.search(self.request.query):
            raise HttpError(400, "INVALID_REQUEST")
