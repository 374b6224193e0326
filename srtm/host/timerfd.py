"""A timer for epoll with nanoseconds: epoll's own timeout counts milliseconds.

Python has timerfd from 3.13 on; until then it is called in libc.
"""

import contextlib
import ctypes
import os
import struct

from srtm.host.clock import NS

_CLOCK_MONOTONIC = 1
_ABSOLUTE = ctypes.c_int(1)
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
_SPEC = struct.Struct("qqqq")  # struct itimerspec: interval (s, ns), then the time (s, ns)

_libc = ctypes.CDLL(None, use_errno=True)


class TimerFd:
    """One shot at a time of CLOCK_MONOTONIC. Register it edge-triggered, or `clear` it."""

    __slots__ = ("_address", "_fd", "_settime", "_spec", "fd")

    def __init__(self) -> None:
        self.fd: int = _libc.timerfd_create(_CLOCK_MONOTONIC, _FLAGS)
        if self.fd < 0:
            code = ctypes.get_errno()
            raise OSError(code, f"timerfd_create: {os.strerror(code)}")
        self._fd = ctypes.c_int(self.fd)
        self._spec = ctypes.create_string_buffer(_SPEC.size)
        self._address = ctypes.byref(self._spec)
        self._settime = _libc.timerfd_settime

    def arm(self, at_ns: int) -> None:
        """Make `fd` readable at `at_ns` (a past time: at once) instead of any earlier set time."""
        _SPEC.pack_into(self._spec, 0, 0, 0, *divmod(max(at_ns, 1), NS))  # 0 would disarm it
        self._settime(self._fd, _ABSOLUTE, self._address, None)

    def clear(self) -> None:
        """Make `fd` unreadable again, where it is watched for its level."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.fd, 8)

    def close(self) -> None:
        os.close(self.fd)
