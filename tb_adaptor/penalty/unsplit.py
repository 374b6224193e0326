"""One bucket that has the whole contract, over arrivals that are told little by little."""

import numpy as np

from srtm.limits.queueing import Floats
from tb_adaptor.share import Part
from tb_adaptor.window import levels_after

_FULL = 1 - 1e-9
"""of b; less is rounding"""


class Unsplit:
    """level: tokens at `at` seconds, less the messages that wait.

    Nobody knows what it would have held at first. It begins with the least that it can have held;
    once that is full, it is full whatever it began with, and from then on waits are exact.
    """

    def __init__(self, part: Part, at: float, level: float) -> None:
        self.part = part
        self.at = at
        self.level = min(level, part.burst)
        self.is_known = self.level >= part.burst * _FULL
        self._left_at = at  # when the last of those that came has left

    def take(self, times: Floats, counts: Floats, until: float) -> Floats:
        """Waits in seconds of all that came after the last call, NaN where they are not known;
        shape (n,). times: seconds, sorted, not before the last `until`, shape (n,); counts:
        messages that wait for all of their tokens together, shape (n,)."""
        rate, burst = self.part
        level, waits = self.level, np.empty(0)
        if times.size:
            after = levels_after(level, self.part, self.at, times, counts)
            lacking = -after - np.maximum(counts - burst, 0.0)  # more than b leave a debt
            leaves = times + np.maximum(lacking, 0.0) / rate
            leaves = np.maximum.accumulate(np.maximum(leaves, self._left_at))
            waits = np.where(leaves - times > _ROUNDING, leaves - times, 0.0)
            self._left_at = float(leaves[-1])
            level = float(after[-1]) + rate * (until - float(times[-1]))
            if not self.is_known:
                full = np.flatnonzero(after + counts >= burst * _FULL)
                waits[: int(full[0]) if full.size else waits.size] = np.nan
                self.is_known = bool(full.size)
        else:
            level += rate * (until - self.at)
        self.at, self.level = until, min(level, burst)
        self.is_known = self.is_known or self.level >= burst * _FULL
        return waits


_ROUNDING = 1e-9
"""seconds: the distributor's clock has no more digits"""
