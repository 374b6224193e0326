"""A broker that answers metadata alone, and names no broker while it is fenced."""

import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_METADATA, _API_VERSIONS = 3, 18
_UNSUPPORTED_VERSION, _LEADER_NOT_AVAILABLE = 35, 5
TOPIC = "events"


class FencedKafka(socketserver.ThreadingTCPServer):
    """asked: how often it named no broker"""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.fenced = False
        self.asked = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def metadata(self) -> bytes:
        """Metadata v1: brokers, the controller, and one topic of one partition."""
        if self.fenced:
            self.asked += 1
        broker = struct.pack(">i", 1) + _text("127.0.0.1")
        broker += struct.pack(">i", self.server_address[1]) + _text(None)
        error = _LEADER_NOT_AVAILABLE if self.fenced else 0
        partition = struct.pack(">hii", error, 0, -1 if self.fenced else 1)
        partition += struct.pack(">iiii", 1, 1, 1, 1)
        brokers = struct.pack(">i", 0) if self.fenced else struct.pack(">i", 1) + broker
        topic = struct.pack(">h", 0) + _text(TOPIC) + b"\0" + struct.pack(">i", 1) + partition
        controller = struct.pack(">i", -1 if self.fenced else 1)
        return brokers + controller + struct.pack(">i", 1) + topic


class _Connection(socketserver.StreamRequestHandler):
    server: FencedKafka

    def handle(self) -> None:
        while head := self.rfile.read(4):
            request = self.rfile.read(struct.unpack(">i", head)[0])
            key, version, correlation = struct.unpack_from(">hhi", request)
            body = self.server.metadata()
            if key == _API_VERSIONS:
                ranges = struct.pack(">hhhhhh", _METADATA, 1, 1, _API_VERSIONS, 0, 0)
                error = _UNSUPPORTED_VERSION if version else 0
                body = struct.pack(">hi", error, 2) + ranges
            answer = struct.pack(">i", correlation) + body
            self.wfile.write(struct.pack(">i", len(answer)) + answer)


@contextmanager
def fenced_kafka() -> Iterator[FencedKafka]:
    with FencedKafka() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()


def _text(value: str | None) -> bytes:
    if value is None:
        return struct.pack(">h", -1)
    return struct.pack(">h", len(value)) + value.encode()
