"""The gateways of a journey, each asked twice a second when its messages arrived."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from srtm.host.offsets import Offset, Offsets
from srtm.http.client import Answer, call
from srtm.http.nsqd import https_port
from srtm.http.nsqlookupd import producers_of
from srtm.journey.file import Journey
from srtm.journey.numbers import nanoseconds
from srtm.text.address import Address
from srtm.text.errors import SrtmError, UnavailableError

log = logging.getLogger("srtm.journey")

_ASK_SECONDS = 0.5
_MORE_SECONDS = 0.05
"""from an answer to the next question where there is more to be told"""
_LOOKUP_SECONDS = 2.0
_AWAY_SECONDS = 2.0
_TIMEOUT_SECONDS = 3.0
_MOST_BYTES = 1 << 20
_MOST_GATEWAYS = 256

Reached = tuple[str, int]
"""boot id of a gateway's host, and the cursor up to which it has told"""
_NOTHING_YET: Reached = ("", 0)

Told = Callable[[Any, Offset], None]
"""An answer of /arrivals, and by how much the gateway's clock differs. Raises ValueError."""


class Gateways:
    """faults: address -> why it does not tell; "" where it does"""

    def __init__(self, journey: Journey, told: Told) -> None:
        self.faults: dict[str, str] = {}
        self._journey = journey
        self._told = told
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._lookup_fault = ""

    async def run(self) -> None:
        """Ask until cancelled."""
        try:
            while True:
                found = self._journey.nsqd_http or await self._looked_up()
                for address in found:
                    if address not in self._tasks and len(self._tasks) < _MOST_GATEWAYS:
                        self.faults[address] = "not asked yet"
                        self._tasks[address] = asyncio.create_task(self._ask_again(address))
                for address in set(self._tasks) - set(found):
                    if self.faults[address] and not self._lookup_fault:  # it has left
                        self._tasks.pop(address).cancel()
                        del self.faults[address]
                await asyncio.sleep(_LOOKUP_SECONDS)
        finally:
            for task in self._tasks.values():
                task.cancel()

    @property
    def fault(self) -> str:
        """Why some of them do not tell; "" when all do."""
        if not self.faults:
            return self._lookup_fault or f"nobody has topic {self._journey.topic} yet"
        return next((fault for fault in self.faults.values() if fault), "")

    async def _looked_up(self) -> list[str]:
        loop = asyncio.get_running_loop()
        found: list[str] = []
        self._lookup_fault = ""
        for lookupd in self._journey.lookupd:
            try:
                topic = self._journey.topic
                producers = await loop.run_in_executor(None, producers_of, lookupd, topic)
                found += [each.http for each in producers if each.http]
            except UnavailableError as error:
                self._lookup_fault = str(error)
        return found

    async def _ask_again(self, address: str) -> None:
        gateway: _Gateway | None = None
        reached = _NOTHING_YET
        while True:
            try:
                # Another process may answer than before, and by other files of ours.
                gateway = gateway or _Gateway(self._journey, address, reached)
                document, clock = await gateway.ask()
                self._told(document, clock)
                reached = gateway.reached
            except (SrtmError, ValueError) as error:
                gateway = None
                if isinstance(error, _Moved):
                    reached = _NOTHING_YET
                self._failed(address, str(error))
                await asyncio.sleep(_AWAY_SECONDS)
                continue
            if self.faults[address]:
                log.info("%s tells when messages of %s arrive", address, self._journey.topic)
            self.faults[address] = ""
            await asyncio.sleep(_MORE_SECONDS if gateway.has_more else _ASK_SECONDS)

    def _failed(self, address: str, why: str) -> None:
        if self.faults[address] != why:
            self.faults[address] = why
            log.warning("journey %s: %s", self._journey.name, why)


class _Moved(ValueError):
    """Another host answers at a gateway's address: its cursors are of another clock."""


class _Gateway:
    """One of them. reached: how far it has told, from where it is asked on"""

    def __init__(self, journey: Journey, address: str, reached: Reached) -> None:
        self._door = journey.door(address)
        self._token = journey.nsq.features().auth_secret
        self._endpoint = self._door.endpoint
        self._topic, self._channel = (
            quote(name, safe="") for name in (journey.topic, journey.channel)
        )
        self.reached, self.has_more = reached, False
        self._clocks = Offsets()

    async def ask(self) -> tuple[Any, Offset]:
        """What has been told since the last question, and the difference of the clocks. Raises
        UnavailableError, ValueError."""
        answer, begun = await self._get()
        port = https_port(answer)
        if port is not None:  # its HTTP door is closed
            self._endpoint = self._door.https(port)
            answer, begun = await self._get()
        done = time.time_ns()
        document = answer.json()
        try:
            boot, wall = str(document["boot_id"]), nanoseconds(document["wall_ns"])
            cursor, self.has_more = nanoseconds(document["cursor"]), bool(document["more"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{answer.where} is no gateway's: {error!r}"[:300]) from None
        if self.reached[0] not in ("", boot):
            raise _Moved(f"{self._door.address} has moved to another host")
        self.reached = boot, cursor
        self._clocks.add(boot, wall, begun, done)
        clock = self._clocks.best
        assert clock is not None
        return document, clock

    async def _get(self) -> tuple[Answer, int]:
        """The answer, and when it was asked for."""
        path = f"/arrivals?topic={self._topic}&channel={self._channel}&since={self.reached[1]}"
        endpoint, secret = self._endpoint, self._token
        is_safe = endpoint.tls is not None or Address.of(endpoint.address).is_local
        begun = time.time_ns()
        answer = await call(
            replace(endpoint, token=secret if is_safe else ""),
            "GET",
            path,
            timeout_seconds=_TIMEOUT_SECONDS,
            max_bytes=_MOST_BYTES,
        )
        if answer.status == 401 and secret and not is_safe:
            raise UnavailableError(
                f"{endpoint.address} asks for the AUTH secret, which does not go to another host "
                f"in clear text: {self._door.remedy}, and give its https:// address"
            )
        return answer, begun
