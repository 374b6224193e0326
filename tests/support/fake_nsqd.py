"""A far side that does what a real nsqd rarely does: fail, hang, leave without a word.

It speaks V2 to the gateway's own connections and answers publishes as the test's script says. HTTP
stays with a real nsqd beside it.
"""

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

from srtm.nsq.frames import ERROR, RESPONSE, build_frame

_SIZE = struct.Struct(">i")


class Command(NamedTuple):
    """A publish as it came: `number` counts those of all connections, from 0."""

    number: int
    connection: int
    name: str
    topic: str
    defer_ms: int
    bodies: list[bytes]


Script = Callable[[Command], str | None]
"""The answer to a publish: "OK", an error's text (the connection ends after it, as at nsqd) or
None: the connection ends without a word. It may block until the test goes on."""


class FakeNsqd:
    def __init__(self, script: Script) -> None:
        self._script = script
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []
        self.commands: list[Command] = []
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def bodies(self, topic: str) -> list[bytes]:
        """Everything that came for a topic, whatever it was answered."""
        with self._lock:
            return [body for c in self.commands if c.topic == topic for body in c.bodies]

    def came(self, topic: str) -> int:
        """Publishes that came for a topic."""
        with self._lock:
            return sum(command.topic == topic for command in self.commands)

    def close(self) -> None:
        for connection in [self._listener, *self._connections]:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            number = len(self._connections)
            threading.Thread(target=self._serve, args=(connection, number), daemon=True).start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        with contextlib.suppress(OSError, EOFError), connection:
            stream = connection.makefile("rb")
            assert _read(stream, 4) == b"  V2"
            while line := stream.readline():
                name, *words = line.decode().split()
                if name == "NOP":
                    continue
                body = _read(stream, _SIZE.unpack(_read(stream, 4))[0])
                if name == "IDENTIFY":
                    features = json.loads(body).get("feature_negotiation")
                    connection.sendall(build_frame(RESPONSE, b"{}" if features else b"OK"))
                    continue
                bodies = list(_elements(body)) if name == "MPUB" else [body]
                defer_ms = int(words[1]) if name == "DPUB" else 0
                with self._lock:
                    command = Command(len(self.commands), number, name, words[0], defer_ms, bodies)
                    self.commands.append(command)
                answer = self._script(command)
                if answer is None:
                    return
                kind = RESPONSE if answer == "OK" else ERROR
                connection.sendall(build_frame(kind, answer.encode()))
                if kind == ERROR:
                    return


def _read(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data


def _elements(body: bytes) -> Iterator[bytes]:
    (count,) = _SIZE.unpack_from(body)
    position = 4
    for _ in range(count):
        (size,) = _SIZE.unpack_from(body, position)
        yield body[position + 4 : position + 4 + size]
        position += 4 + size
    assert position == len(body), "the body's size and its messages disagree"


@contextlib.contextmanager
def fake_nsqd(script: Script) -> Iterator[FakeNsqd]:
    fake = FakeNsqd(script)
    try:
        yield fake
    finally:
        fake.close()
