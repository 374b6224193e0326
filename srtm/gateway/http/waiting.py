"""Places for HTTP requests that wait: each holds a connection, and connections are bounded.

They are counted by what they wait for, a topic or a call of nsqd's. Nobody may have more of them
than there are places left, so one that is throttled gets half of the places, two a third each
(Choudhury and Hahne's dynamic threshold). Where many together have taken the last place, who has
none gets one of those of who has most.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Full(Exception):
    """What the request would wait for has its part of the places."""


class Waiting:
    """places: of all together"""

    def __init__(self, places: int) -> None:
        self._free = places
        self._held: dict[bytes, dict[object, Callable[[], bool] | None]] = {}

    @contextmanager
    def place(self, name: bytes, leave: Callable[[], bool] | None = None) -> Iterator[None]:
        """Take a place for as long as a request waits for `name`. Raises Full.

        leave: makes the request give its place up; False where it is too late for that
        """
        mine = self._held.get(name, {})
        if len(mine) >= self._free and (mine or not self._take_from_most()):
            raise Full
        token = object()
        self._held.setdefault(name, {})[token] = leave
        self._free -= 1
        try:
            yield
        finally:
            self._release(name, token)

    def _release(self, name: bytes, token: object) -> None:
        if token in self._held.get(name, {}):
            del self._held[name][token]
            self._free += 1
            if not self._held[name]:
                del self._held[name]

    def _take_from_most(self) -> bool:
        """The newest of who has most gives its place up. False where everybody has one at most."""
        name = max(self._held, key=lambda each: len(self._held[each]), default=b"")
        mine = self._held.get(name, {})
        if len(mine) < 2:
            return False
        for token, leave in reversed(list(mine.items())):
            if leave is not None and leave():
                self._release(name, token)
                return True
        return False
