"""What a controller and its executor say to one another: who is wanted, and who is there.

The controller says all that it wants each time, and the executor finds out what is new in it. So no
call has to arrive, and calling again changes nothing. Nothing here waits: an executor that asks
another host does it in a thread of its own, or the controller's beats would stop.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Abilities:
    """What executors differ in.

    restarts:  it starts again what ends by itself: a Kafka consumer of its is ended by it, and not
               told to leave
    anonymous: it cannot say which launch a consumer is: who joins takes the oldest launch
    blind:     it tells somebody else how many are wanted: it knows nobody, and ends nobody by name
    numbered:  consumers are `numbered`-0, `numbered`-1, ... and the highest go first; "": they are
               not numbered
    """

    restarts: bool = False
    anonymous: bool = False
    blind: bool = False
    numbered: str = ""

    def names(self, count: int, next_number: int) -> list[str]:
        """Ids of the next launches."""
        if self.numbered:
            return [f"{self.numbered}-{next_number + n}" for n in range(count)]
        stem = "launch" if self.anonymous else "c"
        return [f"{stem}-{uuid.uuid4().hex[:8]}" for _ in range(count)]

    def staying(self, ids: Sequence[str], count: int) -> list[str]:
        """The consumers among `ids` that stay when `count` are to, the first ones where there is a
        choice."""
        return (sorted(ids, key=ordinal) if self.numbered else list(ids))[:count]


def ordinal(name: str) -> int:
    """The number at the end of a consumer's name; a very large one where there is none."""
    tail = name.rpartition("-")[2]
    return int(tail) if tail.isascii() and tail.isdigit() and len(tail) < 9 else 10**9


@dataclass(frozen=True, slots=True)
class Wanted:
    """All that a controller wants now.

    launches: ids that are to start, oldest first. One that runs already was begun for the
              controller before. One that is here no more has joined, or was given up: then it is
              among the leavers.
    leavers:  consumers that are to end, with the time that they are given to leave. Each is in
              `Fleet.leaving` until it is gone, or it is taken for spared.
    count:    consumers in all, as decided last (None: nobody has decided); there: who has joined
    """

    launches: tuple[str, ...] = ()
    leavers: frozenset[str] = frozenset()
    count: int | None = None
    there: int = 0


@dataclass(frozen=True, slots=True)
class Fleet:
    """What an executor knows.

    running:     launched by anybody for this group, and not on their way out
    starting:    launch -> what to report if it has still not joined after the time of a start-up
    leaving:     told to end, and still there
    died:        launch -> why it came to nothing, for as long as it is wanted
    next_number: of the next launch, where consumers are numbered
    fault:       what is wrong now; "" while all is well
    """

    running: frozenset[str] = frozenset()
    starting: Mapping[str, str] = field(default_factory=dict)
    leaving: frozenset[str] = frozenset()
    died: Mapping[str, str] = field(default_factory=dict)
    next_number: int = 0
    fault: str = ""


class Executor(Protocol):
    """Who starts and ends consumers, which go by ids."""

    @property
    def abilities(self) -> Abilities: ...

    def want(self, at: float, wanted: Wanted) -> None:
        """Begin and end what is new in `wanted`, and look after what is under way. Call it often.
        at: seconds on the caller's clock"""

    def seen(self) -> Fleet:
        """What is known since `want` was called last."""

    def close(self) -> None:
        """Let go of threads and ports; consumers work on."""
