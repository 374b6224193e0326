"""HTTP requests that wait for somebody else: each holds a connection, and connections are bounded.

They are counted by what they wait for, a topic or a call of nsqd's. Nobody may have more of them
than there are places left, so one that is throttled gets half of the places, two a third each, and
there is always one for whoever has none yet (Choudhury and Hahne's dynamic threshold).
"""

from collections.abc import Iterator
from contextlib import contextmanager


class Full(Exception):
    """What the request would wait for has its part of the places."""


class Waiting:
    """places: of all together"""

    def __init__(self, places: int) -> None:
        self._free = places
        self._held: dict[bytes, int] = {}

    @contextmanager
    def place(self, name: bytes) -> Iterator[None]:
        """For as long as a request waits for `name`. Raises Full."""
        held = self._held.get(name, 0)
        if held >= self._free:
            raise Full
        self._held[name] = held + 1
        self._free -= 1
        try:
            yield
        finally:
            self._free += 1
            self._held[name] -= 1
            if not self._held[name]:
                del self._held[name]
