"""One time for the logs of several brokers. Pure.

A host's monotonic clock and its wall clock run alike; their distance changes only when the wall
clock is stepped. So all processes of one running machine have one distance, and times of it are
compared exactly. Those of two machines are compared by their wall clocks, with the error that both
state, and with what either was stepped by.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from srtm.audit.session import Session

_JITTER_NS = 1_000_000
"""Two readings of the distance differ by microseconds; by this much where a machine stalls."""


@dataclass(frozen=True)
class Clocks:
    """offsets: wall clock minus monotonic, of each running machine (boot id), in ns
    error_ns: by how much times of two of them may be wrong to each other; 0: there is only one
    stepped_ns: the most that one's wall clock moved while it logged
    """

    offsets: Mapping[str, int]
    error_ns: int
    stepped_ns: int


def clocks_of(sessions: Sequence[Session], stated_error_ns: int | None = None) -> Clocks:
    """stated_error_ns: of each wall clock, in place of what the logs say."""
    offsets: dict[str, int] = {}
    errors: list[int] = []
    stepped_ns = 0
    for boot in sorted({session.boot for session in sessions}):
        beats = [beat for each in sessions if each.boot == boot for beat in each.beats]
        newest = max(beats, key=lambda beat: beat.until)
        offsets[boot] = newest.offset_ns
        spread = max(b.offset_ns for b in beats) - min(b.offset_ns for b in beats)
        step = spread if spread > _JITTER_NS else 0
        stepped_ns = max(stepped_ns, step)
        own = max(b.error_ns for b in beats) if stated_error_ns is None else stated_error_ns
        errors.append(own + step)
    error_ns = sum(sorted(errors)[-2:]) if len(errors) > 1 else 0
    return Clocks(offsets, error_ns, stepped_ns)
