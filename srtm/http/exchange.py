"""Documents to a service and back, one after the other, on one connection: for whoever tells a
service something every second. Half of what such a request costs is its head.

The connection is opened with a request of HTTP to go on with another protocol (`Upgrade`). Then
each question is one line, and each answer a line with a status of HTTP and a length, and so many
bytes.
"""

import asyncio
from http import HTTPStatus
from typing import Self

from srtm.http.client import MAX_RESPONSE_BYTES
from srtm.http.connection import Connection, as_ours, place_of
from srtm.http.endpoint import Answer, Endpoint, Refusal
from srtm.text.errors import UnavailableError

REPORTS_PROTOCOL = "srtm-reports/1"
"""of gateways to the Load Distributor"""
MOST_QUESTION_BYTES = 64 << 10
_MOST_ERROR_BYTES = 64 << 10


class Exchange:
    """An open connection to a service. at: where that is"""

    def __init__(self, at: Endpoint, path: str, connection: Connection) -> None:
        self.at = at
        self._where = place_of(at, path)
        self._connection = connection

    @classmethod
    async def open(
        cls, endpoint: Endpoint, path: str, protocol: str, timeout_seconds: float
    ) -> Self:
        """An open connection; the next address of a service with several is asked where one is
        away or does not serve. Raises Refusal where the service does not go on with the protocol,
        UnavailableError where there is none."""
        at, left = endpoint.now(), endpoint.count
        while True:
            left -= 1
            try:
                return await cls._open(at, path, protocol, timeout_seconds)
            except UnavailableError as error:
                serves = isinstance(error, Refusal) and not error.answer.stands_by
                following = at if serves else endpoint.turn(at)
                if serves or not left:
                    raise
                at = following

    @classmethod
    async def _open(cls, at: Endpoint, path: str, protocol: str, timeout_seconds: float) -> Self:
        where = place_of(at, path)
        with as_ours(where, timeout_seconds):
            async with asyncio.timeout(timeout_seconds):
                connection = await Connection.open(at)
                try:
                    status = await connection.switch(at, path, protocol)
                    if status == HTTPStatus.SWITCHING_PROTOCOLS:
                        return cls(at, path, connection)
                    said = bytearray()
                    async for piece in connection.pieces():
                        said += piece[: _MOST_ERROR_BYTES - len(said)]
                    raise Refusal(at, Answer(status, bytes(said), where))
                except BaseException:
                    connection.close()
                    raise

    @property
    def is_over(self) -> bool:
        """Has the service closed the connection?"""
        return self._connection.is_over

    async def ask(self, question: bytes, timeout_seconds: float) -> Answer:
        """question: without a line's end, at most MOST_QUESTION_BYTES. Raises UnavailableError when
        no answer came in time: the connection is of no use then."""
        with as_ours(self._where, timeout_seconds):
            async with asyncio.timeout(timeout_seconds):
                await self._connection.write(question + b"\n")
                status, length = map(int, (await self._connection.read_line()).split())
                if not 0 <= length <= MAX_RESPONSE_BYTES:
                    raise UnavailableError(f"{self._where} answers with {length} bytes")
                return Answer(status, await self._connection.read(length), self._where)

    def close(self) -> None:
        self._connection.close()
