"""The gateway's hot loop, a selector in which asyncio does its waiting.

asyncio calls its selector when it has nothing to do; `HotSelector` serves the hot descriptors there
and comes back only when asyncio's own are readable, a timer of it is due, or it is asked to. At
each wake-up everything that is readable is read first, and only then the stages run: topics decide
by arrival stamps, batches are written. HTTP, files and slow timers stay ordinary asyncio, and cost
a message nothing.
"""

import heapq
import itertools
import logging
import os
import select
import socket
from collections.abc import Callable

from srtm.host.clock import monotonic_ns
from srtm.host.timerfd import TimerFd

READABLE = select.EPOLLIN
WRITABLE = select.EPOLLOUT
BROKEN = select.EPOLLERR | select.EPOLLHUP
ENDED = select.EPOLLRDHUP
EDGE = select.EPOLLET | select.EPOLLRDHUP
"""Told once for each arrival instead of at each poll until it is read: with 1,000 busy publishers
a twentieth of the gateway's time. A handler reads until a read comes short, and, after ENDED,
until the end."""

_MAX_EVENTS = 1024

log = logging.getLogger("srtm.gateway")
Handler = Callable[[int], None]
End = Callable[[], None]
Stage = Callable[[int, int], bool]


class Reactor:
    """Handlers by descriptor, stages after each wake-up, and alarms to the microsecond."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Handler] = {}
        self._ends: dict[int, End] = {}
        self._told: set[str] = set()
        self.faults = 0
        """exceptions that were a fault of ours, since start"""
        self._stages: list[Stage] = []
        self._timer = TimerFd()
        self._alarms: list[tuple[int, int, Callable[[int], None]]] = []
        self._order = itertools.count()
        self._asyncio_wanted = False
        self._again = False
        self._nudged: dict[int, int] = {}
        self._renewed: set[int] = set()
        """Watched since the events at hand were asked for: such an event is of the connection whose
        number it was before."""
        self.watch(self._timer.fd, self._ring)

    def watch(
        self, fd: int, handler: Handler, events: int = READABLE, end: End | None = None
    ) -> None:
        """end: closes what the descriptor belongs to, when the handler fails"""
        self._handlers[fd] = handler
        if end is not None:
            self._ends[fd] = end
        self._epoll.register(fd, events)
        self._renewed.add(fd)

    def change(self, fd: int, events: int) -> None:
        self._epoll.modify(fd, events)

    def forget(self, fd: int) -> None:
        if self._handlers.pop(fd, None) is not None:
            self._ends.pop(fd, None)
            self._nudged.pop(fd, None)
            self._epoll.unregister(fd)

    def fault(self, error: Exception, what: str) -> None:
        """Count it, and log it once for each place in the code: its cause may come in floods."""
        self.faults += 1
        place = _place(error)
        if place not in self._told:
            self._told.add(place)
            log.error("a fault: %s; repeats are only counted", what, exc_info=error)

    def _fail(self, fd: int, error: Exception) -> None:
        """A handler has failed: whoever is at the other end is not left to wait."""
        self.fault(error, "a connection failed and is closed")
        end = self._ends.get(fd)
        try:
            if end is not None:
                end()
        except Exception as other:
            self.fault(other, "a connection could not be closed in order")
        if fd in self._handlers:  # nobody has closed it
            self.forget(fd)
            _shut_down(fd)

    def add_stage(self, stage: Stage) -> None:
        """`stage(now, horizon)` runs after everything readable has been read: all that had
        arrived by `horizon`, when the kernel was asked. It returns True to be run again soon."""
        self._stages.append(stage)

    def soon(self) -> None:
        """Wake up again at once."""
        self._again = True

    def nudge(self, fd: int) -> None:
        """Call its handler at the next wake-up as if it was readable: it holds what it has read."""
        self._nudged[fd] = READABLE
        self._again = True

    def call_at(self, when: int, alarm: Callable[[int], None]) -> None:
        """Call `alarm(now)` at monotonic nanosecond `when`, as a timerfd keeps it (asyncio's own
        timers are rounded up to a millisecond, too coarse for an SLO of one)."""
        alarms = self._alarms
        heapq.heappush(alarms, (when, next(self._order), alarm))
        if alarms[0][0] == when:
            self._timer.arm(when)

    def let_asyncio_run(self, _mask: int = 0) -> None:
        """End `serve` after this wake-up: asyncio has got something to do."""
        self._asyncio_wanted = True

    def serve(self, timeout: float | None) -> None:
        """Wait for `timeout` seconds (None: for ever), and serve what comes, until asyncio is
        wanted or the time is up."""
        handlers, poll, stages = self._handlers, self._epoll.poll, self._stages
        renewed = self._renewed
        deadline = None if timeout is None else monotonic_ns() + int(timeout * 1e9)
        self._asyncio_wanted = False
        while True:
            events = [] if self._again else poll(timeout, _MAX_EVENTS)
            run_stages = self._again or bool(events)
            # A call of the system is where a process is stopped or loses its core: what comes
            # until it goes on is before a horizon taken after the call, and not in its answer. So
            # the horizon is taken between two calls.
            horizon = monotonic_ns()
            if run_stages:
                events = _merged(events, poll(0, _MAX_EVENTS))
            self._again = False
            if self._nudged:
                events = _merged(events, list(self._nudged.items()))
                self._nudged.clear()
            while events:
                renewed.clear()
                for fd, mask in events:
                    handler = handlers.get(fd)  # an earlier handler may have closed it
                    if handler is not None and fd not in renewed:
                        try:
                            handler(mask)
                        except Exception as error:
                            self._fail(fd, error)
                if len(events) < _MAX_EVENTS:
                    break
                events = poll(0, _MAX_EVENTS)  # there were more than fit
            now = monotonic_ns()
            if run_stages:
                for stage in stages:
                    try:
                        if stage(now, horizon):
                            self._again = True
                    except Exception as error:
                        self.fault(error, "a stage failed")
            if self._asyncio_wanted:
                return
            if deadline is not None:
                if now >= deadline:
                    return
                timeout = (deadline - now) / 1e9

    def close(self) -> None:
        self._epoll.close()
        self._timer.close()

    def _ring(self, _mask: int) -> None:
        self._timer.clear()
        alarms = self._alarms
        now = monotonic_ns()
        while alarms and alarms[0][0] <= now:
            alarm = heapq.heappop(alarms)[2]
            try:
                alarm(now)
            except Exception as error:
                self.fault(error, "an alarm failed")  # the others still ring
        if alarms:
            self._timer.arm(alarms[0][0])


def _place(error: Exception) -> str:
    """Kind, and where it was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
    return f"{type(error).__name__} {where}"


def _shut_down(fd: int) -> None:
    """End the connection for the other side; the descriptor itself is its owner's to close."""
    try:
        with socket.socket(fileno=os.dup(fd)) as same:
            same.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it is no socket, or not connected


def _merged(events: list[tuple[int, int]], more: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The events of both lists, each descriptor once: a handler that closes it may be followed by
    one that opens it anew."""
    if not more or not events:
        return more or events
    masks = dict(events)
    for fd, mask in more:
        masks[fd] = masks.get(fd, 0) | mask
    return list(masks.items())
