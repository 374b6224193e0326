"""When the messages of a topic arrived, as a journey asks for it (see `srtm.journey`).

nsqd's time stands in each message, and falls between the writing and the answer of the MPUB that
carried it; a checksum of the body tells it from the others of that time. So whoever has a message
finds its arrival in what is told here, without a byte of ours in it.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from srtm.gateway.batch import Batch, Ring
from srtm.gateway.run import Piece
from srtm.limits.slots import level_for, level_of, slot_of
from srtm.nsq.checksum import checksum
from srtm.nsq.commands import elements

MOST_PER_SECOND = 2_000
"""messages of a topic that are told"""
MOST_AT_ONCE = 500
"""checksums and pieces of one answer: a millisecond of the loop, and some 40 KiB"""
_MOST_LOOKED_AT = 2_000
"""batches, told or not"""
_MANY = 100
"""Messages of one piece from which on no checksums are told: nearly all that nsqd received
meanwhile are of it."""


def arrivals(ring: Ring, since: int, now: int, offset_ns: int) -> dict[str, Any]:
    """What the ring has of batches that were answered after `since`, as a document.

    since, now: monotonic nanoseconds; offset_ns: of the wall clock from that. A `since` that is
                still to come is of another process, and everything is told

    count:   messages that nsqd acknowledged in the span, told or not
    span:    wall-clock nanoseconds of the answers of nsqd that this document is about
    cursor:  what the next question gives as `since`; more: there is more to be told at once
    level:   only batches of slots of this level and above are told (srtm/limits/slots.py)
    batches: (written, answered, pieces): wall-clock nanoseconds between which nsqd received it; a
             piece is (arrival, token of its first message, nanoseconds between tokens, checksums),
             where no checksum stands for any message
    """
    since = since if since <= now else 0
    found = list(islice(ring.after(since), _MOST_LOOKED_AT + 1))
    is_cut = len(found) > _MOST_LOOKED_AT
    if is_cut:
        del found[-1]
        now = found[-1].answered_at
    messages = sum(batch.count for batch in found)
    seconds = (now - max(since, found[0].written_at)) / 1e9 if found else 0.0
    level = level_for(messages, MOST_PER_SECOND * max(seconds, 0.1))
    cursor, told, count, rows = since, 0, 0, []
    for batch in found:
        if told >= MOST_AT_ONCE and batch.answered_at > cursor:
            break
        cursor = batch.answered_at
        count += batch.count
        written, answered = batch.written_at + offset_ns, batch.answered_at + offset_ns
        if _is_told(written, answered, level):
            pieces = list(_pieces(batch, offset_ns))
            told += 1 + sum(1 + len(sums) for *_, sums in pieces)
            rows.append([written, answered, pieces])
    begun = max(since, found[0].written_at) if found else since
    return {
        "count": count,
        "span": [begun + offset_ns, cursor + offset_ns],
        "cursor": cursor,
        "more": bool(found) and (is_cut or cursor < found[-1].answered_at),
        "level": level,
        "batches": rows,
    }


def _is_told(written: int, answered: int, level: int) -> bool:
    slots = range(slot_of(written), slot_of(answered) + 1)
    # A batch that took so long lies in a slot of every level, or nearly so.
    return len(slots) > 1 << level or any(level_of(slot) >= level for slot in slots)


def _pieces(batch: Batch, offset_ns: int) -> Iterator[list[Any]]:
    for piece in batch.pieces:
        # A deferred message is late because somebody wants it; the messages of a client that has
        # gone are not kept.
        if piece.run.defer_ms is None and piece.messages:
            yield [
                piece.run.stamp + offset_ns,
                piece.since + offset_ns,
                piece.step_ns,
                list(_checksums(piece)),
            ]


def _checksums(piece: Piece) -> Iterator[int]:
    if piece.count > _MANY:
        return
    messages = piece.messages
    for element in elements(messages[0]) if piece.run.atomic else messages:
        yield checksum(element[4:])
