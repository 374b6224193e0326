"""A load's publishers follow the Load Distributor: the watch of `srtm.client`, in its own thread.

The thread only listens and opens connections; what it has found waits in a queue for the run's
loop, which `fd` wakes.
"""

import asyncio
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from socket import socket

from srtm.client.place import Place
from srtm.client.watch import MAX_IDS, Subject, Watch
from srtm.http.client import Endpoint
from srtm.text.errors import SrtmError, UnavailableError

log = logging.getLogger("srtm.load")

_RETRY_SECONDS = 1.0
_DIALS = 8
"""connections that are opened at once: a move takes milliseconds where the broker is near"""


@dataclass(frozen=True, slots=True)
class Going:
    """Publisher `index` is to leave for `address`; "": nowhere, it waits where it is."""

    index: int
    address: str


@dataclass(frozen=True, slots=True)
class Arrived:
    """A connection for publisher `index`; None: one that consumes at `address`."""

    index: int | None
    address: str
    sock: socket


Step = Going | Arrived


class Follower:
    """Made with the publishers' ids and the addresses that they start at, in order of their
    indexes."""

    def __init__(
        self, endpoint: Endpoint, topic: str, ids: Sequence[str], at: Sequence[str]
    ) -> None:
        self._subject = Subject(endpoint, topic)
        self._ids = ids
        self.at = list(at)
        self._steps: deque[Step] = deque()
        self._thread = threading.Thread(target=self._work, name="follower", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = asyncio.Event()
        self._consumers: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.problems: dict[str, str] = {}
        """by address: why connections to it could not be had"""

    def start(
        self,
        dial: Callable[[str, int], socket],
        consume: Callable[[str], socket] | None,
    ) -> None:
        """dial: opens a connection for a publisher, ready for its first PUB; consume: one that is
        subscribed; None: nothing is consumed. Both block, and raise UnavailableError."""
        self._dial, self._consume, self._consumed = dial, consume, set(self.at)
        self._pool = ThreadPoolExecutor(_DIALS, "dial")
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and close what nobody took."""
        if self._thread.is_alive():
            while self._loop is None:
                self._thread.join(0.01)
            self._loop.call_soon_threadsafe(self._stopped.set)
            self._thread.join()
            self._pool.shutdown(wait=False, cancel_futures=True)
        for step in self.take():
            if isinstance(step, Arrived):
                step.sock.close()
        os.close(self.fd)

    def take(self) -> list[Step]:
        """What has come since the last call."""
        try:
            os.eventfd_read(self.fd)
        except BlockingIOError:
            return []
        steps = []
        while self._steps:
            steps.append(self._steps.popleft())
        return steps

    # --- in its thread ------------------------------------------------------------------------

    def _work(self) -> None:
        asyncio.run(self._follow())

    async def _follow(self) -> None:
        self._loop = asyncio.get_running_loop()
        watches = []
        for first in range(0, len(self._ids), MAX_IDS):
            watch = Watch(self._subject)
            watches.append(watch)
            for index in range(first, min(first + MAX_IDS, len(self._ids))):
                watch.add(_Member(self._ids[index], index, self.at[index], self._placed))
        await self._stopped.wait()
        for each in watches:
            each.end()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _placed(self, member: "_Member") -> None:
        self._say(Going(member.index, member.address))
        if member.address:
            task = asyncio.create_task(self._connect(member, member.address))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _connect(self, member: "_Member", address: str) -> None:
        """Try to connect the publisher until it is there, or sent elsewhere."""
        if self._consume is not None and address not in self._consumed:
            if address not in self._consumers:
                task = asyncio.create_task(self._subscribe(address))
                self._consumers[address] = task
                self._tasks.add(task)
            await asyncio.shield(self._consumers[address])
        while member.address == address:
            sock = await self._try(address, lambda: self._dial(address, member.index))
            if sock is not None:
                self._say(Arrived(member.index, address, sock))
                return
            await asyncio.sleep(_RETRY_SECONDS)

    async def _subscribe(self, address: str) -> None:
        """Subscribe at `address` before the first message, so that the channel is there."""
        consume = self._consume
        assert consume is not None
        while (sock := await self._try(address, lambda: consume(address))) is None:
            await asyncio.sleep(_RETRY_SECONDS)
        self._consumed.add(address)
        self._say(Arrived(None, address, sock))

    async def _try(self, address: str, call: Callable[[], socket]) -> socket | None:
        try:
            sock = await asyncio.get_running_loop().run_in_executor(self._pool, call)
        except UnavailableError as error:
            self.problems[address] = str(error)
            return None
        self.problems.pop(address, None)
        return sock

    def _say(self, step: Step) -> None:
        self._steps.append(step)
        os.eventfd_write(self.fd, 1)


class _Member:
    """One publisher, as its watch knows it. It is registered already."""

    key: str | None = None
    rate: float | None = None

    def __init__(
        self, id: str, index: int, address: str, placed: Callable[["_Member"], None]
    ) -> None:
        self.id = id
        self.index = index
        self.address = address
        self._epoch = 0
        self._placed = placed

    def placed(self, place: Place) -> None:
        if place.epoch < self._epoch:
            return
        is_new = place.address != self.address
        self._epoch, self.address = place.epoch, place.address
        if is_new:
            self._placed(self)

    def unplaced(self) -> None:
        self.placed(Place(""))

    def unanswered(self, why: str) -> None:
        """The publisher goes on where it is; the watch has logged why."""

    def failed(self, error: SrtmError) -> bool:
        """A publisher that is refused goes on where it is."""
        log.warning("%s", error)
        return False
