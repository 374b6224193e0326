"""The writer of the state file: a thread beside the loop that makes one write after the other.

A batch that leaves a bigger debt than the file knows goes to nsqd once the debt is on disk, or a
kill -9 would forget it. Its own topic waits for that, and no other.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from srtm.gateway.state import Kept, SavedState
from srtm.gateway.topic import Topic
from srtm.host.clock import monotonic_ns

log = logging.getLogger("srtm.gateway")

_ROOM = 1.25
"""A debt is written with room for somewhat bigger ones: batches that grow wait a few times only."""


class StateWriter:
    """The writer of the state file. All of it is the loop's to call."""

    def __init__(
        self,
        state: SavedState,
        topics: Callable[[bool], dict[str, Kept]],
        pump: Callable[[Topic, int], None],
    ) -> None:
        """topics: what is to be written of them; True: of a clean stop. pump: sends what waited for
        the disk."""
        self._state = state
        self._topics = topics
        self._pump = pump
        self._disk = ThreadPoolExecutor(1, "state")
        self._writing: Future[None] | None = None
        self._owing: list[Topic] = []  # a debt of theirs is in no write yet
        self._being_written: list[Topic] = []

    def write(self, clean: bool) -> None:
        """Write the file, and wait for the disk; `clean`: the levels in it will still hold at the
        next start. Else it has the least that may be there after a crash."""
        self._run(self._state.writer(self._topics(clean), clean))

    def write_soon(self) -> Future[None]:
        """Write it beside the loop: messages do not wait for the disk. `written` does."""
        write = self._state.writer(self._topics(False), False)
        self._writing = self._disk.submit(self._run, write)
        return self._writing

    async def written(self) -> None:
        """What was to be kept by now is on disk: whoever asked for it may be answered."""
        if self._writing is not None:
            await asyncio.wrap_future(self._writing)

    def _run(self, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            log.error("--state-file %s: %s", self._state.path, error.strerror)

    # --- debts --------------------------------------------------------------------------------

    def owe(self, topic: Topic, debt: float) -> None:
        """`debt` in tokens: `write_debts` is due if the file does not cover it."""
        if debt > topic.most_owed:
            topic.most_owed = debt * _ROOM
            if self._state.path is not None:
                topic.awaits_disk = True
                self._owing.append(topic)

    def write_debts(self) -> None:
        """Write the debts of all topics at once, and those that come meanwhile with the next
        write."""
        if self._owing and not self._being_written:
            self._being_written, self._owing = self._owing, []
            loop = asyncio.get_running_loop()
            self.write_soon().add_done_callback(
                lambda _: loop.call_soon_threadsafe(self._debts_written)
            )

    def _debts_written(self) -> None:
        written, self._being_written = self._being_written, []
        self.write_debts()
        for topic in written:
            if topic not in self._owing and topic not in self._being_written:
                topic.awaits_disk = False
                self._pump(topic, monotonic_ns())

    def close(self) -> None:
        """End the thread once what is being written is on disk."""
        self._disk.shutdown()
