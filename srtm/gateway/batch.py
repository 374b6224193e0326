"""Batches: messages sent to nsqd at once, who gets the answer, and recent ones for matching."""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Protocol

from srtm.gateway.run import Part, Piece, Run
from srtm.nsq.commands import dpub, mpub, pub
from srtm.nsq.errors import ProtocolError

_RING_SECONDS = 10
_RING_BYTES = 16 * 1024 * 1024
_DEFERRED_SLACK_NS = 60_000_000_000
"""nsqd looks for due messages of a new channel every 5 s, and consumers have a backlog."""

_answered_at = attrgetter("answered_at")


class BatchOwner(Protocol):
    """The topic of a batch: it is told the outcome."""

    name: bytes
    deferred_until: int

    def acknowledged(self, batch: "Batch", now: int) -> None: ...
    def failed(self, batch: "Batch", error: ProtocolError) -> None: ...
    def lost(self, batch: "Batch") -> None: ...
    def not_run(self, batch: "Batch") -> None: ...
    def dropped(self, piece: Piece) -> None: ...
    def pump(self, now: int) -> None: ...


class Batch:
    """One MPUB (or DPUB) at nsqd and whom its answer is for."""

    __slots__ = ("answered_at", "count", "payload", "pieces", "size", "topic", "written_at")

    def __init__(self, topic: BatchOwner, pieces: list[Piece], payload: bytes, count: int) -> None:
        self.topic = topic
        self.pieces = pieces
        self.payload = payload
        self.size = len(payload)
        self.count = count
        self.written_at = 0
        self.answered_at = 0


class Ring:
    """The batches of the last seconds, in order, bounded in bytes."""

    __slots__ = ("_batches", "_bytes")

    def __init__(self) -> None:
        self._batches: list[Batch] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._batches)

    def append(self, batch: Batch) -> None:
        self._batches.append(batch)
        self._bytes += batch.size

    def prune(self, now: int) -> None:
        """Once a second, drop the oldest batches until the others are within the bounds."""
        batches = self._batches
        horizon = now - _RING_SECONDS * 1_000_000_000
        old = 0
        while old < len(batches) and (
            batches[old].answered_at < horizon or self._bytes > _RING_BYTES
        ):
            self._bytes -= batches[old].size
            old += 1
        del batches[:old]

    def after(self, at: int) -> Iterator[Batch]:
        """The batches that were answered after monotonic ns `at`."""
        batches = self._batches
        for index in range(bisect_right(batches, at, key=_answered_at), len(batches)):
            yield batches[index]

    def around(self, at: int, slack: int) -> Iterator[Batch]:
        """The batches that were at nsqd at monotonic ns `at`, give or take `slack`."""
        batches = self._batches
        index = bisect_left(batches, at - slack, key=_answered_at)
        while index < len(batches) and batches[index].written_at - slack <= at:
            yield batches[index]
            index += 1


def gather(owner: BatchOwner, ready: deque[Piece], room: int) -> Batch | None:
    """Take the next batch off `ready`: as many parts as one MPUB of `room` bytes may hold; a DPUB
    goes alone."""
    pieces: list[Piece] = []
    chunks: list[bytes] = []
    count = 0
    while ready:
        piece = ready[0]
        run = piece.run
        if run.void:
            ready.popleft()
            owner.dropped(piece)
            continue
        if run.defer_ms is not None:
            if pieces:
                break
            ready.popleft()
            defer_ms = _defer_left(run, piece.since)
            due = piece.since + defer_ms * 1_000_000 + _DEFERRED_SLACK_NS
            owner.deferred_until = max(owner.deferred_until, due)
            payload = dpub(owner.name, defer_ms, run.messages[0])
            return Batch(owner, [piece], payload, 1)
        length, messages = piece.count, piece.messages
        size = run.size if length == run.count else sum(map(len, messages))
        if size > room:
            if pieces:
                break
            piece = _cut(ready, room)
            length, messages = piece.count, piece.messages
            size = sum(map(len, messages))
            if size > room:
                return Batch(owner, [piece], pub(owner.name, messages[0][4:]), 1)
        else:
            ready.popleft()
        room -= size
        chunks += messages
        pieces.append(piece)
        count += length
    if not pieces:
        return None
    return Batch(owner, pieces, mpub(owner.name, chunks, count), count)


def _cut(ready: deque[Piece], room: int) -> Part:
    """The head of the first piece, single messages that are bigger than one MPUB may be. At
    least one: nsqd may take messages of a size that only a PUB can carry."""
    whole = ready[0]
    stop = whole.start
    for message in whole.messages:
        if len(message) > room and stop > whole.start:
            break
        room -= len(message)
        stop += 1
    head = Part(whole.run, whole.start, stop, whole.since, whole.step_ns)
    end = whole.start + whole.count
    if stop == end:
        ready.popleft()
    else:
        since = whole.since + int(whole.step_ns * (stop - whole.start))
        ready[0] = Part(whole.run, stop, end, since, whole.step_ns)
    return head


def messages_of(pieces: Iterable[Piece]) -> list[tuple[Run, int]]:
    """Whose messages stand in `pieces`, and how many each."""
    return [(piece.run, piece.count) for piece in pieces]


def _defer_left(run: Run, since: int) -> int:
    """A DPUB's wait counts towards its delay (milliseconds)."""
    assert run.defer_ms is not None
    return max(0, run.defer_ms - (since - run.stamp) // 1_000_000)
