"""How many bytes an event of each partition takes on disk (Landau weighs by bytes). Pure.

Offsets say how many events came, and log dirs what they take: an event's share of that turns rates,
lags and what consumers serve into bytes, all in the same way. What retention deletes makes a log
smaller and no event lighter.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

_NEW = 0.3
"""weight of what came since the last look: events may become larger"""
_ENOUGH = 100
"""events since the last look that say something"""


@dataclass(slots=True)
class Weights:
    """of: partition -> bytes of an event"""

    of: dict[int, float] = field(default_factory=dict)
    _last: dict[int, tuple[int, int, int]] = field(default_factory=dict)

    def see(
        self, sizes: Mapping[int, int], starts: Mapping[int, int], ends: Mapping[int, int]
    ) -> None:
        """Sizes of the partitions' logs in bytes, and their first and next offsets."""
        for partition, size in sizes.items():
            start, end = starts.get(partition, 0), ends.get(partition, 0)
            if size <= 0 or end <= start:
                continue
            known = self.of.get(partition)
            last = self._last.get(partition)
            if known is None or last is None or start != last[1] or size < last[0] or end < last[2]:
                self.of[partition] = size / (end - start)
            elif end - last[2] >= _ENOUGH and size > last[0]:
                new = (size - last[0]) / (end - last[2])
                self.of[partition] = known + _NEW * (new - known)
            else:
                continue
            self._last[partition] = (size, start, end)

    def weight(self, partition: int) -> float:
        """Bytes of an event of the partition; of one that holds nothing yet, the mean of the
        others."""
        found = self.of.get(partition)
        if found is not None:
            return found
        return sum(self.of.values()) / len(self.of) if self.of else 1.0
