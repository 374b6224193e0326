"""How long a consumer may go on with what it has. Pure: time is passed in, in nanoseconds.

A member writes beats to the group's partition and reads them back. A beat that it has read back
renews the lease to `seconds` after it was *sent*, unless a fence stands before it: who reads its
own beat has read all that was said before. The leader writes a fence, reads it back, and then waits
for `take_over_seconds`: every beat before the fence was sent before that moment, and no beat after
it renews anything. So when the wait is over the lease is over, whatever was lost, late or frozen,
with no clock compared to another's; only their speeds must agree to within the margin.
"""

from dataclasses import dataclass, field

from srtm.host.clock import NS

_DRIFT = 0.05
"""Two quartz clocks differ by 0.01 %; a virtual machine's can be worse for a while."""
_MARGIN_SECONDS = 0.2


def take_over_seconds(lease_seconds: float) -> float:
    """The time from when a fence was read back to when what its member had may be given to
    others."""
    return lease_seconds * (1 + _DRIFT) + _MARGIN_SECONDS


@dataclass(slots=True)
class Lease:
    """until_ns: what it has is its own before that moment, and not after"""

    seconds: float
    until_ns: int = 0
    _sent: dict[int, int] = field(default_factory=dict)

    def sent(self, beat: int, now_ns: int) -> None:
        """Call it before the beat is written."""
        self._sent[beat] = now_ns

    def read_back(self, beat: int) -> None:
        """The member's own beat, with no fence before it."""
        sent = self._sent.get(beat)
        if sent is None:
            return
        self.until_ns = max(self.until_ns, sent + round(self.seconds * NS))
        self._sent = {number: at for number, at in self._sent.items() if number > beat}

    def holds(self, now_ns: int) -> bool:
        return now_ns < self.until_ns

    def end(self) -> None:
        """End the lease at once, as when a fence was read."""
        self.until_ns = 0
        self._sent.clear()
