"""A token bucket (r, b) as a value: time is passed in; no clock, no lock, no log.

Times are integer nanoseconds of one monotonic clock, tokens are messages. *Bucket time* is when a
message takes its token: the later of its arrival stamp and the token's own time. Admissions in
bucket time over any interval of t seconds never exceed max(b, n_max) + r*t, n_max being the largest
batch: a batch bigger than b goes when the bucket is full and leaves a debt.
"""

from collections import deque
from collections.abc import Sequence
from math import ceil, floor

_NS = 1e9
_EPSILON = 1e-9
"""Tokens that float rounding may hide; a millionth of what a nanosecond brings at 1e6 msg/s."""
_HISTORY = 1024
"""Admissions remembered for messages that are read late: a gateway that reads 1,000 connections
in one wake-up can see this many stamps out of order. An older stamp is treated as this old."""


class TokenBucket:
    """rate in messages/s, burst in messages (at least 1), level in tokens at time `at`."""

    __slots__ = ("_history", "_overflow", "_per_ns", "at", "burst", "rate", "tokens")

    def __init__(self, rate: float, burst: float, at: int, tokens: float | None = None) -> None:
        _check(rate, burst)
        self.rate = rate
        self.burst = burst
        self.at = at
        self.tokens = burst if tokens is None else min(tokens, burst)
        self._per_ns = rate / _NS
        self._overflow = 0.0
        self._remember()

    def level(self, now: int) -> float:
        """Tokens at `now`; negative while a batch's debt is paid off."""
        if now <= self.at:
            return self.tokens
        return min(self.burst, self.tokens + self._per_ns * (now - self.at))

    def available(self, stamp: int) -> int:
        """Whole tokens at `stamp`, never negative."""
        return max(0, floor(self.level(stamp) + _EPSILON))

    def take(self, count: int, stamp: int) -> int | None:
        """Take `count` tokens at once for a message (or batch) that arrived at `stamp`.

        Returns the bucket time, or None when the tokens are not there yet. A message stamped
        before the last admission (it was read late) goes at its stamp when tokens that were left
        over, or have overflowed since, can pay for it without touching any admission made since.
        """
        if stamp < self.at:
            if self.insert(count, stamp):
                return stamp
            stamp = self.at
        tokens = self.tokens + self._per_ns * (stamp - self.at)
        lost = tokens - self.burst
        if lost > 0:
            tokens = self.burst
        if tokens + _EPSILON < count and lost < -_EPSILON:
            return None
        if lost > 0:
            self._overflow += lost
        self.tokens = tokens - count
        self.at = stamp
        self._history.append((stamp, self.tokens, self._overflow))
        return stamp

    def ready_at(self, count: int) -> int:
        """When `count` tokens will be there (or the bucket is full, for a bigger batch)."""
        missing = min(count, self.burst) - self.tokens
        if missing <= _EPSILON:
            return self.at
        return self.at + ceil(missing / self._per_ns)

    def take_waiting(self, count: int, now: int) -> tuple[int, int]:
        """Single messages at the head of a queue: how many of `count` have got their token by
        `now`, and the bucket time of the first. The k-th of them has its token k/r later.

        Nothing overflows while somebody waits, however late the caller is: each takes its token
        when it comes, so the bucket's size does not cap what a late timer finds.
        """
        first = self.ready_at(1)
        if first > now:
            return 0, first
        grown = self.tokens + self._per_ns * (now - self.at)
        taken = min(count, max(1, floor(grown + _EPSILON)))
        # The last of them leaves at `last`; the level there is what that instant had left over.
        last = self.at + max(0, ceil((taken - self.tokens) / self._per_ns))
        self.tokens = min(self.burst, self.tokens + self._per_ns * (last - self.at) - taken)
        self.at = last
        self._remember()
        return taken, first

    def rescale(self, rate: float, burst: float, now: int) -> None:
        """New (r, b). Tokens and debt stay; growing b adds no tokens, a smaller b caps them."""
        _check(rate, burst)
        self.tokens = min(self.level(now), burst)
        self.at = max(self.at, now)
        self.rate, self.burst = rate, burst
        self._per_ns = rate / _NS
        self._remember()

    def split(self, shares: Sequence[float], now: int) -> list["TokenBucket"]:
        """Sub-buckets by `shares` (positive, summing to 1): rate, burst, tokens and debt divide.

        Raises ValueError where a sub-bucket would hold less than one message.
        """
        if not shares or min(shares) <= 0 or abs(sum(shares) - 1) > 1e-9:
            raise ValueError(f"shares {list(shares)} must be positive and sum to 1")
        tokens = self.level(now)
        return [
            TokenBucket(self.rate * share, self.burst * share, max(self.at, now), tokens * share)
            for share in shares
        ]

    def _remember(self) -> None:
        """Begin the history anew: admissions before this instant are out of reach."""
        self._history: deque[tuple[int, float, float]] = deque(
            [(self.at, self.tokens, self._overflow)], _HISTORY
        )

    def insert(self, count: int, stamp: int) -> bool:
        """Insert an admission into the past, or leave everything as it is.

        The level from `stamp` on falls by `count`, less what overflowed since then; it may reach
        below no admission that has been made. (level, overflow) are as after each admission.
        """
        history = self._history
        index = len(history)
        while index and history[index - 1][0] > stamp:
            index -= 1
        if not index:
            return False  # before all that is remembered
        at, tokens, overflow = history[index - 1]
        tokens += self._per_ns * (stamp - at)
        if tokens > self.burst:
            overflow += tokens - self.burst
            tokens = self.burst
        if tokens + _EPSILON < count:
            return False
        for later in range(index, len(history)):
            deficit = count - (history[later][2] - overflow)
            if deficit <= 0:
                break
            if history[later][1] + _EPSILON < deficit:
                return False
        for later in range(index, len(history)):
            at, level, lost = history[later]
            reclaimed = min(float(count), lost - overflow)
            history[later] = (at, level - (count - reclaimed), lost - reclaimed)
        if len(history) == history.maxlen:
            history.popleft()
            index -= 1
        history.insert(index, (stamp, tokens - count, overflow))
        _, self.tokens, self._overflow = history[-1]
        return True


def _check(rate: float, burst: float) -> None:
    if not 0 < rate < float("inf"):
        raise ValueError(f"rate {rate} must be a positive number of messages per second")
    if not 1 <= burst < float("inf"):
        raise ValueError(f"burst {burst} must be at least 1 message: less admits nothing")
