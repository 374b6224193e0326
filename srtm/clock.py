"""The one module that asks the system for the time. Everything else is handed a number.

Times inside SRTM are integer nanoseconds of CLOCK_MONOTONIC. The kernel's socket stamps and
nsqd's message times are wall-clock; they are converted here, and a step of the wall clock between
two readings of the offset is noticed. Times of two hosts are never subtracted.
"""

import time

monotonic_ns = time.monotonic_ns
NS = 1_000_000_000


def boottime_ns() -> int:
    """As monotonic_ns, and it counts on while the machine is suspended: for leases, which end
    elsewhere whether this machine sleeps or not. Never mixed with the others."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


_STEP_NS = 5_000_000
"""An offset that moved further than this between two readings is a step of the wall clock: NTP
slews at most 500 ppm (0.5 ms/s), and readings are taken every second or more often."""


class WallClock:
    """The offset of the wall clock from the monotonic one, re-read by `refresh`."""

    __slots__ = ("offset_ns", "steps")

    def __init__(self) -> None:
        self.offset_ns = _offset_ns()
        self.steps = 0

    def refresh(self) -> bool:
        """Read the offset again; True when the wall clock was stepped since the last reading."""
        offset_ns = _offset_ns()
        stepped = abs(offset_ns - self.offset_ns) > _STEP_NS
        self.offset_ns = offset_ns
        self.steps += stepped
        return stepped

    def monotonic_of(self, wall_ns: int) -> int:
        return wall_ns - self.offset_ns


def _offset_ns() -> int:
    """Wall minus monotonic, from the tightest of three bracketed readings."""
    best_width, best = None, 0
    for _ in range(3):
        before = time.monotonic_ns()
        wall = time.time_ns()
        after = time.monotonic_ns()
        width = after - before
        if best_width is None or width < best_width:
            best_width, best = width, wall - (before + after) // 2
    return best
