"""The Load Distributor's API as agents and publishers see it; each answer is set by the test."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class FakeDistributor:
    """Listens on a port of its own, which stays the same over `stop` and `start`.

    epoch, lease_seconds, topics, keys: the desired state that it answers reports with
    places: publisher id -> host:port, or None: not placed. Without an entry it is not registered
    status: anything but 200 answers every request with that and {"error": "no"}
    refused: registrations that are answered with 404 before the first that is not
    """

    def __init__(self) -> None:
        self.epoch = 1
        self.lease_seconds = 10.0
        self.topics: list[dict[str, Any]] = []
        self.keys: list[dict[str, Any]] = []
        self.places: dict[str, str | None] = {}
        self.place_epoch = 1
        self.status = 200
        self.refused = 0
        self.token = ""
        self.brokers: list[dict[str, Any]] = []
        self.reports: list[dict[str, Any]] = []
        self.registered: list[list[dict[str, Any]]] = []
        self.watches: list[list[str]] = []
        self.changed = threading.Condition()
        self.port = 0
        self._server: ThreadingHTTPServer | None = None
        self.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        handler = type("Bound", (_Handler,), {"fake": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """Nothing listens any more; streams end."""
        server, self._server = self._server, None
        if server is not None:
            with self.changed:
                self.changed.notify_all()
            server.shutdown()
            server.server_close()

    @property
    def stopped(self) -> bool:
        return self._server is None

    def desire(self, epoch: int, *topics: dict[str, Any]) -> None:
        with self.changed:
            self.epoch, self.topics = epoch, list(topics)

    def place(self, **places: str | None) -> None:
        with self.changed:
            self.place_epoch += 1
            self.places.update(places)
            self.changed.notify_all()

    def where(self, publisher: str) -> dict[str, Any]:
        known = publisher in self.places
        address = self.places.get(publisher)
        return {
            "id": publisher,
            "key": None,
            "rate": 1.0 if known else None,
            "broker": address and f"broker at {address}",
            "tcp_address": address,
            "epoch": self.place_epoch if known else 0,
        }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake: FakeDistributor

    def log_message(self, *_: Any) -> None: ...

    def do_POST(self) -> None:
        fake = self.fake
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        authorized = self.headers.get("Authorization", "") == (
            f"Bearer {fake.token}" if fake.token else ""
        )
        if fake.status != 200 or not authorized:
            self._answer(fake.status if authorized else 401, {"error": "no"})
        elif self.path == "/v1/brokers":
            fake.brokers.append(body)
            self._answer(200, {"name": body["name"], "epoch": 0, "lease_seconds": 1.0})
        elif self.path.endswith("/report"):
            with fake.changed:
                desired = {
                    "epoch": fake.epoch,
                    "lease_seconds": fake.lease_seconds,
                    "topics": fake.topics,
                    "keys": fake.keys,
                }
            fake.reports.append(body)
            self._answer(200, desired)
        elif self.path.endswith("/publishers"):
            fake.registered.append(body["publishers"])
            if len(fake.registered) <= fake.refused:
                self._answer(404, {"error": "no such topic"})
                return
            for each in body["publishers"]:
                fake.places.setdefault(each["id"], None)
            self._answer(200, {"registered": len(body["publishers"])})
        else:
            fake.watches.append(body["ids"])
            self._stream(body["ids"])

    def _answer(self, status: int, document: Any) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _stream(self, ids: list[str]) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.close_connection = True
        told: dict[str, Any] = {}
        beat_at = time.monotonic() + 0.5
        fake = self.fake
        try:
            while not fake.stopped:
                with fake.changed:
                    now = {each: fake.where(each) for each in ids}
                    if now == told:
                        fake.changed.wait(0.1)
                        now = {each: fake.where(each) for each in ids}
                for each, where in now.items():
                    if told.get(each) != where:
                        self._line(where)
                told = now
                if time.monotonic() > beat_at:
                    beat_at += 0.5
                    self._line({"beat": True})
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            pass

    def _line(self, document: Any) -> None:
        line = json.dumps(document).encode() + b"\n"
        self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
        self.wfile.flush()


@contextmanager
def fake_distributor() -> Iterator[FakeDistributor]:
    fake = FakeDistributor()
    try:
        yield fake
    finally:
        fake.stop()
