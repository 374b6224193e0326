"""When events arrived, computed from end offsets that were read at intervals. Pure."""

from bisect import bisect_left, bisect_right

_MOST = 4096
"""points that are kept; beyond it the older half is thinned, so an old backlog is dated coarsely"""


class Curve:
    """A partition's end offset over time, on the reader's own clock; between two readings events
    are taken to come evenly."""

    __slots__ = ("_ends", "_times")

    def __init__(self) -> None:
        self._times: list[float] = []
        self._ends: list[int] = []

    def add(self, at: float, end: int) -> bool:
        """False where offsets went back: the topic was made anew, and so is the curve."""
        again = bool(self._ends) and end < self._ends[-1]
        if again:
            self._times.clear()
            self._ends.clear()
        self._times.append(at)
        self._ends.append(end)
        if len(self._times) > _MOST:
            half = _MOST // 2
            self._times[:half] = self._times[:half:2]
            self._ends[:half] = self._ends[:half:2]
        return not again

    @property
    def end(self) -> int:
        return self._ends[-1] if self._ends else 0

    @property
    def begins_at(self) -> int:
        """The end offset of the first reading: what is below arrived before anybody looked."""
        return self._ends[0] if self._ends else 0

    def arrived_by(self, at: float) -> float:
        """The end offset at `at`; that of the first reading before it, of the last one after."""
        index = bisect_right(self._times, at)
        if not index:
            return float(self.begins_at)
        if index == len(self._times):
            return float(self._ends[-1])
        return _between(
            at, self._times[index - 1], self._times[index], self._ends[index - 1], self._ends[index]
        )

    def time_of(self, offset: float) -> float:
        """When the end offset passed `offset`: the arrival of the event before it. At the latest
        the first reading, for what was there then."""
        index = bisect_left(self._ends, offset)
        if not index:
            return self._times[0] if self._times else 0.0
        if index == len(self._ends):
            return self._times[-1]
        return _between(
            offset,
            self._ends[index - 1],
            self._ends[index],
            self._times[index - 1],
            self._times[index],
        )


def _between(x: float, x0: float, x1: float, y0: float, y1: float) -> float:
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0) if x1 > x0 else float(y1)
