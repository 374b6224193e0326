"""Stranded tokens: unused at some brokers while messages of the same topic wait at others.

The shares of a topic add up to its contract and never admit more; the price is that a token can lie
where nobody needs it. A broker's level is its tokens (at most b_l; a debt counts as 0) less its
messages without a token. At one moment

    stranded = min(whole tokens of the brokers above 0, tokens that those below 0 lack)

A single message lacks one token; a batch lacks those that are missing to let it and all before it
go. So it is never more than what waits, and 0 where one broker has all.

**What it says.** Shares that began with the contract's tokens hold no more together than one bucket
would at the same moment (its level is at least the sum of theirs). So in one bucket at least so
many single messages fewer would wait at that moment; and its mean over a time, multiplied by the
time, is at most the sum of the messages' DRL penalties. The rest of the penalty comes from tokens
that overflowed before.

**Error.** Reports are about a second apart, and by clocks that differ, so each moment is computed
once all brokers have told what came until then, and given the worst of what is known of their
levels (`broker_level.py`). The least is therefore never more than what was stranded, and the most
never less (but for batches, which lack fewer tokens than are counted so). Where a batch bigger than
b_l leaves a debt, nobody is said to wait until that is paid.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from math import fsum

import numpy as np
from numpy.typing import ArrayLike

from srtm.limits.queueing import Floats
from tb_adaptor.penalty.broker_level import ROUNDING, BrokerLevel, Reading

_CELL_SECONDS = 0.005
"""over which the worst is taken: the brokers' clocks are known no better"""
_STEP_SECONDS = 1.0
"""computed together, at least: half a millisecond of work for two brokers"""
_LONGEST_SECONDS = 5.0
"""computed together, at most: after a gap in the reports of a fleet the rest is left out"""


def stranded(unused: ArrayLike, lacking: ArrayLike) -> Floats:
    """Stranded tokens at n moments, shape (n,), by the levels of all brokers that unused tokens and
    lacking ones are counted by: shape (brokers, n), the same where they are known."""
    tokens = np.floor(np.maximum(unused, 0.0) + ROUNDING).sum(axis=0)
    lacks = np.ceil(np.maximum(np.negative(lacking), 0.0) - ROUNDING).sum(axis=0)
    found: Floats = np.minimum(tokens, lacks)
    return found


@dataclass(frozen=True, slots=True)
class Stranded:
    """Means over `seconds`, in tokens: at least `least` were stranded, and at most `most`."""

    seconds: float
    least: float
    most: float


class Levels:
    """What is known of the levels of a topic's brokers, and what was stranded lately.

    burst: b of the contract; window_seconds: back, that is shown"""

    def __init__(self, brokers: Iterable[str], burst: float, window_seconds: float) -> None:
        self._of = {name: BrokerLevel() for name in brokers}
        self._burst = burst
        self._window = window_seconds
        self._at: float | None = None  # until when it is computed
        self._found: deque[tuple[float, Stranded]] = deque()

    def add(self, name: str, reading: Reading) -> None:
        self._of[name].add(reading)

    def forget(self) -> None:
        """A broker does not tell its level: what the others tell is worth nothing."""
        self._of, self._at = {name: BrokerLevel() for name in self._of}, None

    def advance(self, now: float) -> None:
        """Compute what was stranded until all brokers have told."""
        brokers = self._of.values()
        if not all(each.stretches for each in brokers):
            return
        since = max(each.began for each in brokers) if self._at is None else self._at
        until = min(each.until for each in brokers)
        if until - since < _STEP_SECONDS:
            return
        may_wait = any(each.has_waited for each in brokers)
        since = max(since, until - (_LONGEST_SECONDS if may_wait else self._window))
        cells = int((until - since) / _CELL_SECONDS)
        least = most = 0.0
        if may_wait:
            edges = since + _CELL_SECONDS * np.arange(cells + 1, dtype=np.float64)
            low, high, lacking = zip(*(each.levels(edges) for each in brokers), strict=True)
            found = np.minimum([stranded(low, lacking), stranded(high, low)], self._burst)
            least, most = found.mean(axis=1).tolist()
        self._found.append((now, Stranded(cells * _CELL_SECONDS, least, most)))
        self._at = since + cells * _CELL_SECONDS
        for each in brokers:
            each.forget(self._at)
        self._drop(now)

    def shown(self, now: float) -> Stranded | None:
        """None where nothing is known."""
        self._drop(now)
        found = [each for _, each in self._found]
        seconds = fsum(each.seconds for each in found)
        if not seconds:
            return None
        least, most = (
            fsum(each.seconds * value for each, value in values) / seconds
            for values in ([(e, e.least) for e in found], [(e, e.most) for e in found])
        )
        return Stranded(seconds, least, most)

    def _drop(self, now: float) -> None:
        while self._found and self._found[0][0] <= now - self._window:
            self._found.popleft()
