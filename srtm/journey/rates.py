"""How many messages of a journey arrived in each second, from what its gateways tell. Pure."""

from collections import defaultdict
from typing import Any

from srtm.journey.numbers import MOST_COUNT, nanoseconds, whole

KEPT_SECONDS = 900
"""that are planned by; as much as a group's controller remembers"""
_NS = 1_000_000_000
_SETTLED_SECONDS = 5
"""after which every gateway that answers has told of a second"""


class Rates:
    def __init__(self) -> None:
        self._seconds: defaultdict[int, float] = defaultdict(float)

    def add(self, document: Any) -> None:
        """An answer of /arrivals, whose messages are spread evenly over its span. Raises
        ValueError."""
        try:
            count = whole(document["count"], 0, MOST_COUNT)
            begun, ended = map(nanoseconds, document["span"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"no answer of /arrivals: {error!r}"[:300]) from None
        if not 0 <= begun <= ended or ended - begun > KEPT_SECONDS * _NS:
            raise ValueError("no answer of /arrivals: its count or its span is none")
        first, last = begun // _NS, ended // _NS
        for second in range(first, last + 1):
            inside = min(ended, (second + 1) * _NS) - max(begun, second * _NS)
            self._seconds[second] += count * (inside / (ended - begun) if ended > begun else 1)
        if len(self._seconds) > 2 * KEPT_SECONDS:
            old = [each for each in self._seconds if abs(each - last) > KEPT_SECONDS]
            for each in old:
                del self._seconds[each]

    def last(self, now_ns: int) -> list[float]:
        """Messages of each second, oldest first, of the last quarter of an hour. now_ns: wall
        clock"""
        until = now_ns // _NS - _SETTLED_SECONDS
        known = [each for each in self._seconds if until - KEPT_SECONDS <= each < until]
        if not known:
            return []
        return [round(self._seconds[each], 3) for each in range(min(known), until)]
