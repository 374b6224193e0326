"""One V2 connection of a publisher, on asyncio: bytes and heartbeats, nothing of messages."""

import asyncio
import os
import socket
from typing import Protocol

from srtm.nsq import connection as v2
from srtm.nsq.frames import ERROR, RESPONSE, FrameError
from srtm.text.address import Address
from srtm.text.errors import UnavailableError

CONNECT_SECONDS = 5.0
HEARTBEAT_SECONDS = 5.0
"""Asked for in IDENTIFY. Silence for twice as long means that the other host is gone."""
_MAX_FRAME_BYTES = 1 << 20  # answers are short; consumers' messages do not come here


class Rejected(UnavailableError):
    """Somebody is there, and there will be no connection with what this side shows or asks for."""


class Listener(Protocol):
    """Who uses the connection."""

    def replied(self, kind: int, data: bytes) -> None:
        """An answer (RESPONSE or ERROR) to the oldest command that has none."""

    def writable(self) -> None:
        """The connection takes more again."""

    def broken(self, connection: "Connection") -> None:
        """The connection is closed, by whomever; said only once. What has no answer now gets
        none."""


class Connection(asyncio.Protocol):
    """Made by `dial`."""

    def __init__(self, listener: Listener, publisher: str, features: v2.Features) -> None:
        self._listener = listener
        self._publisher = publisher
        self._features = features
        self._v2: v2.Connection | None = None
        self._transport: asyncio.Transport | None = None
        self._identified: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._beat: asyncio.TimerHandle | None = None
        self._heard = False
        self.can_write = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        host = socket.gethostname()
        identity = {
            "client_id": f"{host}-{os.getpid()}",
            "hostname": host,
            "user_agent": "srtm-client",
            "heartbeat_interval": int(HEARTBEAT_SECONDS * 1000),
        }
        if self._publisher:
            identity["srtm_publisher"] = self._publisher
        self._v2 = v2.Connection(transport.write, identity, _MAX_FRAME_BYTES, self._features)
        loop = asyncio.get_running_loop()
        self._beat = loop.call_later(2 * HEARTBEAT_SECONDS, self._check)

    def data_received(self, data: bytes) -> None:
        assert self._v2 is not None
        self._heard = True
        try:
            frames = self._v2.receive(data)
        except FrameError as error:  # not an nsqd, or it wants another certificate
            if not self._identified.done():
                self._identified.set_exception(Rejected(str(error)))
            self.abort()
            return
        except v2.Refused as error:
            self._identified.set_exception(Rejected(str(error)))
            return
        if self._v2.identified and not self._identified.done():
            self.can_write = True
            self._identified.set_result(None)
        for frame in frames:
            if frame.kind in (RESPONSE, ERROR):
                self._listener.replied(frame.kind, frame.data)

    def pause_writing(self) -> None:
        self.can_write = False

    def resume_writing(self) -> None:
        self.can_write = True
        self._listener.writable()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.can_write = False
        if self._beat is not None:
            self._beat.cancel()
        if self._identified.done() and not self._identified.cancelled():
            self._listener.broken(self)
        elif not self._identified.done():
            self._identified.set_exception(UnavailableError("it closed the connection"))

    def _check(self) -> None:
        """Heartbeats come on an idle connection too: silence is a host that is gone."""
        if not self._heard:
            self.abort()
            return
        self._heard = False
        loop = asyncio.get_running_loop()
        self._beat = loop.call_later(2 * HEARTBEAT_SECONDS, self._check)

    async def identified(self) -> None:
        """Raises Rejected where the other side refuses, UnavailableError where it closes."""
        await self._identified

    @property
    def alive(self) -> bool:
        return self._transport is not None

    def write(self, data: bytes) -> None:
        assert self._v2 is not None, "the listener was told that it is ready"
        self._v2.send(data)

    def abort(self) -> None:
        """Close now; what is unwritten is dropped, and nothing more is written."""
        self.can_write = False
        if self._transport is not None:
            self._transport.abort()


async def dial(
    address: str, listener: Listener, publisher: str = "", features: v2.Features = v2.PLAIN
) -> Connection:
    """A connection that is ready for commands; traces name it by `publisher`, its id. Raises
    Rejected, or UnavailableError where nobody answers."""
    host, port = Address.of(address)
    loop = asyncio.get_running_loop()
    connection: Connection | None = None
    kind = UnavailableError
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, connection = await loop.create_connection(
                lambda: Connection(listener, publisher, features.towards(host)), host, port
            )
            await connection.identified()
    except TimeoutError:
        why = f"no answer within {CONNECT_SECONDS:g} s"
    except UnavailableError as error:
        why, kind = str(error), type(error)
    except (OSError, UnicodeError) as error:  # a name that cannot be one
        why = getattr(error, "strerror", "") or str(error)
    except asyncio.CancelledError:
        if connection is not None:
            connection.abort()
        raise
    else:
        return connection
    if connection is not None:
        connection.abort()
    raise kind(f"{address} takes no publisher: {why}")
