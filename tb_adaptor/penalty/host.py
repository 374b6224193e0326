"""The reports of one gateway, which tell of all its topics together."""

from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from tb_adaptor.penalty.host_clock import HostClock
from tb_adaptor.share import Part

LONG_SECONDS = 3.0
"""between two reports: the lease may have ended meanwhile"""
_ERAS = count()


class Head(NamedTuple):
    """The head of a report. Times are seconds.

    at:         when it came, by the distributor's clock
    clock:      when it was made, by the gateway's, a whole millisecond
    number:     reports of this gateway that were answered before
    seconds:    that it is of
    round_trip: seconds that the exchange before this one took
    """

    at: float
    clock: float
    number: int
    seconds: float
    round_trip: float


@dataclass
class Host:
    """clock: of the gateway's host, by all its reports
    last:  its last report, of which the exchange's length is not known yet
    known: the one before
    era:   another number once a report was lost or repeated, or a clock jumped: what is told since
           does not go on with what was told before
    why:   it began anew, a part of a sentence in which `{}` is the broker
    late:  the number of the last report that came long after the one before
    idle:  topic -> its share. Of these it has told that nothing waits, nothing came and the bucket
           is full; while it does not name one, that stays so
    """

    clock: HostClock = field(default_factory=HostClock)
    last: Head | None = None
    known: Head | None = None
    era: int = field(default_factory=lambda: next(_ERAS))
    why: str = ""
    late: int = -1
    idle: dict[str, Part] = field(default_factory=dict)

    def report(self, told: Head) -> None:
        last, self.last = self.last, told
        if last is None:
            return
        if told.number != last.number + 1:
            self.begin_anew("a report of broker {} was lost or repeated, or it began anew")
        elif told.round_trip <= 0:
            self.begin_anew("broker {} does not tell how long reports take")
        elif not self.clock.exchanged(last.clock, last.at, told.round_trip):
            self.begin_anew("the clock of broker {} jumped")
        else:
            if self.known is not None and last.clock > self.known.clock + LONG_SECONDS:
                self.late = last.number
            self.known = last

    def begin_anew(self, why: str) -> None:
        """What was told until now is worth nothing."""
        self.why, self.era = why, next(_ERAS)
        self.clock, self.known, self.late = HostClock(), None, -1
        self.idle.clear()
