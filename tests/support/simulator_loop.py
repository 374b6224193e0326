"""A consumer written the slow way, one event after the other: what the fast one must equal."""

import heapq
import math
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from srtm.autoscaler.simulator.consumer import Consumer, Partition


@dataclass(slots=True, eq=False)
class SlowPartition:
    times: list[float]
    ends: list[float] = field(default_factory=list)
    taken: int = 0  # polled
    commits: list[tuple[float, int]] = field(default_factory=list)

    def lag(self, at: float) -> int:
        committed = max((position for end, position in self.commits if end <= at), default=0)
        return sum(time < at for time in self.times) - committed


@dataclass(slots=True)
class SlowConsumer:
    """Polls everything that has arrived, max_poll at most, oldest first; serves it; commits."""

    mu: float
    max_poll: int
    free_at: float = 0.0
    partitions: list[SlowPartition] = field(default_factory=list)
    batch: list[SlowPartition] = field(default_factory=list)

    def serve(self, until: float) -> None:
        while self.free_at < until:
            if not self.batch and not self._poll(until):
                return
            if self.free_at < until:
                self._one()

    def finish_batch(self, at: float) -> float:
        self.serve(at)
        while self.batch:
            self._one()
        return max(at, self.free_at)

    def _poll(self, until: float) -> bool:
        waiting = sorted(
            (time, number, place)
            for number, partition in enumerate(self.partitions)
            for place, time in enumerate(partition.times)
            if place >= partition.taken
        )
        if not waiting or max(self.free_at, waiting[0][0]) >= until:
            return False
        self.free_at = max(self.free_at, waiting[0][0])
        ready = [number for time, number, _ in waiting if time <= self.free_at]
        self.batch = [self.partitions[number] for number in ready[: self.max_poll]]
        for partition in self.batch:
            partition.taken += 1
        return True

    def _one(self) -> None:
        partition = self.batch.pop(0)
        self.free_at += 1 / self.mu
        partition.ends.append(self.free_at)
        if not self.batch:
            for mine in self.partitions:
                mine.commits.append((self.free_at, mine.taken))


@dataclass(frozen=True, slots=True)
class Move:
    """At `at` the partition's owner is told; `gap` seconds after the end of its poll the consumer
    `to` is given the partition."""

    at: float
    partition: int
    to: int
    gap: float


def play(
    consumers: list[Consumer] | list[SlowConsumer],
    partitions: list[Partition] | list[SlowPartition],
    moves: list[Move],
    looks: list[float],
) -> list[list[int]]:
    """Run the moves and serve up to each look; the partitions' lags at each. The partitions are
    dealt out in turn at the start."""
    for number, partition in enumerate(partitions):
        consumers[number % len(consumers)].partitions.append(partition)  # type: ignore[arg-type]
    order = count()
    agenda: list[tuple[float, int, Move | None, bool]] = []
    for move in moves:
        heapq.heappush(agenda, (move.at, next(order), move, False))
    for look in looks:
        heapq.heappush(agenda, (look, next(order), None, False))
    lags = []
    while agenda:
        at, _, move_or_look, taking = heapq.heappop(agenda)
        if move_or_look is None:
            for consumer in consumers:
                consumer.serve(at)
            lags.append([partition.lag(at) for partition in partitions])
            continue
        move = move_or_look
        moved = partitions[move.partition]
        if taking:
            taker = consumers[move.to]
            taker.free_at = taker.finish_batch(at)
            taker.partitions.append(moved)  # type: ignore[arg-type]
            continue
        for consumer in consumers:
            if any(moved is own for own in consumer.partitions):
                end = consumer.finish_batch(at)
                consumer.partitions.remove(moved)  # type: ignore[arg-type]
                heapq.heappush(agenda, (end + move.gap, next(order), move, True))
    for consumer in consumers:
        consumer.serve(math.inf if isinstance(consumer, SlowConsumer) else 1e6)
    return lags


def fast(times: list[list[float]]) -> list[Partition]:
    return [Partition(np.array(mine, dtype=np.float64)) for mine in times]


def slow(times: list[list[float]]) -> list[SlowPartition]:
    return [SlowPartition(list(mine)) for mine in times]
