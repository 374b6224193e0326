"""A V2 connection of a program that has nothing else to do meanwhile: each call waits."""

import math
import socket
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

from srtm.nsq.commands import fin
from srtm.nsq.connection import PLAIN, Connection, Features, Refused
from srtm.nsq.frames import ERROR, MESSAGE, OK_FRAME, Frame, FrameError, Message, parse_message
from srtm.text.address import Address
from srtm.text.errors import UnavailableError

if TYPE_CHECKING:
    from srtm.nsq.layers import Layer

TIMEOUT_SECONDS = 10.0
"""The timeout for a connection and for each answer: nsqd may ask a hung nsqlookupd for 5 s."""
_READ_BYTES = 256 * 1024
_MAX_FRAME_BYTES = 64 << 20


def target_of(address: str) -> str | Address:
    """host:port, or the path of a unix socket as it is. Raises UsageError."""
    return address if "/" in address and "://" not in address else Address.of(address)


class LayeredSocket(socket.socket):
    """A socket whose owner is to read and write through `layer`."""

    def __init__(self, taken: socket.socket, layer: "Layer") -> None:
        """taken: it is detached"""
        family, timeout = taken.family, taken.gettimeout()
        super().__init__(family, socket.SOCK_STREAM, fileno=taken.detach())
        self.settimeout(timeout)
        self.layer = layer


class Blocking:
    """A connection that has begun; `identify` waits for the answer, so that a program may begin
    many and then wait for all.

    socket: for what cannot be asked otherwise; see `take_over`
    """

    def __init__(
        self,
        address: str,
        identity: Mapping[str, Any],
        timeout_seconds: float = TIMEOUT_SECONDS,
        features: Features = PLAIN,
    ) -> None:
        """Raises UnavailableError, UsageError."""
        self.address = address
        self._frames: list[Frame] = []
        target = target_of(address)
        try:
            if isinstance(target, str):
                features = features.towards("localhost")
                self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                self.socket.settimeout(timeout_seconds)
                self.socket.connect(target)
            else:
                features = features.towards(target.host)
                self.socket = socket.create_connection(target, timeout_seconds)
                self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.v2 = Connection(self.socket.sendall, identity, _MAX_FRAME_BYTES, features)
        except (OSError, UnicodeError) as error:  # a name that cannot be one
            raise UnavailableError(
                f"{address}: {_reason(error)}; is an nsqd or a gateway listening there?"
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def identify(self) -> Self:
        """Wait for the answer to IDENTIFY. Raises UnavailableError."""
        self._await("IDENTIFY", lambda: self.v2.identified)
        return self

    def take_over(self) -> socket.socket:
        """The socket for another owner, when nothing is awaited: nothing was read beyond that.
        With TLS or compression it is a `LayeredSocket`."""
        layer = self.v2.layer
        return self.socket if layer is None else LayeredSocket(self.socket, layer)

    def write(self, data: bytes) -> None:
        """Raises OSError."""
        self.v2.send(data)

    def ask(self, command: bytes) -> None:
        """Send one command and wait for its OK. Raises UnavailableError."""
        name = command.split(b" ", 1)[0].decode()
        try:
            self.v2.send(command)
        except OSError as error:
            why = _reason(error)
            raise UnavailableError(f"{self.address}: {name} could not be sent: {why}") from None
        self._await(name, lambda: bool(self._frames))
        answer = self._frames.pop(0)
        if answer.kind == ERROR:
            text = answer.data.decode("ascii", "replace")
            if "TLS required" in text:
                text += "; give tls-v1, and the root CA by which it is verified"
            raise UnavailableError(f"{self.address}: {name} was refused: {text}")

    def frames(self) -> list[Frame]:
        """The answers and messages of one read. Raises OSError: TimeoutError where nothing comes,
        ConnectionError where nothing will."""
        if not self._frames:
            data = self.socket.recv(_READ_BYTES)
            if not data:
                raise ConnectionError(f"{self.address} closed the connection")
            try:
                self._frames = self.v2.receive(data)
            except (FrameError, Refused) as error:
                raise ConnectionError(f"{self.address}: {error}") from None
        found, self._frames = self._frames, []
        return found

    def messages(self) -> list[Message]:
        """The messages of one read, answered with FIN. Raises OSError, as `frames` does."""
        frames = self.frames()
        try:
            found = [parse_message(each.data) for each in frames if each.kind == MESSAGE]
        except FrameError as error:
            raise ConnectionError(f"{self.address}: {error}") from None
        if found:
            self.v2.send(b"".join(fin(each.id) for each in found))
        return found

    def close(self) -> None:
        self.socket.close()

    def _await(self, command: str, has_come: Callable[[], bool]) -> None:
        """Read until the answer has come, all of it within the socket's timeout."""
        timeout = self.socket.gettimeout()
        until = math.inf if timeout is None else time.monotonic() + timeout
        try:
            while not has_come():
                if timeout is not None:
                    left = until - time.monotonic()
                    if left <= 0:
                        raise TimeoutError("timed out")
                    self.socket.settimeout(left)
                # No more is read than that, for whoever takes the socket over.
                data = self.socket.recv(max(1, len(OK_FRAME) - self.v2.buffered))
                if not data:
                    raise UnavailableError(f"{self.address}: closed the connection at {command}")
                self._frames += self.v2.receive(data)
        except FrameError as error:
            raise UnavailableError(
                f"{self.address}: the answer to {command} is not NSQ's: {error}"
            ) from None
        except Refused as error:
            raise UnavailableError(f"{self.address}: {command} was refused: {error}") from None
        except OSError as error:
            why = _reason(error)
            if isinstance(error, TimeoutError) and not self.v2.identified:
                why += "; is it a TCP port of nsqd or of a gateway?"
            raise UnavailableError(f"{self.address}: no answer to {command}: {why}") from None
        finally:
            self.socket.settimeout(timeout)


def _reason(error: OSError | UnicodeError) -> str:
    return getattr(error, "strerror", "") or str(error)
