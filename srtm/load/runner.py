"""The run itself: one thread, one epoll loop, sends at their time and answers as they come."""

import gc
import resource
import signal
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from srtm.host.clock import NS, monotonic_ns
from srtm.load.fleet import Fleet
from srtm.load.follow import Follower
from srtm.load.moves import Moves
from srtm.load.record import Record
from srtm.load.result import Account, LoadResult, summarise
from srtm.load.schedule import Schedule, build_schedule
from srtm.load.settings import LoadSettings

_LEAD_NS = 50_000_000
"""The time from the start of the loop to offset 0 of the schedule, so that the first send is not
late."""

_TICK_SECONDS = 0.25
_TICK_NS = NS // 4
"""The time between two looks at what no event tells."""

_LOOK_NS = 5_000_000
"""The time between two looks whether all has come, after the last send."""

_SENDS, _EVENTS = 128, 128
"""The most sends, and then the most sockets, before the other has its turn: about 1 ms each."""


@dataclass(frozen=True, slots=True)
class Progress:
    """`seconds` of `total_seconds` of sending; commands unanswered, messages received so far."""

    seconds: float
    total_seconds: float
    unanswered: int
    received: int


def run_load(
    settings: LoadSettings,
    on_progress: Callable[[Progress], None] | None = None,
    follower: Follower | None = None,
) -> LoadResult:
    """Run the load and measure it; takes the duration, and the draining.

    follower: tells of moves of the publishers, which are followed; it is started and stopped here
    Calls `on_progress` every second, inside the loop. Raises UsageError or UnavailableError
    before anything is sent; a broker that goes away later is in the result's `problems`.
    """
    run = _Run(settings, on_progress, follower)
    try:
        run.fleet.connect()
        if follower is not None:
            consume = run.fleet.subscribe if settings.consume_addresses else None
            follower.start(run.fleet.dial, consume)
        return run.measure()
    finally:
        if follower is not None:
            follower.stop()
        run.fleet.close()


