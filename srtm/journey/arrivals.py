"""The arrivals that gateways have told, until the consumers' samples ask for them. Pure.

Gateways and consumers tell of the messages of some slots of nsqd's clock (srtm/limits/slots.py), so
a message of a slot that gateways have left out is not missed.
"""

from collections import deque
from typing import Any, NamedTuple

from srtm.host.offsets import Offset
from srtm.limits.slots import HIGHEST_LEVEL

MOST_MESSAGES = 200_000
"""kept for one journey: a hundred seconds of two brokers that tell all they may, and some 40 MB"""
_MOST_SPANS = 10_000
_SLACK_NS = 1_000_000
"""as in srtm/gateway/measure/matching.py: clocks of one host that are read at different times"""


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


class _Span(NamedTuple):
    """The level from which on slots were told, for batches answered between `begun` and
    `ended`."""

    begun: int
    ended: int
    level: int


class Arrivals:
    """The arrivals of one journey, from all of its brokers."""

    def __init__(self) -> None:
        self._by_checksum: dict[int, list[Arrival]] = {}
        self._order: deque[tuple[int, Arrival]] = deque()
        self._spans: deque[_Span] = deque()

    def add(self, document: Any, clock: Offset) -> None:
        """What a gateway answers to /arrivals. Raises ValueError for what is none."""
        try:
            level = int(document["level"])
            begun, ended = map(int, document["span"])
            rows = [_row(each) for each in document["batches"]]
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"no answer of /arrivals: {error!r}") from None
        if not 0 <= level <= HIGHEST_LEVEL:
            raise ValueError(f"level {level} is none: 0 to {HIGHEST_LEVEL}")
        for written, answered, pieces in rows:
            for arrived, token, step, checksums in pieces:
                for number, checksum in enumerate(checksums):
                    at = token + int(number * step)
                    self._keep(checksum, Arrival(arrived, at, written, answered, clock))
        if level:
            self._spans.append(_Span(begun, ended, level))
            if len(self._spans) > _MOST_SPANS:
                self._spans.popleft()

    def _keep(self, checksum: int, arrival: Arrival) -> None:
        self._by_checksum.setdefault(checksum, []).append(arrival)
        self._order.append((checksum, arrival))
        if len(self._order) > MOST_MESSAGES:
            oldest, _ = self._order.popleft()
            left = self._by_checksum[oldest]
            del left[0]  # they are in the same order
            if not left:
                del self._by_checksum[oldest]

    def find(self, received: int, checksum: int) -> Arrival | None:
        """The arrival of a message with that checksum that nsqd received then."""
        for arrival in self._by_checksum.get(checksum, ()):
            if arrival.has(received):
                return arrival
        return None

    def level(self, received: int) -> int:
        """Messages that nsqd received then are told from slots of this level on."""
        return max(
            (each.level for each in self._spans if each.begun <= received <= each.ended), default=0
        )


def _row(row: Any) -> tuple[int, int, list[tuple[int, int, float, list[int]]]]:
    """Raises TypeError, ValueError, OverflowError."""
    written, answered, pieces = row
    return (
        int(written),
        int(answered),
        [
            (int(arrived), int(token), float(step), [int(each) for each in sums])
            for arrived, token, step, sums in pieces
        ],
    )
