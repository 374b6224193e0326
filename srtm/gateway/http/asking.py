"""Requests whose answers are slow, or take a part of the loop: so many at a time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from srtm.gateway.host import Host
from srtm.gateway.http.handler import Handler, HttpError
from srtm.gateway.http.waiting import Full, Waiting


class Asking(Handler):
    """A request that waits for its turn."""

    def initialize(  # type: ignore[override]
        self, gateway: Host, waiting: Waiting, turns: asyncio.Semaphore
    ) -> None:
        super().initialize(gateway, waiting)
        self._turns = turns

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[bool]:
        """False: its sender has gone meanwhile. Raises HttpError."""
        try:
            with self.waiting.place(self.request.path.encode()):
                async with self._turns:
                    yield not self.request.connection.stream.closed()  # type: ignore[union-attr]
        except Full:
            raise HttpError(429, "TOO_MANY_REQUESTS: too many such requests wait", 1.0) from None
