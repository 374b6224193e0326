"""From batches that consumers wrote down to how long partitions stood still. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from benchmarks.autoscaler.live.workers import Batch

_AROUND_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Move:
    """A partition's last batch with one consumer, and its first with another; stood: seconds in
    between, less what the new one worked on other batches meanwhile."""

    partition: int
    begun: float
    ended: float
    stood: float


def moves_of(batches: Sequence[Batch]) -> list[Move]:
    """Each change of a partition's consumer."""
    last: dict[int, Batch] = {}
    found = []
    for batch in batches:
        for partition in batch.partitions:
            before = last.get(partition)
            if before is not None and before.consumer != batch.consumer:
                at_work = _work(batches, batch.consumer, before.ended, batch.begun)
                stood = max(batch.begun - before.ended - at_work, 0.0)
                found.append(Move(partition, before.ended, batch.begun, stood))
            last[partition] = batch
    return found


def stays_of(batches: Sequence[Batch], moves: Sequence[Move], apart: float) -> list[float]:
    """apart: moves that are no further apart (seconds) are of one change of the group.

    For each change of the group, and each partition that stays with its consumer: the longest
    time that it stood still then, less its consumer's work on other batches."""
    found = []
    for begin, end, moved in _episodes(moves, apart):
        for partition in {p for batch in batches for p in batch.partitions} - moved:
            mine = [each for each in batches if partition in each.partitions
                    and each.ended > begin - _AROUND_SECONDS
                    and each.begun < end + _AROUND_SECONDS]  # fmt: skip
            gaps = [
                after.begun - before.ended
                - _work(batches, after.consumer, before.ended, after.begun)
                for before, after in pairwise(mine)
                if after.begun > begin and before.ended < end
            ]  # fmt: skip
            if gaps:
                found.append(max(0.0, *gaps))
    return found


def _episodes(moves: Sequence[Move], apart: float) -> list[tuple[float, float, set[int]]]:
    found: list[tuple[float, float, set[int]]] = []
    for move in sorted(moves, key=lambda each: each.begun):
        if found and move.begun < found[-1][1] + apart:
            begin, end, moved = found[-1]
            found[-1] = (begin, max(end, move.ended), moved | {move.partition})
        else:
            found.append((move.begun, move.ended, {move.partition}))
    return found


def _work(batches: Sequence[Batch], consumer: int, begin: float, end: float) -> float:
    return sum(
        max(0.0, min(each.ended, end) - max(each.begun, begin))
        for each in batches
        if each.consumer == consumer and each.begun < end and each.ended > begin
    )
