"""The last decisions, kept in the group's partition for `srtm autoscale explain`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from srtm.consumer.wire import Note

_KEPT = 200


@dataclass(slots=True)
class Diary:
    """write: to the group's partition. A decision is written when it is taken, and again with what
    came of it when it is carried out."""

    write: Callable[[Note], None]
    _number: int = 0
    _open: dict[str, Any] | None = None
    _since: float = 0.0

    def read(self, note: Note) -> None:
        """What stands there already: numbers go on from it."""
        number = note.document.get("number")
        self._number = max(self._number, number if isinstance(number, int) else 0)

    def begin(self, now: float, **document: object) -> None:
        """A decision is taken; now: seconds"""
        self._number += 1
        self._open, self._since = {"number": self._number, **document}, now
        self._write(self._open)

    def end(self, now: float, stops: Sequence[float]) -> None:
        """The decision that was begun is carried out; stops: seconds for which each partition that
        moved stood still"""
        if self._open is None:
            return
        self._write(
            self._open
            | {
                "took_seconds": round(now - self._since, 3),
                "moved": len(stops),
                "stopped_seconds": round(max(stops, default=0.0), 4),
            }
        )
        self._open = None

    def _write(self, document: dict[str, Any]) -> None:
        self.write(Note(name=f"{document['number'] % _KEPT:04}", document=document))
