"""By how much the wall clocks of two hosts differ, as far as one request can tell.

The other side reads its clock between the sending of a request and the coming of its answer, so the
difference is known to half of that time (Cristian, 1989).
"""

from collections import deque
from typing import Any, NamedTuple, Self

from srtm.host.clock import boot_id

_EXCHANGES = 60
_MOST_NS = 31_557_600_000_000_000
"""a year"""


class Offset(NamedTuple):
    """error_ns: at most; offset_ns: the other host's wall clock minus ours. Of two, the one with
    the smaller error is the lesser."""

    error_ns: int
    offset_ns: int

    def document(self) -> dict[str, int]:
        return self._asdict()

    @classmethod
    def read(cls, document: Any) -> Self:
        """Raises ValueError."""
        try:
            error, offset = document["error_ns"], document["offset_ns"]
        except (TypeError, KeyError) as wrong:
            raise ValueError(f"no difference of clocks: {wrong!r}") from None
        if not type(error) is type(offset) is int or not 0 <= error <= _MOST_NS >= abs(offset):
            raise ValueError("no difference of clocks: two integers, at most a year each")
        return cls(error, offset)


SAME = Offset(0, 0)
"""of programs of one machine"""


class Offsets:
    """The differences that the last requests to one host told; the quickest tells it best."""

    def __init__(self) -> None:
        self._boot_id = ""
        self._last: deque[Offset] = deque(maxlen=_EXCHANGES)

    @property
    def best(self) -> Offset | None:
        """None before the first answer."""
        return min(self._last, default=None)

    def add(self, their_boot_id: str, their_wall_ns: int, begun_ns: int, done_ns: int) -> None:
        """One request more, as `offset_of` takes it. Another host, or start of it, begins anew."""
        if their_boot_id != self._boot_id:
            self._boot_id = their_boot_id
            self._last.clear()
        self._last.append(offset_of(their_boot_id, their_wall_ns, begun_ns, done_ns))


def offset_of(their_boot_id: str, their_wall_ns: int, begun_ns: int, done_ns: int) -> Offset:
    """their_wall_ns: what the other side's clock said in its answer; begun_ns, done_ns: ours before
    the request and after the answer"""
    if their_boot_id and their_boot_id == boot_id():
        return SAME
    half = max(0, done_ns - begun_ns) // 2
    return Offset(half, their_wall_ns - begun_ns - half)
