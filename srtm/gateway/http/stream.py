"""A connection as tornado reads and writes it, whose client reads the last word."""

import contextlib
from asyncio import Future
from typing import Any

from tornado.iostream import IOStream, UnsatisfiableReadError

from srtm.gateway.farewells import Farewells


def last_word(status: str, why: str = "") -> bytes:
    """The last answer to a client whose request is late, too long or no HTTP, as Go writes it."""
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close"
        f"\r\n\r\n{why or status}"
    ).encode()


_TOO_LONG = last_word("431 Request Header Fields Too Large")
BAD = last_word("400 Bad Request")
_TORNADOS_BAD = b"HTTP/1.1 400 Bad Request\r\n\r\n"


class Stream(IOStream):
    """Ends so that its client reads the last word, also while it still sends."""

    farewells: Farewells

    def write(self, data: bytes | memoryview) -> Future[None]:
        if data == _TORNADOS_BAD:
            self.say_last(BAD)
            data = b""
        return super().write(data)

    def close(self, exc_info: Any = False) -> None:
        if isinstance(exc_info, UnsatisfiableReadError):
            self.say_last(_TOO_LONG)
        super().close(exc_info)

    def say_last(self, word: bytes) -> None:
        with contextlib.suppress(OSError):
            self.socket.send(word)
            self.farewells.take(self.socket.dup())
