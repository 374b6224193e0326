"""Bounds on what requests bring: how long a body is, how many bytes all of them hold, and whose
turn it is to be read."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pydantic import BaseModel, ValidationError

from distributor import api, gateway_api
from distributor.errors import TooLong, TooMany
from distributor.grouping.proposals import Proposal
from srtm.text.errors import UsageError, one_line

_KIB, _MIB = 1024, 1024 * 1024

MOST_BYTES: dict[type[BaseModel] | None, int] = {
    # 10,000 topics (--max-topics) of 280 bytes at most, and 80 kB for each of 15 that are fitted.
    gateway_api.Report: 4 * _MIB,
    # As many topics that it holds, of 260 bytes, and their names again.
    gateway_api.BrokerAsked: 4 * _MIB,
    api.PublishersAsked: 16 * _MIB,
    api.TopicAsked: 16 * _MIB,  # with 100,000 keys
    api.TopicsAsked: 16 * _MIB,
    api.WatchAsked: 16 * _MIB,
    Proposal: 16 * _MIB,  # with 100,000 publishers
}
"""of one body; of any other 64 KiB"""
MOST_VALUES = 250_000
"""of one body: `{},` is 3 bytes to send and 150 to read. 10,000 reported topics have 90,000,
20,000 publishers 80,000. So many are read in 0.1 to 0.2 s, and everybody waits: pydantic holds the
interpreter's lock as it reads, so a thread of its own would help nobody."""
SMALL_BYTES = 64 * _KIB
"""A body that is read at once: in 10 ms at most. A longer one takes its turn."""

HELD_BYTES = 64 * _MIB
"""over all requests, from a body's first byte to its answer"""
_HELD_BY_OTHERS = 40 * _MIB
_HELD_BY_LONG_REPORTS = 56 * _MIB
"""The rest is always there for what is more urgent: long reports, and then short ones."""

_TURNS_BETWEEN = 10
"""of the event loop, from one long body to the next: a short request is accepted, read and answered
in six"""
_FAULTS = 100
"""The most faults of a body that are described: that takes 10 us and 1 kB each, and a body of 4 MB
had a million, and took 9 s."""


class Held:
    """Bytes of bodies, over all requests."""

    def __init__(self) -> None:
        self.bytes = 0


class Body:
    """The body of one request; model: what it is read as, or None where it is not looked at."""

    def __init__(self, model: type[BaseModel] | None, held: Held) -> None:
        self._model = model
        self._held = held
        self._content = bytearray()
        self.size = 0

    @property
    def is_report(self) -> bool:
        """Is it a gateway's report, or its registration, which comes before one?"""
        return self._model in (gateway_api.Report, gateway_api.BrokerAsked)

    def check(self, size: int) -> None:
        """May it have so many bytes? Raises TooLong."""
        most = MOST_BYTES.get(self._model, SMALL_BYTES)
        if size > most:
            raise TooLong(f"the body is longer than {most:,} bytes; send it in parts")

    def add(self, chunk: bytes) -> None:
        """A part of it. Raises TooLong, TooMany."""
        self.check(self.size + len(chunk))
        if self._model is not None:
            if self._held.bytes + len(chunk) > self._most_held(self.size + len(chunk)):
                raise TooMany(
                    f"requests under way hold {self._held.bytes:,} bytes, and one distributor "
                    f"holds {HELD_BYTES:,} at most; send it again"
                )
            self._held.bytes += len(chunk)
            self._content += chunk
        self.size += len(chunk)

    def _most_held(self, size: int) -> int:
        if not self.is_report:
            return _HELD_BY_OTHERS
        return HELD_BYTES if size <= SMALL_BYTES else _HELD_BY_LONG_REPORTS

    def read(self, where: str) -> BaseModel | None:
        """What it says. Raises UsageError that names the field, TooLong."""
        if self._model is None:
            return None
        values = sum(self._content.count(sign) for sign in (b",", b"[", b"{"))
        if values > MOST_VALUES:
            raise TooLong(f"the body has more than {MOST_VALUES:,} values; send it in parts")
        try:
            return self._model.model_validate_json(self._content)
        except ValidationError as error:
            if error.error_count() > _FAULTS:
                raise UsageError(
                    f"{where}: {error.error_count():,} fields are wrong; see /v1/openapi.json"
                ) from None
            raise one_line(error, where) from None

    def free(self) -> None:
        """Give the body's bytes back; to do it again is no fault. A client that left is remembered
        by tornado for a while, its body is not."""
        self._held.bytes -= len(self._content)
        self._content = bytearray()


class Turns:
    """One long body is read and acted upon at a time, reports first. Between two of them those
    requests have a turn that are read at once."""

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._taken = False
        self._reports = 0  # that wait

    @asynccontextmanager
    async def take(self, is_report: bool) -> AsyncIterator[None]:
        self._reports += is_report
        try:
            async with self._changed:
                await self._changed.wait_for(lambda: self._is_next(is_report))
                self._taken = True
        finally:
            self._reports -= is_report
        try:
            yield
        finally:
            for _ in range(_TURNS_BETWEEN):
                await asyncio.sleep(0)
            async with self._changed:
                self._taken = False
                self._changed.notify_all()

    def _is_next(self, is_report: bool) -> bool:
        return not self._taken and (is_report or not self._reports)
