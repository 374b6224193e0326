"""What is shown of the last minute: measured waits beside those in one bucket, and the error."""

from collections import Counter, deque
from dataclasses import dataclass, field

from srtm.limits.bins import RELATIVE_ACCURACY, Bins, nearest_rank


@dataclass(frozen=True, slots=True)
class Figures:
    """Seconds."""

    mean: float
    p99: float


@dataclass(frozen=True, slots=True)
class Compared:
    """seconds: back, that the figures are of; messages: in them
    waits:   token waits as the gateways measured them
    unsplit: those of the same messages in one bucket with the whole contract
    error:   by how much `unsplit`, and so the penalty, may be wrong
    """

    seconds: float
    messages: int
    waits: Figures
    unsplit: Figures
    error: Figures

    @property
    def penalty(self) -> Figures:
        """What the split costs. At a percentile it may be negative: single messages can win."""
        return Figures(self.waits.mean - self.unsplit.mean, self.waits.p99 - self.unsplit.p99)


@dataclass(slots=True)
class Sum:
    """Messages and their waits. error, inexact: the most in seconds by which an unsplit one may be
    wrong, by the clocks and by how arrivals are told; they add up"""

    messages: int = 0
    waits: float = 0.0
    unsplit: float = 0.0
    waits_bins: Bins = field(default_factory=Counter)
    unsplit_bins: Bins = field(default_factory=Counter)
    error: float = 0.0
    inexact: float = 0.0


class Rolling:
    """Sums of the last `seconds`, told second by second."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._slices: deque[tuple[float, Sum]] = deque()  # (when it begins, its sum)
        self._all = Sum()
        self._since: float | None = None

    def add(self, at: float, more: Sum) -> None:
        """at: seconds, never less than before by more than a slice"""
        if self._since is None and more.messages:
            self._since = at
        if not self._slices or at >= self._slices[-1][0] + _SLICE_SECONDS:
            self._slices.append((at, Sum()))
        _add(self._slices[-1][1], more, 1)
        _add(self._all, more, 1)
        self.forget(at)

    def forget(self, now: float) -> None:
        while self._slices and self._slices[0][0] <= now - self._seconds:
            _, old = self._slices.popleft()
            _add(self._all, old, -1)
            for bins in (self._all.waits_bins, self._all.unsplit_bins):
                for key in [key for key, count in bins.items() if count <= 0]:
                    del bins[key]

    def compared(self, now: float) -> Compared | None:
        """What is shown of the last `seconds`; None without messages."""
        self.forget(now)
        of_all = self._all
        if self._since is None or not of_all.messages:
            return None
        p99, unsplit_p99 = (
            nearest_rank(each, 0.99) for each in (of_all.waits_bins, of_all.unsplit_bins)
        )
        error = max(each.error for _, each in self._slices)
        error += max(each.inexact for _, each in self._slices)
        return Compared(
            min(self._seconds, now - self._since),
            of_all.messages,
            Figures(max(0.0, of_all.waits) / of_all.messages, p99),
            Figures(max(0.0, of_all.unsplit) / of_all.messages, unsplit_p99),
            Figures(error, error + RELATIVE_ACCURACY * (p99 + unsplit_p99)),
        )


_SLICE_SECONDS = 1.0


def _add(to: Sum, more: Sum, sign: int) -> None:
    to.messages += sign * more.messages
    to.waits += sign * more.waits
    to.unsplit += sign * more.unsplit
    for into, bins in (
        (to.waits_bins, more.waits_bins),
        (to.unsplit_bins, more.unsplit_bins),
    ):
        if sign > 0:
            into.update(bins)
        else:
            into.subtract(bins)
    to.error, to.inexact = max(to.error, more.error), max(to.inexact, more.inexact)
