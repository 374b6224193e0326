"""The consumers that tell a journey of its messages. Pure."""

from dataclasses import dataclass

from srtm.host.clock import NS

_SILENT_NS = 10 * NS
"""after which a consumer that told of itself is taken for gone"""
_MOST_CONSUMERS = 1_000


@dataclass(slots=True)
class _Consumer:
    """at: when it told last, monotonic ns; lost: what it said then"""

    at: int
    lost: int


class Consumers:
    """lost:    messages of reports that did not arrive here, as consumers count them
    unknown: messages that consumers had and could tell of no journey: without a time of nsqd's, or
             of a topic that nobody asks for
    """

    def __init__(self) -> None:
        self.lost = self.unknown = 0
        self._told: dict[str, _Consumer] = {}
        """by name, the one that was silent longest first; kept when it is gone, since what it lost
        is counted once, should it come back"""

    def told(self, name: str, lost: int, unknown: int, now: int) -> None:
        """A report of that name's. lost: since it began; unknown: since its last report; now:
        monotonic ns"""
        before = self._told.pop(name, _Consumer(now, 0)).lost
        self.lost += lost - before if lost >= before else lost  # fewer: it has begun anew
        self.unknown += unknown
        self._told[name] = _Consumer(now, lost)
        if len(self._told) > _MOST_CONSUMERS:
            del self._told[next(iter(self._told))]

    def present(self, now: int) -> list[str]:
        """Names of those that tell, sorted."""
        return sorted(name for name, each in self._told.items() if each.at > now - _SILENT_NS)
