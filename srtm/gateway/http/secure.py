"""HTTPS: a connection until its handshake is done, and then as a stream of tornado's."""

import contextlib
import os
import socket
import ssl
from collections.abc import Callable
from typing import Any

from tornado.iostream import SSLIOStream

from srtm.gateway.host import Host
from srtm.gateway.http.stream import Stream
from srtm.gateway.reactor import EDGE, READABLE, WRITABLE
from srtm.nsq.layers.layer import LayerError
from srtm.nsq.layers.tls import is_in_crumbs
from srtm.text.certificates import why_tls_failed

_HANDSHAKE = b"\x16"
"""The first byte of a client's first record (RFC 8446, section 5.1)."""
_PEEKED_BYTES = 64 * 1024
_NO_TLS = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"
"""as Go's server says it"""


class Coming:
    """A client whose handshake is under way (see `Shaking`). It has its turns among those of the
    TCP door.

    awaits_us: something has come, and it has yet to have its turn
    """

    def __init__(
        self,
        gateway: Host,
        connection: socket.socket,
        address: str,
        secured: "Callable[[Coming, ssl.SSLSocket], object]",
        gone: "Callable[[Coming], object]",
    ) -> None:
        """secured: takes the connection over; gone: is told that there is none any more"""
        self._gateway = gateway
        self._socket = connection
        self._address = address
        self._fd = connection.fileno()
        self._tls: ssl.SSLSocket | None = None
        self._secured = secured
        self._gone = gone
        self.closed = False
        self.awaits_us = False
        self._watch()
        gateway.handshakes.begin(self)

    def _on_event(self, _mask: int) -> None:
        self.awaits_us = True
        self._gateway.handshakes.want(self)

    def shake(self) -> bool:
        self.awaits_us = False
        try:
            if self._tls is None:
                self._tls = self._begin()
                if self._tls is None:
                    return False
            # OpenSSL takes all that is there at once, and a third of a second for tiny records.
            if is_in_crumbs(_waiting(self._tls)):
                raise ValueError("a handshake in crumbs")
            self._tls.do_handshake()
        except (ssl.SSLWantReadError, BlockingIOError):
            return False
        except ssl.SSLWantWriteError:
            self._gateway.reactor.change(self._fd, READABLE | WRITABLE | EDGE)
            return False
        except (OSError, ValueError, LayerError) as error:
            self._gateway.handshakes.tell(self._address, f"TLS failed: {why_tls_failed(error)}")
            self._end_in_peace()  # OpenSSL has told it why
            return False
        self._leave()
        self._gateway.reactor.let_asyncio_run()
        self._secured(self, self._tls)
        return True

    def _begin(self) -> ssl.SSLSocket | None:
        """The handshake's first step; None where no TLS comes, and the client is told so. Raises
        OSError."""
        first = self._socket.recv(1, socket.MSG_PEEK)
        if first != _HANDSHAKE:
            if first:
                self._gateway.handshakes.tell(self._address, "what came is no TLS")
                self._socket.send(_NO_TLS)
            self._end_in_peace()
            return None
        renewed = self._gateway.tls
        assert renewed is not None
        # It takes the descriptor over, and closes it where the client has reset the connection.
        self._gateway.reactor.forget(self._fd)
        tls = renewed.context.wrap_socket(
            self._socket, server_side=True, do_handshake_on_connect=False
        )
        self._watch()
        return tls

    def _watch(self) -> None:
        self._gateway.reactor.watch(self._fd, self._on_event, READABLE | EDGE, self.close)

    def shake_late(self) -> None:
        self._gateway.handshakes.tell(self._address, "TLS failed: nothing came within 5 s")
        self.close()

    def close(self) -> None:
        if not self.closed:
            self._leave()
            self._gateway.handshakes.left(self)
            self._plain().close()
            self._gone(self)

    def _end_in_peace(self) -> None:
        """Close it so that its client reads what was sent to it last."""
        if not self.closed:
            self._leave()
            self._gateway.handshakes.left(self)
            self._gateway.farewells.take(self._plain())
            self._gone(self)

    def _leave(self) -> None:
        self.closed = True
        self._gateway.reactor.forget(self._fd)

    def _plain(self) -> socket.socket:
        return self._socket if self._tls is None else socket.socket(fileno=self._tls.detach())


def _waiting(connection: ssl.SSLSocket) -> bytes:
    """The bytes of the wire that are there, which stay."""
    try:
        return socket.socket.recv(connection, _PEEKED_BYTES, socket.MSG_PEEK)
    except BlockingIOError:
        return b""


class TlsStream(Stream, SSLIOStream):
    """A connection whose handshake is done."""

    def close_fd(self) -> None:
        self._say_end()
        super().close_fd()

    def say_last(self, word: bytes) -> None:
        with contextlib.suppress(OSError, ValueError):
            self.socket.send(word)
            self._say_end()
            self.farewells.take(socket.socket(fileno=os.dup(self.socket.fileno())))

    def _say_end(self) -> None:
        """Tell the client that what it has read is all, and that nobody cut it short."""
        with contextlib.suppress(OSError, ValueError):
            self.socket.unwrap()  # it would wait for the client's own last word; we do not

    def _is_connreset(self, error: BaseException) -> bool:
        """A record that is none ends a connection, and tornado would log each of a flood."""
        return isinstance(error, ssl.SSLError) or super()._is_connreset(error)


def secure_stream(connection: ssl.SSLSocket, **named: Any) -> TlsStream:
    """The stream of a connection whose handshake is done."""
    return TlsStream(connection, ssl_options=connection.context, **named)
