"""The arrivals that gateways have told, until the consumers' samples ask for them. Pure.

Gateways and consumers tell of the messages of some slots of nsqd's clock (srtm/limits/slots.py), so
a message of a slot that gateways have left out is not missed.

A message is looked for by its checksum among those that nsqd received about then. Bodies may all be
equal, so the time is a part of the key: a cell of a power of two of nanoseconds, at least as long
as the stretch in which nsqd may have received it, which then touches two cells at most.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from srtm.host.offsets import Offset
from srtm.journey.numbers import nanoseconds, whole
from srtm.limits.slots import HIGHEST_LEVEL

MOST_MESSAGES = 200_000
"""kept for one journey: a hundred seconds of two brokers that tell all they may, and some 60 MB"""
_MOST_TOLD = 20_000
"""in one answer; an honest one tells of some 500"""
_MOST_SECONDS = 900
"""for which levels are kept, and which one answer may be about"""
_SLACK_NS = 1_000_000
"""as in srtm/gateway/measure/matching.py: clocks of one host that are read at different times"""
_LEAST_CELL = 25
"""34 ms, as a power of two of nanoseconds"""
_MOST_STEP_NS = 1e15
_NS = 1_000_000_000
_ANY = -1
"""in place of a checksum: of a piece of so many messages that none is told by itself"""


class Arrival(NamedTuple):
    """Wall-clock nanoseconds of the broker's host: between `written` and `answered` nsqd received
    it. clock: by how much that host's clock differs from ours"""

    arrived: int
    token: int
    written: int
    answered: int
    clock: Offset

    def has(self, received: int) -> bool:
        return self.written - _SLACK_NS <= received <= self.answered + _SLACK_NS


_Key = tuple[int, int, int]
"""checksum, size of the cell as a power of two, and its number"""


class Arrivals:
    """The arrivals of one journey, from all of its brokers."""

    def __init__(self) -> None:
        self._cells: dict[_Key, list[Arrival]] = {}
        self._order: deque[_Key] = deque()
        self._sizes: dict[int, int] = {}  # of cells in use, and how many entries have it
        self._levels: dict[int, int] = {}  # second -> the highest level at which it was told

    def add(self, document: Any, clock: Offset) -> None:
        """What a gateway answers to /arrivals. Raises ValueError for what is none."""
        try:
            level = whole(document["level"], 0, HIGHEST_LEVEL)
            begun, ended = map(nanoseconds, document["span"])
            if not 0 <= ended - begun <= _MOST_SECONDS * _NS:
                raise ValueError("its span is none")
            told = list(_told(document["batches"], clock))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"no answer of /arrivals: {error!r}"[:300]) from None
        for checksum, arrival in told:
            self._keep(checksum, arrival)
        if level:
            for second in range(begun // _NS, ended // _NS + 1):
                self._levels[second] = max(level, self._levels.get(second, 0))
            while len(self._levels) > _MOST_SECONDS:
                del self._levels[next(iter(self._levels))]

    def _keep(self, checksum: int, arrival: Arrival) -> None:
        begun, ended = arrival.written - _SLACK_NS, arrival.answered + _SLACK_NS
        size = max(_LEAST_CELL, (ended - begun).bit_length())
        for cell in {begun >> size, ended >> size}:
            key = checksum, size, cell
            kept = self._cells.setdefault(key, [])
            if kept and kept[-1] == arrival:
                continue  # of an equal body: the one answers for the other
            kept.append(arrival)
            self._order.append(key)
            self._sizes[size] = self._sizes.get(size, 0) + 1
        while len(self._order) > MOST_MESSAGES:
            self._forget(self._order.popleft())

    def _forget(self, key: _Key) -> None:
        kept, size = self._cells[key], key[1]
        del kept[0]  # they are in the same order
        if not kept:
            del self._cells[key]
        self._sizes[size] -= 1
        if not self._sizes[size]:
            del self._sizes[size]

    def find(self, received: int, checksum: int) -> Arrival | None:
        """The arrival of a message with that checksum that nsqd received then."""
        for wanted in (checksum, _ANY):
            for size in self._sizes:
                for arrival in self._cells.get((wanted, size, received >> size), ()):
                    if arrival.has(received):
                        return arrival
        return None

    def level(self, received: int) -> int:
        """Messages that nsqd received then are told from slots of this level on."""
        return self._levels.get(received // _NS, 0)


def _told(batches: Any, clock: Offset) -> Iterator[tuple[int, Arrival]]:
    """Raises TypeError, ValueError, OverflowError."""
    left = _MOST_TOLD
    for written, answered, pieces in batches:
        begun, ended = nanoseconds(written), nanoseconds(answered)
        if not 0 <= ended - begun <= _MOST_SECONDS * _NS:
            raise ValueError("a batch that was answered before it was written, or never")
        for arrived, token, step, checksums in pieces:
            left -= 1 + len(checksums)
            if left < 0:
                raise ValueError(f"more than {_MOST_TOLD} messages")
            came, begins = nanoseconds(arrived), nanoseconds(token)
            if not 0 <= step <= _MOST_STEP_NS:
                raise ValueError("a step that is none")
            for number, checksum in enumerate(checksums or (_ANY,)):
                at = begins + int(number * step)
                yield whole(checksum, _ANY, 1 << 32), Arrival(came, at, begun, ended, clock)
