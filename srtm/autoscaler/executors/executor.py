"""What a controller asks of who starts consumers, and how long that is left alone after a failure.

Nothing here waits: an executor that asks another host does it in a thread of its own, or the
controller's beats would stop.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from srtm.host.backoff import backoff_seconds

_MOST_BACKOFF_SECONDS = 60.0
_DOUBLINGS_AT_FIRST = 3
"""The first wait is 0.4 to 0.8 s: a consumer that cannot start rarely can a moment later."""


class Executor(Protocol):
    """Consumers go by ids. `at` is in seconds on the caller's clock.

    restarts:  it starts again what ends by itself, so consumers are ended by `end` alone
    anonymous: it cannot say which launch a consumer is: who joins takes the oldest launch
    chooses:   can it end a certain consumer?
    """

    @property
    def restarts(self) -> bool: ...
    @property
    def anonymous(self) -> bool: ...
    @property
    def chooses(self) -> bool: ...

    def names(self, count: int) -> list[str]:
        """Ids of the next launches."""

    def launch(self, at: float, ids: Sequence[str]) -> list[str]:
        """Begin these launches. Returns those that could not even be begun."""

    def joined(self, ids: Sequence[str]) -> None:
        """These launches came to something."""

    def failed(self, at: float) -> Iterator[str]:
        """Launches that came to nothing. Call it often: it looks after what is under way."""

    def called_off(self, ids: Sequence[str]) -> None:
        """Launches that nobody wants any more; who has joined is ended."""

    def want(self, wanted: int, there: int) -> None:
        """Told after each decision how many consumers are wanted in all, and how many there are
        now; for an executor that only tells others."""

    def end(self, at: float, ids: Sequence[str]) -> None:
        """They get SIGTERM, and the time that they are given to leave."""

    def running(self) -> tuple[str, ...] | None:
        """Launched by anybody for this group, and not on their way out; None: it does not know."""

    def leaving(self) -> tuple[str, ...]:
        """Told to end, and still there."""

    def staying(self, ids: Sequence[str], count: int) -> list[str]:
        """The consumers among `ids` that stay when `count` are to; the executor may have no
        choice."""

    def backing_off(self, at: float) -> str:
        """Why nobody is launched for now; "" where it is."""

    def fault(self) -> str:
        """What is wrong, or would be; "" while all is well."""

    def close(self) -> None: ...


@dataclass(slots=True)
class Backoff:
    """Launches that fail: longer and longer nothing is tried. Pure."""

    why: str = ""
    _failures: int = 0
    _again_at: float = 0.0

    def told(self, at: float) -> str:
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
