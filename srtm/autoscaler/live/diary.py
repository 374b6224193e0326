"""The last decisions, kept in the group's partition for `srtm autoscale explain`."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from srtm.consumer.wire import Note

_KEPT = 200
_STAMPS = 10_000
"""of decisions of others that are remembered"""
_SETTLES_SECONDS = 15.0
"""After a change is carried out, until what was late of it is written down: a queue was left."""


@dataclass(slots=True)
class Diary:
    """write: to the group's partition. A decision is written when it is taken, again when it is
    carried out, and once more with what was late meanwhile, beside what was foretold of it.

    stamps: when decisions were taken that stand there from before
    """

    write: Callable[[Note], None]
    stamps: deque[str] = field(default_factory=lambda: deque(maxlen=_STAMPS))
    _number: int = 0
    _open: dict[str, Any] | None = None
    _done: dict[str, Any] | None = None
    _since: float = 0.0
    _late: int = 0

    def read(self, note: Note) -> None:
        """What stands there already: numbers go on from it."""
        number, stamp = note.document.get("number"), note.document.get("at")
        known = number if isinstance(number, int) else 0
        if known > self._number and isinstance(stamp, str):
            self.stamps.append(stamp)
        self._number = max(self._number, known)

    def begin(self, now: float, **document: object) -> None:
        """A decision is taken; now: seconds"""
        self._settle()
        self._number += 1
        self._open, self._since, self._late = {"number": self._number, **document}, now, 0
        self._write(self._open)

    def see(self, now: float, late: int) -> None:
        """late: events that were late since the last call"""
        self._late += late
        if self._done is not None and now - self._since >= _SETTLES_SECONDS:
            self._settle()

    def _settle(self) -> None:
        if self._done is not None:
            self._write(self._done | {"late": self._late})
            self._done = None

    def end(self, now: float, stops: Sequence[float]) -> None:
        """The decision that was begun is carried out; stops: seconds for which each partition that
        moved stood still"""
        if self._open is None:
            return
        self._done = self._open | {
            "took_seconds": round(now - self._since, 3),
            "moved": len(stops),
            "stopped_seconds": round(max(stops, default=0.0), 4),
        }
        self._write(self._done)
        self._open, self._since = None, now

    def _write(self, document: dict[str, Any]) -> None:
        self.write(Note(name=f"{document['number'] % _KEPT:04}", document=document))
