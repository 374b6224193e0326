"""timerfd on CLOCK_MONOTONIC with absolute times (Python has it only from 3.13 on)."""

import contextlib
import ctypes
import os

from srtm.clock import NS

_CLOCK_MONOTONIC = 1
_TFD_TIMER_ABSTIME = 1


class _TimeSpec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _TimerSpec(ctypes.Structure):
    _fields_ = (("interval", _TimeSpec), ("value", _TimeSpec))


class TimerFd:
    """A descriptor that becomes readable at a monotonic nanosecond."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self._libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._spec = _TimerSpec()
        self._pointer = ctypes.byref(self._spec)

    def set(self, when: int) -> None:
        value = self._spec.value
        value.seconds, value.nanoseconds = divmod(max(when, 1), NS)
        self._libc.timerfd_settime(self.fd, _TFD_TIMER_ABSTIME, self._pointer, None)

    def clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self.fd, 8)

    def close(self) -> None:
        os.close(self.fd)
