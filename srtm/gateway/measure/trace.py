"""The trace of arrivals, as the loop sees it: lists that topics append to, a row for each run.

A few times a second, or when there are many, they are handed over as one chunk of bytes; a process
of its own makes Parquet of them (srtm/traces). Where it falls behind, rows are dropped and their
messages counted.
"""

from collections.abc import Callable
from itertools import islice
from typing import Protocol, TypeVar

from srtm.gateway.measure.cadence import Cadence
from srtm.gateway.run import Run
from srtm.traces import chunk
from srtm.traces.chunk import ADMITTED, NO_WAIT

FLUSH_NS = 200_000_000
"""The time between two hand-overs. Each wakes the process that writes, for 0.1 ms or more; a kill
-9 of the gateway takes what came since."""
_MOST_ROWS = 1_000
"""that are handed over at once, in about 0.3 ms"""
_MOST_NAMES = 100_000
"""that both sides remember"""

Name = TypeVar("Name", bytes, str)


class Rows(Protocol):
    """Who takes them. See `TraceProcess`."""

    dropped: int
    """messages"""
    generation: int
    """another one when it has forgotten all names"""

    def put(self, data: bytes, messages: int) -> bool:
        """False where it takes no more."""


class Trace:
    """Times are monotonic nanoseconds."""

    def __init__(self, rows: Rows, call_at: Callable[[int, Callable[[int], None]], None]) -> None:
        self._rows = rows
        self._times: list[int] = []
        self._topics: list[bytes] = []
        self._publishers: list[str] = []
        self._counts: list[int] = []
        self._sizes: list[int] = []
        self._waits: list[int] = []
        self._outcomes: list[int] = []
        self._topic_numbers: dict[bytes, int] = {}
        self._publisher_numbers: dict[str, int] = {}
        self._generation = -1
        self._offset_ns = 0
        self._cadence = Cadence(FLUSH_NS, call_at, self.flush)

    # --- what it is told ------------------------------------------------------------------------

    def passed(self, topic: bytes, runs: list[Run]) -> None:
        """They needed no tokens."""
        for run in runs:
            self._row(topic, run, run.count, run.size, 0, ADMITTED)

    def admitted(self, topic: bytes, run: Run, wait: int) -> None:
        """Note a run that has all its tokens; its last message waited so long for its own."""
        self._row(topic, run, run.count, run.size, wait, ADMITTED)

    def ended(self, topic: bytes, run: Run, outcome: int) -> None:
        """What has no token of it never gets one. Before the topic has done with it."""
        left = run.without_token
        if not run.size or not left:
            return
        size = run.size
        if run.admitted:
            there = sum(map(len, run.messages[: run.admitted]))
            self._row(topic, run, run.admitted, there, run.since - run.stamp, ADMITTED)
            size -= there
        self._row(topic, run, left, size, NO_WAIT, outcome)

    def _row(self, topic: bytes, run: Run, count: int, size: int, wait: int, outcome: int) -> None:
        if not size:
            return  # it was given up before it was decided, and has its row
        self._times.append(run.stamp)
        self._topics.append(topic)
        self._publishers.append(run.owner.publisher)
        self._counts.append(count)
        self._sizes.append(size)
        self._waits.append(wait)
        self._outcomes.append(outcome)

    def clock(self, offset_ns: int) -> None:
        """Wall clock minus monotonic."""
        self._offset_ns = offset_ns

    # --- handing over ---------------------------------------------------------------------------

    def stage(self, now: int, horizon: int) -> bool:
        """Ask for a hand-over where there are rows, at once where they are many; after each wake-up
        of the gateway."""
        if self._times:
            if len(self._times) >= _MOST_ROWS:
                self.flush(now)
            else:
                self._cadence.wish(now)
        return False

    def flush(self, now: int) -> None:
        """Hand over all that there is."""
        self._cadence.at = now
        times, self._times = self._times, []
        topics, self._topics = self._topics, []
        publishers, self._publishers = self._publishers, []
        counts, self._counts = self._counts, []
        sizes, self._sizes = self._sizes, []
        waits, self._waits = self._waits, []
        outcomes, self._outcomes = self._outcomes, []
        if not times:
            return
        anew = (
            self._generation != self._rows.generation
            or len(self._publisher_numbers) + len(self._topic_numbers) > _MOST_NAMES
        )
        if anew:
            self._generation = self._rows.generation
            self._topic_numbers, self._publisher_numbers = {}, {}
        topic_numbers, new_topics = _numbered(self._topic_numbers, topics)
        publisher_numbers, new_publishers = _numbered(self._publisher_numbers, publishers)
        names = [name.decode() for name in new_topics], new_publishers
        columns = (times, topic_numbers, publisher_numbers, counts, sizes, waits, outcomes)
        data = chunk.build(anew, self._offset_ns, names, columns)
        messages = sum(counts)
        if not self._rows.put(data, messages):
            self._rows.dropped += messages
            self._generation = -1  # nor were names told


def _numbered(numbers: dict[Name, int], names: list[Name]) -> tuple[list[int], list[Name]]:
    """The number of each, and the names that had none before, in order of their numbers."""
    before = len(numbers)
    found = [numbers.setdefault(name, len(numbers)) for name in names]
    return found, list(islice(numbers, before, None))