class _Run:
    def __init__(
        self,
        settings: LoadSettings,
        on_progress: Callable[[Progress], None] | None,
        follower: Follower | None,
    ) -> None:
        self.settings = settings
        self.on_progress = on_progress
        self.schedule = None if settings.outstanding else build_schedule(settings)
        self.record = Record(settings.batch, settings.commands_per_event)
        self.fleet = Fleet(settings, self.record, spare=settings.publishers if follower else 0)
        self.moves = Moves(follower, self.fleet) if follower else None
        self.start_ns = 0
        self.tick_at = self.progress_at = 0
        self.interrupted = False

    def measure(self) -> LoadResult:
        """Send, drain, account. Python's garbage collector is off meanwhile."""
        collecting = gc.isenabled()
        gc.collect()
        gc.disable()
        before = resource.getrusage(resource.RUSAGE_SELF)
        self.fleet.start_consumers()
        try:
            with self._interrupts_noted():
                if self.schedule is None:
                    self._send_at_maximum_speed()
                else:
                    self._send_planned(self.schedule)
                self._drain()
        finally:
            if collecting:
                gc.enable()
        after = resource.getrusage(resource.RUSAGE_SELF)
        fleet = self.fleet
        account = Account(
            start_ns=self.start_ns,
            end_ns=monotonic_ns(),
            interrupted=self.interrupted,
            closed_publishers=tuple(link.index for link in fleet.publishers if link.closed),
            closed_consumers=tuple(i for i, link in enumerate(fleet.consumers) if link.closed),
            errors=dict(fleet.errors),
            foreign=sum(consumer.foreign for consumer in fleet.consumers),
            cpu_seconds=after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime,
            publish_addresses=tuple(fleet.publish_addresses),
            consume_addresses=tuple(fleet.consume_addresses),
            moves=tuple(self.moves.done) if self.moves else (),
            move_problems=tuple(self.moves.problems) if self.moves else (),
        )
        return summarise(self.settings, self.record, account)

    @contextmanager
    def _interrupts_noted(self) -> Iterator[None]:
        """Ctrl-C ends the run at the next tick, with its results, and never between two arrays."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def note(*_: object) -> None:
            self.interrupted = True

        before = signal.signal(signal.SIGINT, note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    # --- the loops ----------------------------------------------------------------------------

    def _send_planned(self, schedule: Schedule) -> None:
        """Open loop: every event at its time, or as soon after it as the machine allows."""
        record, fleet = self.record, self.fleet
        publishers, handlers = fleet.publishers, fleet.handlers
        poll, arm, clock, moves = fleet.poller.poll, fleet.timer.arm, monotonic_ns, self.moves
        self.start_ns = monotonic_ns() + _LEAD_NS
        record.plan(schedule, self.start_ns)
        intended_ns, who = record.intended_ns, record.publisher
        event, armed, events = 0, -1, len(schedule)
        while event < events:
            now = clock()
            if intended_ns[event] <= now:
                end = bisect_right(intended_ns, now, event, min(event + _SENDS, events))
                if end - event == 1:
                    publishers[who[event]].send_event(event)
                else:
                    self._send_together(event, end)
                event = end
                if event == events:
                    return
            timeout = 0.0
            if intended_ns[event] > now:
                timeout = _TICK_SECONDS
                if armed != event:
                    arm(intended_ns[event])
                    armed = event
            for fd, _ in poll(timeout, _EVENTS):
                handlers[fd]()
            if moves is not None:
                moves.step()
            if now >= self.tick_at and not self._tick(now):
                return

    def _send_together(self, event: int, end: int) -> None:
        """Events that are due at once: one write for each connection."""
        who = self.record.publisher
        by_publisher: dict[int, list[int]] = {}
        for number in range(event, end):
            by_publisher.setdefault(who[number], []).append(number)
        for index, numbers in by_publisher.items():
            self.fleet.publishers[index].send_events(numbers)

    def _send_at_maximum_speed(self) -> None:
        """Closed loop: each answer is followed by the next event, until the time is over."""
        assert self.settings.outstanding is not None
        self.start_ns = now = monotonic_ns()
        end_ns = now + int(self.settings.seconds * NS)
        self.fleet.timer.arm(end_ns)
        for publisher in self.fleet.publishers:
            publisher.refill = True
            publisher.send_now(self.settings.outstanding, monotonic_ns())
        handlers, poll = self.fleet.handlers, self.fleet.poller.poll
        while now < end_ns:
            for fd, _ in poll(_TICK_SECONDS, _EVENTS):
                handlers[fd]()
            now = monotonic_ns()
            if now >= self.tick_at and not self._tick(now):
                break
        for publisher in self.fleet.publishers:
            publisher.refill = False

    def _drain(self) -> None:
        """Wait until every command is answered and every acknowledged message is received.

        Acknowledged messages are waited for as long as they come: a closed loop can leave more in
        a broker than its consumer takes in any time that is fixed before.
        """
        now = look_at = monotonic_ns()
        wait_ns = int(self.settings.drain_seconds * NS)
        deadline = now + wait_ns
        acknowledged: int | None = None
        received = 0
        while now < deadline and not self.interrupted:
            if now >= look_at:
                look_at = now + _LOOK_NS
                if acknowledged is None and not self._awaits_answers():
                    acknowledged = self.record.acknowledged_count()
                if acknowledged is not None:
                    if self._has_received(acknowledged):
                        return
                    more = self.record.received_count()
                    if received < more <= acknowledged:
                        deadline = now + wait_ns
                    received = more
            for fd, _ in self.fleet.poller.poll(_LOOK_NS / NS, _EVENTS):
                self.fleet.handlers[fd]()
            if self.moves is not None:
                self.moves.step()
            now = monotonic_ns()
            if now >= self.tick_at:
                self._tick(now)

    def _awaits_answers(self) -> bool:
        return any(
            (link.waiting and not link.closed) or link.held for link in self.fleet.publishers
        )

    def _has_received(self, acknowledged: int) -> bool:
        if all(link.closed for link in self.fleet.consumers):
            return True
        return self.record.received_count() >= acknowledged and self.record.is_complete()

    def _tick(self, now: int) -> bool:
        """What no event tells: progress, Ctrl-C, everybody gone; False when sending has to end."""
        self.tick_at = now + _TICK_NS
        if self.on_progress is not None and now >= self.progress_at:
            self.progress_at = now + NS
            self.on_progress(self._progress(now))
        gone = all(link.closed and link.held is None for link in self.fleet.publishers)
        return not (self.interrupted or gone)

    def _progress(self, now: int) -> Progress:
        return Progress(
            seconds=min(max(now - self.start_ns, 0) / NS, self.settings.seconds),
            total_seconds=self.settings.seconds,
            unanswered=sum(len(link.waiting) for link in self.fleet.publishers),
            received=self.record.received_count(),
        )
