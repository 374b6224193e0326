"""One V2 connection to nsqd or a gateway, without blocking: its owner selects on it."""

import errno
import os
import selectors
import socket
from collections.abc import Callable
from typing import Any

from srtm.nsq.commands import NOP
from srtm.nsq.connection import PLAIN, Connection, Features, Refused
from srtm.nsq.frames import FrameError
from srtm.text.address import Address
from srtm.text.errors import SrtmError

CONNECT_SECONDS = 5.0
HEARTBEAT_SECONDS = 10.0
"""Asked for in IDENTIFY; silence for thrice as long means that the other host is gone."""
_READ_BYTES = 256 * 1024
_MAX_FRAME_BYTES = 64 << 20
"""nsqd's --max-msg-size is 1 MiB by default; nobody has messages of this size."""


class Broken(Exception):
    """The connection is of no use any more; its text says why."""


def unreached(error: OSError) -> str:
    """Why nobody is reached at an address of nsqd, and the remedy."""
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there; start nsqd or its gateway, or mend the address in the route"
    if isinstance(error, socket.gaierror):
        return f"{error.strerror}; mend the address in the route"
    return error.strerror or str(error)


def frames_of(raw: bytes, ends: list[int]) -> list[tuple[int, bytes]]:
    """Kind and data of each frame; ends: of the frames in `raw`."""
    starts = [0, *ends[:-1]]
    return [(raw[start + 7], raw[start + 8 : end]) for start, end in zip(starts, ends, strict=True)]


class Wire:
    """owner's part: `select` on it, `read` what came, `beat` once a second.

    answers: the data of frames other than messages and heartbeats, as (kind, data), by `read`
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        address: str,
        identity: dict[str, Any],
        now: float,
        features: Features = PLAIN,
    ) -> None:
        """Begins to connect. Raises Broken."""
        self.address = address
        self._selector = selector
        self._out = bytearray()
        self._began = now
        self._heard = now
        self._beaten = now
        self._fresh = False
        self._paused = False
        self._connected = False
        self._fault = ""
        try:
            host, port = Address.of(address)
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            self._socket = socket.socket(found[0], found[1])
        except OSError as error:
            raise Broken(f"{address}: {unreached(error)}") from None
        except (ValueError, SrtmError):  # a name that nobody can look up
            raise Broken(f"{address:.100} is no address") from None
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        begun = self._socket.connect_ex(found[4])
        if begun not in (0, errno.EINPROGRESS):
            self._socket.close()
            raise Broken(f"{address}: {unreached(OSError(begun, os.strerror(begun)))}")
        document = {
            "user_agent": "srtm-bridge",
            "feature_negotiation": True,
            "heartbeat_interval": int(HEARTBEAT_SECONDS * 1000),
            **identity,
        }
        self._v2 = Connection(self._out.extend, document, _MAX_FRAME_BYTES, features.towards(host))
        self._v2.write = self._write
        self._events = selectors.EVENT_READ | selectors.EVENT_WRITE
        selector.register(self._socket, self._events, self)

    @property
    def ready(self) -> bool:
        """May commands be written?"""
        return self._v2.identified

    @property
    def told(self) -> dict[str, Any]:
        """What nsqd said of this connection."""
        return self._v2.told

    # --- bytes ----------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send commands."""
        self._v2.send(data)

    def _write(self, data: bytes) -> None:
        """What a dead connection does not take is dropped: its last frame may say why it died, so
        `read` or `beat` tells of it."""
        if self._out:
            self._out += data
            return
        if self._fault:
            return
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._fault = error.strerror or str(error)
            return
        if sent < len(data):
            self._out += memoryview(data)[sent:]
            self._listen()

    def flush(self) -> None:
        """What could not be written before. Raises Broken where the host cannot be reached."""
        if not self._connected:
            fault = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if fault:
                raise Broken(f"{self.address}: {unreached(OSError(fault, os.strerror(fault)))}")
            self._connected = True
        if self._out:
            try:
                del self._out[: self._socket.send(self._out)]
            except BlockingIOError:
                return
            except OSError as error:
                self._fault = error.strerror or str(error)
                self._out.clear()
        self._listen()

    def read(self, take: Callable[[bytes, list[int]], list[tuple[int, bytes]]]) -> None:
        """One read's frames go to `take` (see Connection.receive_raw); it gives back those that are
        no messages, and heartbeats among them are answered here. Raises Broken."""
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            raise Broken(f"{self.address}: {error.strerror or error}") from None
        if not data:
            raise Broken(f"{self.address}: it closed the connection")
        was_ready = self.ready
        try:
            raw, ends = self._v2.receive_raw(data)
        except (FrameError, Refused) as error:
            raise Broken(f"{self.address}: {error}") from None
        self._fresh = True
        if self.ready and not was_ready:
            self.identified()
        if not ends:
            return
        for kind, answer in take(raw, ends):
            if not self._v2.is_heartbeat(kind, answer):
                self.answered(kind, answer)

    def answered(self, kind: int, data: bytes) -> None:
        """Called with an answer that is no heartbeat; for subclasses. Raises Broken."""

    def identified(self) -> None:
        """Called when commands may be written; for subclasses."""

    # --- time -----------------------------------------------------------------------------------

    def beat(self, now: float) -> None:
        """Look whether the other side is silent, and beat where nothing is read; called once a
        second or so. Raises Broken."""
        if self._fault and self._paused:
            raise Broken(f"{self.address}: {self._fault}")
        if not self.ready:
            if now - self._began > CONNECT_SECONDS:
                raise Broken(f"{self.address}: no answer within {CONNECT_SECONDS:g} s")
            return
        if self._fresh or self._paused:
            self._fresh = False
            self._heard = now
        elif now - self._heard > 3 * HEARTBEAT_SECONDS:
            raise Broken(f"{self.address}: silent for {3 * HEARTBEAT_SECONDS:g} s")
        if self._paused and now - self._beaten > HEARTBEAT_SECONDS / 2:
            self._beaten = now
            self.write(NOP)  # its heartbeats are not read now, and nsqd waits for an answer

    def pause(self, paused: bool) -> None:
        """Do not read while so."""
        if paused != self._paused:
            self._paused = paused
            self._listen()

    def close(self) -> None:
        if self._events:
            self._selector.unregister(self._socket)
            self._events = 0
        self._socket.close()

    def _listen(self) -> None:
        events = 0 if self._paused else selectors.EVENT_READ
        if self._out or not self._connected:
            events |= selectors.EVENT_WRITE
        if events == self._events:
            return
        # A selector takes no empty set: then it does not know the socket.
        if not self._events:
            self._selector.register(self._socket, events, self)
        elif not events:
            self._selector.unregister(self._socket)
        else:
            self._selector.modify(self._socket, events, self)
        self._events = events
