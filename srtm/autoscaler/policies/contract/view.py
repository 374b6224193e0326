"""What both kinds of groups are sized by."""

from dataclasses import dataclass

from srtm.autoscaler.decision import Member
from srtm.autoscaler.observation import Observation
from srtm.autoscaler.policies.contract.backlog import Backlog
from srtm.autoscaler.policies.contract.curves import Flow
from srtm.limits.ceiling import Ceiling
from srtm.text.duration import format_duration


@dataclass(frozen=True, slots=True)
class View:
    """One moment. Times in seconds.

    level:    events that can come at once now, at most
    backlog:  how long what waits has waited
    target:   that every event is to be within
    interval: between two decisions
    peak:     the highest rate of the last launches, events/s: a group that does not serve it would
              be needed again before it has saved anything
    """

    seen: Observation
    ceiling: Ceiling
    level: float
    backlog: Backlog
    target: float
    interval: float
    peak: float

    @property
    def notice(self) -> float:
        """From now to the moment at which what is launched at the next decision joins."""
        return self.interval + self.seen.startup_seconds

    def flow(self, share: float) -> Flow:
        """What comes to partitions that have `share` of every interval."""
        r, b = self.ceiling.rate, self.ceiling.burst
        return Flow(share * r, share * b, min(share * b, self.level), r)


@dataclass(frozen=True, slots=True)
class Sized:
    """members: the group from now on. delay: the longest that an event can have then.
    then: why that is enough, or for how long"""

    members: tuple[Member, ...]
    delay: float
    then: str
    notes: tuple[str, ...] = ()


def shown(seconds: float) -> str:
    """Seconds to three digits, as durations are written."""
    return format_duration(float(f"{seconds:.3g}"))
