"""What the HTTP handlers of all programs have in common."""

from typing import Any

from tornado.web import RequestHandler

_WORDS = {
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    413: "BODY_TOO_BIG",
}


class ApiHandler(RequestHandler):
    """Answers in JSON, and refuses with one line, also what tornado itself refuses."""

    line = "message"
    """the key of that line: nsqd's"""

    def set_default_headers(self) -> None:
        self.set_header("Server", "srtm")

    def compute_etag(self) -> None:
        """No ETag (None): every answer is of this moment."""

    def refuse(self, status: int, message: str) -> None:
        self.set_status(status)
        self.finish({self.line: message})

    def write_error(self, status_code: int, **_: Any) -> None:
        self.finish({self.line: _WORDS.get(status_code, "INTERNAL_ERROR")})
