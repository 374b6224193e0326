"""The messages of one topic that the gateway holds: their bounds, and the clients they pause."""

from collections.abc import Callable
from dataclasses import dataclass

from srtm.gateway.backlogs import Backlogs
from srtm.gateway.bodies import Bodies, Reader
from srtm.gateway.run import Owner, Run

_MESSAGE_BYTES = 64
"""that a message takes besides its own, in the bound of all topics together"""
_NEVER = 1 << 62


@dataclass(frozen=True)
class Bounds:
    """Backlog that a topic may have, and the body of one MPUB (see the options' names)."""

    max_topic_backlog: int
    max_topic_backlog_bytes: int
    max_body_size: int


class Backlog:
    """Messages, and their bytes, from the read to nsqd's answer. Times are monotonic nanoseconds.

    It is the reason with which owners are paused.
    """

    def __init__(
        self,
        bounds: Bounds,
        backlogs: Backlogs,
        call_at: Callable[[int, Callable[[int], None]], None],
    ) -> None:
        self.messages = 0
        self.bytes = 0
        self._most = bounds.max_topic_backlog
        self._most_bytes = bounds.max_topic_backlog_bytes
        self._backlogs = backlogs
        self._call_at = call_at
        self._paused: set[Owner] = set()
        self._bodies = Bodies(bounds.max_topic_backlog_bytes, backlogs)
        self._bodies_at = _NEVER  # when they are looked at again

    def follow(self, bounds: Bounds) -> None:
        """nsqd takes other sizes of bodies from now on."""
        self._most_bytes = self._bodies.most_bytes = bounds.max_topic_backlog_bytes

    @property
    def is_full(self) -> bool:
        """Is it at one of its bounds?"""
        return (
            self.messages >= self._most
            or self.bytes >= self._most_bytes
            or self._backlogs.is_full_for(self._held_bytes)
        )

    @property
    def _held_bytes(self) -> int:
        """The bytes held, with what each message takes besides: a small one is mostly that."""
        return self.bytes + self.messages * _MESSAGE_BYTES

    def add(self, run: Run) -> None:
        """Past a bound its owner is not read until there is room."""
        self._backlogs.add(run.size + run.count * _MESSAGE_BYTES, not self.messages)
        self.messages += run.count
        self.bytes += run.size
        is_over = self._backlogs.is_full_for(self._held_bytes)
        if is_over or self.messages > self._most or self.bytes > self._most_bytes:
            self._paused.add(run.owner)
            run.owner.pause(self)

    def remove(self, run: Run) -> None:
        """The run holds memory no more (once only, however it ended)."""
        if run.size:
            self.messages -= run.count
            self.bytes -= run.size
            self._backlogs.remove(run.size + run.count * _MESSAGE_BYTES, not self.messages)
            run.size = 0
            if self._paused:
                self._resume_owners()
            if self._bodies.waiting:
                self._look_for_room(0)

    def shrink(self, count: int, size: int) -> None:
        """Part of a run is done with, before the rest of it."""
        self.messages -= count
        self.bytes -= size
        self._backlogs.remove(size + count * _MESSAGE_BYTES, last=False)

    def left(self, owner: Owner) -> None:
        """A client has gone that was not read because of this topic."""
        self._paused.discard(owner)

    def _resume_owners(self) -> None:
        """Half-empty again: those that filled the backlog may be read on."""
        if self._backlogs.is_full_for(self._held_bytes):
            self._backlogs.wait(self)
        elif self.messages * 2 <= self._most and self.bytes * 2 <= self._most_bytes:
            paused, self._paused = self._paused, set()
            for owner in paused:
                owner.resume(self)

    def look_again(self) -> None:
        """Let whoever waits here go on: all topics together have room again."""
        if self._paused:
            self._resume_owners()
        if self._bodies.waiting:
            self._look_for_room(0)

    # --- big bodies that are under way ----------------------------------------------------------

    def body_may_come(self, reader: Reader, size: int, now: int) -> bool:
        """May it be read (see `Bodies`)?"""
        return self._bodies.begin(reader, size, self.bytes, now)

    def await_room(self, reader: Reader, size: int, now: int) -> object:
        """Let it in later: by `resume` with the reason that this returns."""
        self._bodies.wait(reader, size)
        self._backlogs.wait(self)
        self._look_for_room(self._bodies.next_at(now))
        return self._bodies

    def body_ended(self, reader: Reader) -> None:
        """The body has come whole, or never will."""
        self._bodies.end(reader)
        if self._bodies.waiting:
            self._look_for_room(0)

    def _look_for_room(self, when: int) -> None:
        if when < self._bodies_at:
            self._bodies_at = when
            self._call_at(when, self._let_bodies_in)

    def _let_bodies_in(self, now: int) -> None:
        if self._bodies_at > now:
            return  # another one is under way
        self._bodies_at = _NEVER
        self._bodies.let_in(self.bytes, now)
        if self._bodies.waiting:
            self._backlogs.wait(self)
            self._look_for_room(self._bodies.next_at(now))
