"""Launching and ending consumers through the executor. After launches that failed, the next
one waits for longer each time. Pure except for the executor.

    launched ──── joins ────▶ a consumer ──── the world lets it go ────▶ told to end ──▶ gone
        │                         ▲                                          │
        ├─ died, or too late:     └──────── another one went in its place ───┘
        │  called off, back off
        └─ nobody wants it any more: called off
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from srtm.autoscaler.executors.executor import Executor, Fleet, Wanted
from srtm.autoscaler.live.roster import Roster
from srtm.host.backoff import backoff_seconds

_MOST_BACKOFF_SECONDS = 60.0
_DOUBLINGS_AT_FIRST = 3
"""The first wait is 0.4 to 0.8 s: a consumer that cannot start rarely can a moment later."""


@dataclass(slots=True)
class Backoff:
    """Launches that fail: longer and longer nothing is tried."""

    why: str = ""
    _failures: int = 0
    _again_at: float = 0.0

    def told(self, at: float) -> str:
        """Why nobody is launched for now; "" where it is."""
        return self.why if at < self._again_at else ""

    def fail(self, at: float, why: str) -> None:
        self.why = why
        if at < self._again_at:  # of the same attempt: several were launched at once
            return
        attempt = self._failures + _DOUBLINGS_AT_FIRST
        self._again_at = at + backoff_seconds(attempt, 0.5, _MOST_BACKOFF_SECONDS)
        self._failures += 1

    def succeed(self) -> None:
        """A launch has succeeded: the next one is tried at once."""
        self.why, self._failures, self._again_at = "", 0, 0.0


@dataclass(slots=True)
class Crew:
    """startup_seconds: how long a launch may take to join
    count: consumers that are wanted in all; None: nobody has decided yet
    """

    executor: Executor
    startup_seconds: float
    count: int | None = None
    fleet: Fleet = field(default_factory=Fleet)
    backoff: Backoff = field(default_factory=Backoff)
    _told: set[str] = field(default_factory=set)
    _said: frozenset[str] = frozenset()

    def take_over(self, at: float, roster: Roster) -> None:
        """Enter as launches those that the controller before this one launched and that have not
        joined: they have the time of a start-up from now on."""
        self.want(at, roster, lambda id_: False)
        for id_ in sorted(self.look(roster).running - roster.members.keys()):
            roster.launched[id_], roster.parts[id_] = at, ()

    def look(self, roster: Roster) -> Fleet:
        """What the executor knows now. A consumer that was to end, and in whose place another one
        went, works on. A launch that was given up and is still there is on its way out: it is
        nobody's consumer, though it may join."""
        self.fleet = self.executor.seen()
        roster.leaving |= self.fleet.leaving
        spared = self._said - self.fleet.leaving
        roster.leaving -= spared & self.fleet.running
        self._told -= spared
        return self.fleet

    def failed(self, at: float, roster: Roster) -> list[str]:
        """Why launches came to nothing, each of which is forgotten."""
        found = []
        for id_, begun in list(roster.launched.items()):
            why = self.fleet.died.get(id_, "")
            if not why and at - begun > self.startup_seconds:
                why = self.fleet.starting.get(id_, f"{id_} did not join in time")
                self._told.add(id_)
            if why:
                found.append(why)
                self.backoff.fail(at, why)
                roster.failed(id_)
        return found

    def call_off(self, ids: Iterable[str]) -> None:
        """Have the executor end them: launches that nobody wants any more, and who is to leave and
        cannot be told so, as it is no member."""
        self._told.update(ids)

    def want(self, at: float, roster: Roster, may_end: Callable[[str], bool]) -> None:
        """Tell the executor all that is wanted. may_end: a consumer that leaves -> is it the
        executor that ends it, and now?"""
        self._told.update(id_ for id_ in roster.leaving if may_end(id_))
        self._said = frozenset(self._told)
        self.executor.want(
            at,
            Wanted(
                launches=tuple(roster.launched),
                leavers=self._said,
                count=self.count,
                there=len(roster.parts) - len(roster.launched),
            ),
        )
