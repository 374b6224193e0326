"""What a distributor that stands by answers reads with: all that the leader has written."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import NamedTuple

from distributor.control.committer import Committer
from distributor.control.restored import restored
from distributor.control.service import Distributor
from distributor.errors import NotLeading
from distributor.store import Statement, open_to_read
from srtm.text.errors import SrtmError

_FRESH_SECONDS = 1.0
_REST = 10.0
"""A large store takes seconds to read: so many times as long goes by until it is read again."""
_PATIENCE_SECONDS = 2.0
"""for which a request waits for the store, before it is answered with what was read before"""


class Read(NamedTuple):
    """The service as of a moment, which only answers reads. at: seconds, of the moment"""

    service: Distributor
    at: float


class _NoWrites(Committer):
    """Refuses what a read would write."""

    async def write(self, statements: Sequence[Statement]) -> None:
        raise NotLeading("this distributor does not lead")


class Replica:
    """Reads the store when somebody asks, in a thread and by a connection of its own: who waits to
    lead must not wait for it."""

    def __init__(
        self,
        store: str,
        lease_seconds: float,
        now: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        """store: where it is"""
        self._where = store
        self._lease_seconds = lease_seconds
        self._now = now
        self._wall = wall
        self._thread = ThreadPoolExecutor(1, "replica")
        self._reading: asyncio.Future[Distributor] | None = None
        self._kept: Read | None = None
        self._again_at = now()
        self._why_not = ""

    async def read(self) -> Read:
        """The store as of a second ago, or older where it is large, or cannot be read now. Raises
        NotLeading where it could not be read at all."""
        if self._reading is None and self._now() >= self._again_at:
            begun, loop = self._now(), asyncio.get_running_loop()
            self._reading = loop.run_in_executor(self._thread, self._service)
            self._reading.add_done_callback(lambda done: self._take(done, begun))
        if self._reading is not None:
            await asyncio.wait([self._reading], timeout=_PATIENCE_SECONDS)
        if self._kept is None:
            raise NotLeading(
                "this distributor does not lead, and cannot read the store: "
                f"{self._why_not or 'that takes long'}"
            )
        return self._kept

    def forget(self) -> None:
        """This process leads: nobody asks any more. A read that is under way is for nobody."""
        self._kept = self._reading = None
        self._again_at = self._now()

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _service(self) -> Distributor:
        with closing(open_to_read(self._where)) as store:
            state = restored(store.at_one_instant(), self._now())
        state.is_replica = True
        committer = _NoWrites(store, self._thread, lambda error: None)
        return Distributor(state, committer, self._lease_seconds, self._now, self._wall)

    def _take(self, done: "asyncio.Future[Distributor]", begun: float) -> None:
        error = None if done.cancelled() else done.exception()
        if done is not self._reading:
            return
        self._reading = None
        now = self._now()
        self._again_at = now + max(_FRESH_SECONDS, _REST * (now - begun))
        if done.cancelled():
            return
        if error is None:
            self._kept = Read(done.result(), begun)
        elif isinstance(error, SrtmError):
            self._why_not = str(error)
        else:
            raise error
