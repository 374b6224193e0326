"""The runs of one topic that wait for tokens, max-min fair over their publishers.

It is deficit round robin (Shreedhar, Varghese: Efficient Fair Queuing using Deficit Round Robin,
SIGCOMM 1995) with a quantum of one token: in each round every publisher that waits saves one token,
and goes when it has saved what its first run costs: 1 for a single message, n for a batch of n. So
a publisher gets as many tokens as any other that waits, but for its largest batch, and one that
sends no more than its part waits for no more than one round. Rounds in which nobody has saved
enough are not gone through: a publisher's next round is known as soon as its run stands first.

Whoever has nothing waiting has nothing saved, and leaves no trace. Fair is what happens at each
token's own time: a gateway that was late hands tokens out as if it had not been.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heappush

from srtm.gateway.arrival_order import ArrivalOrder, insert
from srtm.gateway.run import Run

_SPARE = 16
"""entries that may be out of date besides as many as are in use"""


class Line:
    """What waits of one publisher.

    runs:  in order of stamp; the first is not void
    since: the last round in which it got a token, or the one in which it came
    """

    __slots__ = ("runs", "since")

    def __init__(self, since: int) -> None:
        self.runs: deque[Run] = deque()
        self.since = since

    @property
    def turn(self) -> int:
        """The round in which it has saved what its first run costs."""
        run = self.runs[0]
        return self.since + (run.count if run.atomic else 1)


class Ranks:
    """Lines by rank, the least first; of equal ones that which got its rank first."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Line]] = []
        self._entries: dict[Line, int] = {}  # the number of the entry that counts
        self._number = 0

    def __len__(self) -> int:
        """Entries, also those that are out of date."""
        return len(self._heap)

    def put(self, line: Line, rank: int) -> None:
        """Give a line its rank; the one that it had before counts no more."""
        self._number += 1
        self._entries[line] = self._number
        heappush(self._heap, (rank, self._number, line))
        self._trim()

    def drop(self, line: Line) -> None:
        del self._entries[line]
        self._trim()

    def first(self) -> Line:
        """There is one."""
        heap, entries = self._heap, self._entries
        while entries.get(heap[0][2]) != heap[0][1]:
            heappop(heap)
        return heap[0][2]

    def _trim(self) -> None:
        """No more memory than those take that are there."""
        entries = self._entries
        if not entries:
            self._heap.clear()
        elif len(self._heap) > 2 * len(entries) + _SPARE:
            self._heap = [each for each in self._heap if entries.get(each[2]) == each[1]]
            heapify(self._heap)


class FairOrder(ArrivalOrder):
    """A run stands in `_runs`, in order of arrival, until a token has come after it. Then it stands
    in the line of its publisher.

    keys: publisher -> the name under which it waits together with others, where it has one
    """

    def __init__(self, keys: Mapping[str, str]) -> None:
        super().__init__()
        self._keys = keys
        self._lines: dict[str, Line] = {}
        self._in_lines = 0
        self._turns = Ranks()
        self._ages = Ranks()
        self._round = 0

    def __len__(self) -> int:
        return self._in_lines + len(self._runs)

    def __iter__(self) -> Iterator[Run]:
        runs = [run for line in self._lines.values() for run in line.runs]
        return iter(runs + list(self._runs))

    def add(self, run: Run) -> None:
        publisher = run.owner.publisher
        run.line = self._keys.get(publisher, publisher)
        insert(self._runs, run)

    def first(self, at: int) -> Run | None:
        self._let_in(at)
        if not self._lines:
            return None
        line = self._turns.first()
        self._round = max(self._round, line.turn)  # who comes from now on has a later one
        return line.runs[0]

    def oldest(self) -> Run | None:
        runs = self._runs
        if not self._lines:
            return runs[0] if runs else None
        run = self._ages.first().runs[0]
        return runs[0] if runs and runs[0].stamp < run.stamp else run

    def in_a_row(self, run: Run) -> int:
        is_alone = len(self._lines) == 1 and not self._runs
        return run.count - run.admitted if is_alone else 1

    def advance(self, run: Run, at: int) -> None:
        line = self._lines[run.line]
        line.since = self._round
        if run.admitted == run.count:
            self._next(line)
        self._let_in(at)
        if line.runs:
            self._turns.put(line, line.turn)  # behind all who have come and wait for that round

    def remove(self, run: Run) -> None:
        line, runs = self._lines.get(run.line), self._runs
        if line is not None and line.runs[0] is run:
            self._next(line)
        elif line is None or (runs and runs[0] is run) or run not in line.runs:
            super().remove(run)
        else:
            line.runs.remove(run)
            self._in_lines -= 1

    def left(self, run: Run) -> None:
        line = self._lines.get(run.line)
        if line is not None and line.runs[0] is run:
            self._next(line)
        self._skip_void()

    def drop_void(self) -> None:
        super().drop_void()
        self._in_lines = 0
        for line in self._lines.values():  # none changes its turn: the first run is not void
            line.runs = deque(run for run in line.runs if not run.void)
            self._in_lines += len(line.runs)

    def clear(self) -> None:
        super().clear()
        self._lines.clear()
        self._in_lines = 0
        self._turns, self._ages = Ranks(), Ranks()

    def _let_in(self, at: int) -> None:
        """Those who have come by `at` are in their lines from now on; who comes first always is."""
        runs, lines = self._runs, self._lines
        while runs and (runs[0].stamp <= at or not lines):
            self._join(runs.popleft())
            self._skip_void()

    def _join(self, run: Run) -> None:
        """From this round on it saves tokens, or waits behind others of its line."""
        self._in_lines += 1
        line = self._lines.get(run.line)
        if line is None:
            line = self._lines[run.line] = Line(self._round)
            line.runs.append(run)
            self._turns.put(line, line.turn)
        else:
            turn = line.turn
            insert(line.runs, run)
            if line.runs[0] is not run:
                return
            self._new_first(line, turn)
        self._ages.put(line, run.stamp)

    def _next(self, line: Line) -> None:
        """The first run of a line has gone. What the line has saved is the next one's."""
        runs, turn, name = line.runs, line.turn, line.runs[0].line
        runs.popleft()
        self._in_lines -= 1
        while runs and runs[0].void:
            runs.popleft()
            self._in_lines -= 1
        if runs:
            self._new_first(line, turn)
            self._ages.put(line, runs[0].stamp)
        else:
            del self._lines[name]
            self._turns.drop(line)
            self._ages.drop(line)

    def _new_first(self, line: Line, turn: int) -> None:
        """`turn` was that of the one before."""
        if line.turn != turn:
            self._turns.put(line, line.turn)
