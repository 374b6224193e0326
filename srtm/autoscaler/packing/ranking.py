"""Open bins in the order of a key, and the first of them that has room for a rate and a lag.

A sorted list in blocks. Each block knows the outline of what its bins have left: the pairs (rate,
lag) that no other bin of it exceeds in both. So a search passes over the blocks that cannot help
and looks into one that can. Taking from a bin leaves the outline as it was, too large; it is made
anew when a search was led astray by it, at most once for each time that the block was changed.
"""

from bisect import bisect_left, insort
from itertools import islice
from math import inf

_BLOCK = 160
"""Entries at which a block is halved: 30,000 bins are about 250 blocks. To pass over these takes
about as long as to make one outline anew, and each placement of a first fit does both."""

Entry = tuple[float, int]
"""(key, bin number); among equal keys the lower number is first."""


class _Block:
    """entries: sorted. The outline is a staircase: rates ascend while lags descend."""

    __slots__ = ("entries", "outline_lags", "outline_rates")

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries
        self.outline_rates: list[float] = []
        self.outline_lags: list[float] = []

    def widen(self, rate: float, lag: float) -> None:
        """A bin with this much left is in the block."""
        rates, lags = self.outline_rates, self.outline_lags
        at = bisect_left(rates, rate)
        if at < len(rates) and lags[at] >= lag:
            return
        rates.insert(at, rate)
        lags.insert(at, lag)
        if at + 1 < len(rates) and rates[at + 1] == rate:
            del rates[at + 1], lags[at + 1]
        low = at
        while low and lags[low - 1] <= lag:
            low -= 1
        del rates[low:at], lags[low:at]

    def outline(self, rates: list[float], lags: list[float]) -> None:
        """Make the outline anew."""
        self.outline_rates, self.outline_lags = [], []
        left = sorted([(rates[number], lags[number]) for _, number in self.entries], reverse=True)
        most = -inf
        for rate, lag in left:
            if lag > most:
                most = lag
                self.outline_rates.append(rate)
                self.outline_lags.append(lag)
        self.outline_rates.reverse()
        self.outline_lags.reverse()


class Ranking:
    """rates, lags: what each bin has left, by bin number."""

    __slots__ = ("_blocks", "_lasts", "lags", "rates")

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.lags: list[float] = []
        self._blocks: list[_Block] = []
        self._lasts: list[Entry] = []

    def open(self, key: float, rate: float, lag: float) -> int:
        """A bin more; returns its number, one higher than the last one's."""
        number = len(self.rates)
        self.rates.append(rate)
        self.lags.append(lag)
        self._insert((key, number))
        return number

    def first(self, rate: float, lag: float, key: float = -inf) -> Entry | None:
        """The first entry from `key` on with `rate` and `lag` left."""
        start = bisect_left(self._lasts, (key, -1))
        rates, lags = self.rates, self.lags
        low = -1  # where to begin in a block; unknown in the first
        for block in islice(self._blocks, start, None):
            most = block.outline_rates
            if most[-1] >= rate:
                most_lags = block.outline_lags
                if most_lags[0] >= lag and most_lags[bisect_left(most, rate)] >= lag:
                    entries = block.entries
                    if low < 0:
                        low = bisect_left(entries, (key, -1))
                    for entry in entries[low:] if low else entries:
                        number = entry[1]
                        if rates[number] >= rate and lags[number] >= lag:
                            return entry
                    block.outline(rates, lags)
            low = 0
        return None

    def take(self, entry: Entry, rate: float, lag: float, key: float) -> None:
        """`rate` and `lag` go into the bin of `entry`, whose key is `key` from now on."""
        number = entry[1]
        self.rates[number] -= rate
        self.lags[number] -= lag
        if key != entry[0]:
            self._remove(entry)
            self._insert((key, number))

    def _insert(self, entry: Entry) -> None:
        if not self._blocks:
            self._blocks.append(_Block([]))
            self._lasts.append(entry)
        at = min(bisect_left(self._lasts, entry), len(self._blocks) - 1)
        block = self._blocks[at]
        insort(block.entries, entry)
        block.widen(self.rates[entry[1]], self.lags[entry[1]])
        if len(block.entries) >= _BLOCK:
            half = _BLOCK // 2
            upper = _Block(block.entries[half:])
            del block.entries[half:]
            self._blocks.insert(at + 1, upper)
            self._lasts.insert(at + 1, upper.entries[-1])
            upper.outline(self.rates, self.lags)
            block.outline(self.rates, self.lags)
        self._lasts[at] = block.entries[-1]

    def _remove(self, entry: Entry) -> None:
        at = bisect_left(self._lasts, entry)
        entries = self._blocks[at].entries
        del entries[bisect_left(entries, entry)]
        if entries:
            self._lasts[at] = entries[-1]
        else:
            del self._blocks[at], self._lasts[at]
