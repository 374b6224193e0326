"""What became of the messages around one fault. Pure: times are handed in, in seconds."""

from collections.abc import Sequence
from dataclasses import dataclass

LATE_SECONDS, SHARE = 0.25, 0.95
"""the SLO: 0.95@250ms from the intended time to the OK. It is wide, as generator, brokers and the
faults themselves share a machine; what a fault breaks is late by seconds, or lost."""
WINDOW_SECONDS = 1.0
STEP_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Row:
    """One steady message. latency: from its intended time to its OK, None without one."""

    at: float
    latency: float | None

    @property
    def is_late(self) -> bool:
        return self.latency is None or self.latency > LATE_SECONDS


@dataclass(frozen=True, slots=True)
class Around:
    """before: did the SLO hold when the fault began? late: share of the messages while it lasted;
    back_after: seconds from its end until the SLO held again, None: not within what was seen."""

    before: bool
    late: float
    back_after: float | None
    messages: int


def around(rows: Sequence[Row], began: float, ended: float, until: float) -> Around:
    """What the messages show around a fault from `began` to `ended`; what was intended after
    `until` is not looked at."""
    during = [row for row in rows if began <= row.at < ended]
    late = sum(row.is_late for row in during) / len(during) if during else 0.0
    return Around(
        before=holds(rows, began - WINDOW_SECONDS, began),
        late=late,
        back_after=back_after(rows, ended, until),
        messages=len(during),
    )


def back_after(rows: Sequence[Row], ended: float, until: float) -> float | None:
    """Seconds from the end of the fault until the SLO holds in a window, and over all that was seen
    from there on: a lease may end seconds after its fault."""
    steps = int((until - WINDOW_SECONDS - ended) / STEP_SECONDS + 1e-9)
    for step in range(steps + 1):
        since = ended + step * STEP_SECONDS
        if holds(rows, since, since + WINDOW_SECONDS) and holds(rows, since, until):
            return step * STEP_SECONDS
    return None


def holds(rows: Sequence[Row], since: float, until: float) -> bool:
    """Over the messages intended in this time; without any it does not."""
    found = [row for row in rows if since <= row.at < until]
    return bool(found) and sum(row.is_late for row in found) <= (1 - SHARE) * len(found)
