"""One simulated consumer: it serves the events of its partitions one after the other, exactly.

Events are served in order of arrival, without pause while any is there, 1/μ each. A window of time
is computed at once: with arrivals a and service time D, the ends are
    f_i = D (i + 1) + max over j <= i of (max(a_j, ready) - D j)
(Lindley's recursion, unrolled), so that a million events cost seconds in Python.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

INSTANT = 1e-9
"""Seconds within which two moments are one: a thousand times the rounding of a day."""


class Partition:
    """A partition's events and how far they are served (position) and committed."""

    __slots__ = ("committed", "ends", "position", "times")

    def __init__(self, times: Floats) -> None:
        self.times = times
        self.ends = np.full(len(times), math.inf)
        self.position = 0
        self.committed = 0

    def arrived(self, at: float) -> int:
        """Events that arrived before `at`."""
        return int(self.times.searchsorted(at))

    def lag(self, at: float) -> int:
        """Events that arrived before `at` and are not committed."""
        return self.arrived(at) - self.committed


@dataclass(slots=True, eq=False)
class Consumer:
    """A simulated consumer. It is billed from launched_at to left_at; free_at is the end of the
    service under way."""

    id: str
    mu: float
    launched_at: float
    max_poll: int
    heartbeat_phase: float = 0.0
    joined_at: float = math.inf
    left_at: float = math.inf
    free_at: float = 0.0
    partitions: list[Partition] = field(default_factory=list)
    _batch_left: int = 0
    _uncommitted: tuple[float, list[tuple[Partition, int]]] | None = None

    def serve(self, until: float) -> None:
        """Serve every event whose service begins before `until`."""
        if self.partitions and self.free_at < until:
            self._serve(until, math.inf)
        self._commit(until)

    def finish_batch(self, at: float) -> float:
        """Serve up to `at` and then what is left of the poll under way. Returns the end of it, `at`
        or later: a member can leave, give up partitions or take some up only there. That poll is
        committed at its end, whoever has the partitions by then."""
        self.serve(at)
        if self._batch_left:
            self._serve(math.inf, self._batch_left)
        return max(at, self.free_at)

    def _serve(self, until: float, limit: float) -> None:
        service = 1.0 / self.mu
        room = limit
        if until < math.inf:
            room = (until - self.free_at) * self.mu + 2
        reach = int(room) + self.max_poll  # a poll may take more than is served in this window
        taken: list[Floats] = []
        counts: list[int] = []
        for partition in self.partitions:
            start = partition.position
            stop = min(partition.arrived(until), start + reach)
            taken.append(partition.times[start:stop])
            counts.append(stop - start)
        if not any(counts):
            return
        whose: NDArray[np.int64] | None = None
        if len(taken) == 1:
            arrivals = taken[0]
        else:
            merged = np.concatenate(taken)
            order = merged.argsort(kind="stable")
            arrivals = merged[order]
            whose = np.repeat(np.arange(len(counts)), counts)[order]
        spent = service * np.arange(len(arrivals) + 1)
        ready = np.maximum(arrivals, self.free_at)
        starts = np.maximum.accumulate(ready - spent[:-1]) + spent[:-1]
        starts = np.maximum(starts, ready)  # rounding can put a start an ulp before its event
        # A service that begins as a window ends begins after it, whatever the rounding. How often
        # a run is looked at would else decide which poll ends as a member is told of a rebalance.
        served = int(min(starts.searchsorted(until - INSTANT), limit))
        if not served:
            return
        ends = starts[:served] + service
        self.free_at = float(ends[-1])
        for boundary in self._follow_polls(arrivals, starts, served):
            at = float(ends[boundary - 1])
            self._commit(at)
            done = [boundary] if whose is None else np.bincount(whose[:boundary]).tolist()
            self._uncommitted = (
                at,
                [
                    (partition, partition.position + count)
                    for partition, count in zip(self.partitions, done, strict=False)
                ],
            )
        for index, partition in enumerate(self.partitions):
            mine = ends if whose is None else ends[whose[:served] == index]
            partition.ends[partition.position : partition.position + len(mine)] = mine
            partition.position += len(mine)

    def _follow_polls(self, arrivals: Floats, starts: Floats, served: int) -> list[int]:
        """Follow the polls of this window: each takes all that has arrived by then, up to max_poll.
        Returns the ends of the last polls that are served whole in this window, two at most: the
        last may still be in its last event when the window ends."""
        if self._batch_left > served:
            self._batch_left -= served
            return []
        position = self._batch_left
        done = [position] if position else []
        reach = arrivals.searchsorted(starts[:served], side="right").tolist()
        while position < served:
            position = min(reach[position], position + self.max_poll)
            if position <= served:
                done.append(position)
        self._batch_left = position - served
        return done[-2:]

    def _commit(self, at: float) -> None:
        if self._uncommitted is not None and self._uncommitted[0] <= at:
            for partition, position in self._uncommitted[1]:
                # The next owner may have committed more already.
                partition.committed = max(partition.committed, position)
            self._uncommitted = None
