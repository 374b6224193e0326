"""Messages of one publisher between `send` and their answer. No I/O.

put -> waiting -> take -> sent -> answered
          ^                 |
          +-- put back -----+   they surely did not run
"""

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Entry = TypeVar("Entry")

_BEFORE_STORING = frozenset(
    ["E_INVALID", "E_BAD_PROTOCOL", "E_BAD_TOPIC", "E_BAD_BODY", "E_BAD_MESSAGE"]
)
_OVER_THE_LIMIT = "over the limit"


def nothing_behind_ran(code: str, sentence: str) -> bool:
    """An error frame ends the connection. Is it sure that what was sent behind the refused message
    is not stored? Form and limit are judged before anything is stored; a failure to write may come
    in the middle of a batch."""
    return code in _BEFORE_STORING or sentence.startswith(_OVER_THE_LIMIT)


class Outbox(Generic[Entry]):
    """Two queues; entries leave each in the order in which they were put."""

    def __init__(self) -> None:
        self._waiting: deque[Entry] = deque()
        self._sent: deque[Entry] = deque()

    @property
    def in_flight(self) -> int:
        """Commands that are sent and not answered."""
        return len(self._sent)

    @property
    def idle(self) -> bool:
        return not self._sent and not self._waiting

    def put(self, entry: Entry) -> None:
        self._waiting.append(entry)

    def take(self, most: int, given_up: Callable[[Entry], bool]) -> list[Entry]:
        """Up to `most` that are written now; those that their sender has given up are dropped."""
        taken: list[Entry] = []
        while self._waiting and len(taken) < most:
            entry = self._waiting.popleft()
            if not given_up(entry):
                taken.append(entry)
        self._sent.extend(taken)
        return taken

    def answered(self) -> Entry:
        """The oldest that is sent: answers come in order. Raises IndexError when none is."""
        return self._sent.popleft()

    def lost(self) -> list[Entry]:
        """The connection is gone: those whose outcome nobody knows."""
        lost = list(self._sent)
        self._sent.clear()
        return lost

    def put_back(self) -> None:
        """What was sent and surely did not run waits again, before all that waits."""
        self._waiting.extendleft(reversed(self._sent))
        self._sent.clear()

    def give_up(self) -> list[Entry]:
        """What was never sent."""
        left = list(self._waiting)
        self._waiting.clear()
        return left
