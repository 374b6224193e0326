"""The reader of a BPF ring buffer (kernel/bpf/ringbuf.c), many records at a time.

Kernel and reader share memory without a lock: the kernel fills slots and moves the producer's
position, the reader empties them and moves the consumer's. The reader's order is

    producer's position -> slots' headers -> records -> consumer's position

each read before the next, the last one written after all reads. On x86-64 loads are not reordered
with loads, nor a store with an earlier load, so that plain accesses do; each is one call into the
interpreter, which the compiler does not reorder either. Other machines would need barriers that
Python does not have: `map_ring` refuses them. A `memoryview` of format Q or I reads an aligned
number in one load; `struct` may do it byte by byte, and serves only for what is complete.

The kernel maps the data twice in a row, so that what wraps round lies in one piece.
"""

import mmap
import platform
import struct

from kernel.errors import SourceUnavailable
from kernel.records import RECORD, Record

SLOT = struct.Struct("@8x" + RECORD.format.lstrip("="))
"""A record behind the ring's header (length and flags, page), 64 bytes, at native speed."""

_BUSY, _DISCARDED = 1 << 31, 1 << 30  # linux/bpf.h: BPF_RINGBUF_BUSY_BIT, BPF_RINGBUF_DISCARD_BIT
_WRITTEN = RECORD.size.to_bytes(4, "little")
_WORDS = SLOT.size // 4
_LOOKS = 100
"""How often a slot that is being filled is looked at again before the rest is left for the next
time: 10 us, a hundred times what the filling takes where it is not interrupted. Without it a
segment that is readable already could stand behind one that is not complete."""


class Ring:
    """Takes records out of a mapped ring. One reader for each ring."""

    __slots__ = ("_consumed", "_consumer", "_data", "_headers", "_mask", "_producer")

    def __init__(self, consumer: memoryview, producer: memoryview, data: memoryview) -> None:
        """`consumer` (writable) and `producer` start with the positions; `data` holds the slots
        twice, and half its size is a power of two."""
        self._consumer = consumer.cast("Q")
        self._producer = producer.cast("Q")
        self._data = data
        self._headers = data.cast("I")
        self._mask = len(data) // 2 - 1
        self._consumed: int = self._consumer[0]

    def drain(self) -> list[Record]:
        """All records that are complete, in the order in which their slots were taken."""
        consumed = self._consumed
        waiting: int = self._producer[0] - consumed
        if not waiting:
            return []
        start = consumed & self._mask
        if waiting == SLOT.size and self._headers[start // 4] == RECORD.size:
            # One record, as at most wake-ups of a gateway that is not busy: 0.5 us, not 0.8.
            record = SLOT.unpack_from(self._data, start)
            self._consumed = self._consumer[0] = consumed + waiting
            return [record]
        headers = self._headers[start // 4 : (start + waiting) // 4 : _WORDS]
        if headers.tobytes() == _WRITTEN * len(headers):
            records = list(SLOT.iter_unpack(self._data[start : start + waiting]))
        else:
            ready = _ready(headers)
            waiting = len(ready) * SLOT.size
            slots = SLOT.iter_unpack(self._data[start : start + waiting])
            records = [slot for slot, good in zip(slots, ready, strict=True) if good]
        self._consumed = consumed + waiting
        self._consumer[0] = self._consumed
        return records

    def close(self) -> None:
        for view in (self._consumer, self._producer, self._headers, self._data):
            view.release()


def _ready(headers: memoryview) -> list[bool]:
    """Whether each slot was written, not discarded; for those before the first one that stays
    busy."""
    ready: list[bool] = []
    for number in range(len(headers)):
        for _ in range(_LOOKS):
            header = headers[number]
            if not header & _BUSY:
                break
        else:
            return ready
        ready.append(not header & _DISCARDED)
    return ready


class MappedRing(Ring):
    """The ring of a map's file descriptor, `size_bytes` big. Raises OSError as mmap does."""

    __slots__ = ("_pages",)

    def __init__(self, fd: int, size_bytes: int) -> None:
        if platform.machine() != "x86_64":
            raise SourceUnavailable(
                f"the ring buffer is read in x86-64's memory order; this is {platform.machine()}"
            )
        page = mmap.PAGESIZE
        ours = mmap.mmap(fd, page)
        theirs = mmap.mmap(fd, page + 2 * size_bytes, prot=mmap.PROT_READ, offset=page)
        self._pages = (ours, theirs)
        shared = memoryview(theirs)
        super().__init__(memoryview(ours), shared[:page], shared[page:])

    def close(self) -> None:
        super().close()
        for pages in self._pages:
            pages.close()
