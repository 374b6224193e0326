"""The gateway's hot loop: an epoll set of its own inside asyncio.

asyncio watches one descriptor, ours. At each wake-up everything that is readable is read first, and
only then the stages run: topics decide by arrival stamps, batches are written. HTTP, files and slow
timers stay ordinary asyncio.
"""

import asyncio
import heapq
import itertools
import logging
import select
from collections.abc import Callable

from srtm.clock import monotonic_ns
from srtm.gateway.timerfd import TimerFd

READABLE = select.EPOLLIN
WRITABLE = select.EPOLLOUT
BROKEN = select.EPOLLERR | select.EPOLLHUP
ENDED = select.EPOLLRDHUP
EDGE = select.EPOLLET | select.EPOLLRDHUP
"""Told once for each arrival instead of at each poll until it is read: with 1,000 busy publishers
a twentieth of the gateway's time. A handler reads until a read comes short, and, after ENDED,
until the end."""

_MAX_EVENTS = 1024
_MAX_ROUNDS = 8
"""Wake-ups served in a row before asyncio (HTTP, admin) gets its turn."""

log = logging.getLogger("srtm.gateway")
Handler = Callable[[int], None]


class Reactor:
    """Handlers by descriptor, stages after each wake-up, and alarms to the microsecond."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll = select.epoll()
        self._handlers: dict[int, Handler] = {}
        self._stages: list[Callable[[int], None]] = []
        self._timer = TimerFd()
        self._alarms: list[tuple[int, int, Callable[[int], None]]] = []
        self._order = itertools.count()
        self.watch(self._timer.fd, self._ring)
        loop.add_reader(self._epoll.fileno(), self._wake)

    def watch(self, fd: int, handler: Handler, events: int = READABLE) -> None:
        self._handlers[fd] = handler
        self._epoll.register(fd, events)

    def change(self, fd: int, events: int) -> None:
        self._epoll.modify(fd, events)

    def forget(self, fd: int) -> None:
        if self._handlers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def add_stage(self, stage: Callable[[int], None]) -> None:
        """`stage(now)` runs after everything readable has been read."""
        self._stages.append(stage)

    def call_at(self, when: int, alarm: Callable[[int], None]) -> None:
        """Call `alarm(now)` at monotonic nanosecond `when`, as a timerfd keeps it (asyncio's own
        timers are rounded up to a millisecond, too coarse for an SLO of one)."""
        alarms = self._alarms
        heapq.heappush(alarms, (when, next(self._order), alarm))
        if alarms[0][0] == when:
            self._timer.set(when)

    def run_stages(self) -> None:
        """For work that came in by asyncio (HTTP, admin)."""
        now = monotonic_ns()
        for stage in self._stages:
            stage(now)

    def close(self) -> None:
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()
        self._timer.close()

    def _wake(self) -> None:
        handlers = self._handlers
        poll = self._epoll.poll
        for _ in range(_MAX_ROUNDS):
            events = poll(0, _MAX_EVENTS)
            if not events:
                return
            for fd, mask in events:
                handler = handlers.get(fd)  # an earlier handler may have closed it
                if handler is not None:
                    try:
                        handler(mask)
                    except Exception:
                        log.exception("a connection failed and is forgotten")
                        self.forget(fd)
            now = monotonic_ns()
            for stage in self._stages:
                stage(now)
            if len(events) < 8:
                return  # nearly idle: asyncio is as quick, and others get their turn

    def _ring(self, _mask: int) -> None:
        self._timer.clear()
        alarms = self._alarms
        now = monotonic_ns()
        while alarms and alarms[0][0] <= now:
            heapq.heappop(alarms)[2](now)
        if alarms:
            self._timer.set(alarms[0][0])
