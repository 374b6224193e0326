"""The one module that asks the system for the time. Everything else is handed a number.

Times inside SRTM are integer nanoseconds of CLOCK_MONOTONIC. The kernel's socket stamps and
nsqd's message times are wall-clock; they are converted here, and a step of the wall clock between
two readings of the offset is noticed. Times of two hosts are never subtracted.
"""

import ctypes
import time
from functools import cache
from pathlib import Path

monotonic_ns = time.monotonic_ns
NS = 1_000_000_000
MOST_NS = 1 << 62
"""of a time or a duration that another program tells: 146 years, of the wall clock the year 2116"""


def boottime_ns() -> int:
    """The time like monotonic_ns, but counted on while the machine is suspended: for leases, which
    end elsewhere whether this machine sleeps or not. Never mixed with the others."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


@cache
def boot_id() -> str:
    """Which start of which machine this is. Programs that have the same one read the same clocks;
    empty where that is not to be known, and then they may not."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


_STEP_NS = 5_000_000
"""An offset that moved further than this between two readings is a step of the wall clock: NTP
slews at most 500 ppm (0.5 ms/s), and readings are taken every second or more often."""


_TIMEX_BYTES = 256
"""more than struct timex of adjtimex(2) has"""
_MAX_ERROR_AT = 3 * ctypes.sizeof(ctypes.c_long)
"""in it: after `modes` (padded), `offset` and `freq`; microseconds"""


def wall_clock_error_ns() -> int:
    """The most that the wall clock may be off, as the kernel says: NTP's bound where something
    keeps it (chrony, ntpd), 16 s where nothing does."""
    timex = ctypes.create_string_buffer(_TIMEX_BYTES)
    if _libc.adjtimex(timex) < 0:
        return _UNKNOWN_ERROR_NS
    return int(ctypes.c_long.from_buffer(timex, _MAX_ERROR_AT).value) * 1000


_libc = ctypes.CDLL(None)
_UNKNOWN_ERROR_NS = 16 * NS


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
