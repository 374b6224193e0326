"""Writes of many requests in one transaction, so that all that wait share one fsync."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from distributor.store import Statement, Store, StoreError, StoreLost
from srtm.host.clock import monotonic_ns
from srtm.limits.sketch import LatencySketch

_MOST = 10_000
"""requests in one transaction"""


class Committer:
    """The one way to the store, in the order of the calls, off the event loop."""

    def __init__(
        self, store: Store, thread: ThreadPoolExecutor, lost: Callable[[StoreLost], None]
    ) -> None:
        """lost: called when the outcome of a write is unknown."""
        self._store = store
        self._thread = thread
        self._lost = lost
        self._waiting: list[tuple[Sequence[Statement], asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None
        self.writes = 0
        self.times = LatencySketch()
        """how long each transaction took"""

    async def write(self, statements: Sequence[Statement]) -> None:
        """Write the statements: they are on disk when this returns. Raises StoreError where none of
        them was kept, and StoreLost where that is unknown."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((statements, done))
        if self._task is None:
            self._task = asyncio.create_task(self._drain())
        await done

    async def _drain(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                taken, self._waiting = self._waiting[:_MOST], self._waiting[_MOST:]
                statements = [each for many, _ in taken for each in many]
                started = monotonic_ns()
                failure: Exception | None = None
                try:
                    await loop.run_in_executor(self._thread, self._store.write, statements)
                except Exception as error:
                    failure = error
                ended = monotonic_ns()
                if isinstance(failure, StoreLost):
                    self._lost(failure)
                self.writes += len(taken)
                self.times.add(ended - started, 1)
                self.times.fold(ended)
                for _, done in taken:
                    if done.done():  # its request is gone
                        continue
                    if failure is None:
                        done.set_result(None)
                    elif isinstance(failure, StoreError):
                        done.set_exception(type(failure)(str(failure)))
                    else:
                        done.set_exception(failure)
        finally:
            self._task = None
