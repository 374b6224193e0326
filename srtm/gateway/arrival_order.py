"""The runs of one topic that wait for tokens, in order of arrival over all publishers.

It is what a topic asks of such a queue; `fair_order.py` has another one. Times are monotonic
nanoseconds.
"""

from collections import deque
from collections.abc import Iterable, Iterator

from srtm.gateway.run import Run


def insert(runs: deque[Run], run: Run) -> None:
    """Insert a run in order of stamp, also when read late."""
    stamp = run.stamp
    place = len(runs)
    while place and runs[place - 1].stamp > stamp:
        place -= 1
    runs.insert(place, run)


class ArrivalOrder:
    """See the module. Void runs may stand among the others, but nowhere in front."""

    def __init__(self) -> None:
        self._runs: deque[Run] = deque()

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Run]:
        """All runs; those of one publisher in order of stamp."""
        return iter(list(self._runs))

    def add(self, run: Run) -> None:
        insert(self._runs, run)

    def extend(self, runs: Iterable[Run]) -> None:
        for run in runs:
            self.add(run)

    def first(self, at: int) -> Run | None:
        """Whose turn it is at bucket time `at`; None: nobody waits."""
        return self._runs[0] if self._runs else None

    def oldest(self) -> Run | None:
        """Who has waited longest; None: nobody waits."""
        return self._runs[0] if self._runs else None

    def in_a_row(self, run: Run) -> int:
        """How many single messages of `run`, whose turn it is, may get their tokens at once."""
        return run.count - run.admitted

    def advance(self, run: Run, at: int) -> None:
        """`run`, whose turn it was, has got tokens, at bucket time `at` the last of them: it leaves
        if it has all of its own."""
        if run.admitted == run.count:
            self._runs.popleft()
            self._skip_void()

    def remove(self, run: Run) -> None:
        """`run` waits here, and no longer."""
        if self._runs[0] is run:
            self._runs.popleft()
        else:
            self._runs.remove(run)
        self._skip_void()

    def left(self, run: Run) -> None:
        """`run`, which may wait here, has become void."""
        self._skip_void()

    def drop_void(self) -> None:
        """Forget the void runs that stand among the others."""
        self._runs = deque(run for run in self._runs if not run.void)

    def take_all(self) -> list[Run]:
        """Take everything out, void runs too."""
        runs = list(self)
        self.clear()
        return runs

    def clear(self) -> None:
        self._runs.clear()

    def _skip_void(self) -> None:
        runs = self._runs
        while runs and runs[0].void:
            runs.popleft()
