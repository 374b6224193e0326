"""An auth server as nsqd knows them; each answer is set by the test."""

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


def allowing(
    *permissions: str, topic: str = ".*", channels: tuple[str, ...] = (".*",), ttl: int = 3600
) -> dict[str, Any]:
    """An answer with one authorization."""
    return {
        "ttl": ttl,
        "identity": "somebody",
        "identity_url": "http://somewhere",
        "authorizations": [
            {"topic": topic, "channels": list(channels), "permissions": list(permissions)}
        ],
    }


class AuthServerProcess:
    """answers: by secret, a document, or what is sent as it is; no other secret is known (403)
    asked: the questions so far, each with its method and path
    may_answer: cleared, all questions wait
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.answers: dict[str, dict[str, Any] | bytes] = {}
        self.status = 200
        self.asked: list[dict[str, str]] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        handler = type("Bound", (_Handler,), {"fake": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_port
        self.address = f"127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        self.may_answer.set()
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def handle_error(self, *_: Any) -> None:
        """Who asked has gone."""


class _Handler(BaseHTTPRequestHandler):
    fake: AuthServerProcess

    def do_GET(self) -> None:
        self._answer(urlsplit(self.path).query)

    def do_POST(self) -> None:
        assert self.headers["Content-Type"] == "application/x-www-form-urlencoded"
        self._answer(self.rfile.read(int(self.headers["Content-Length"])).decode())

    def _answer(self, form: str) -> None:
        asked = {name: values[0] for name, values in parse_qs(form, keep_blank_values=True).items()}
        self.fake.asked.append({"method": self.command, "path": urlsplit(self.path).path, **asked})
        self.fake.may_answer.wait()
        answer = self.fake.answers.get(asked["secret"])
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(403 if answer is None else self.fake.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def auth_server(tls: ssl.SSLContext | None = None) -> Iterator[AuthServerProcess]:
    server = AuthServerProcess(tls)
    try:
        yield server
    finally:
        server.stop()
