"""A token bucket (r, b) as a value: time is passed in; no clock, no lock, no log.

Times are integer nanoseconds of one monotonic clock, tokens are messages. *Bucket time* is when a
message takes its token: the later of its arrival stamp and the token's own time. Admissions in
bucket time over any interval of t seconds never exceed max(b, n_max) + r*t, n_max being the largest
batch: a batch bigger than b goes when the bucket is full and leaves a debt. (Over a rescale to b'
it is the b of before and the debt of after: b + max(0, n_max - b').) A bucket that is one of
several sub-buckets owes nothing (`owes`): the others' tokens are there at the same time, so such a
batch waits until one bucket has all of b.
"""

from collections import deque
from collections.abc import Sequence
from math import ceil, floor

_NS = 1e9
_EPSILON = 1e-9
"""Tokens that float rounding may hide; a millionth of what a nanosecond brings at 1e6 msg/s."""
_HISTORY = 1024
"""Admissions remembered for messages that are read late: a gateway that reads 1,000 connections
in one wake-up can see this many stamps out of order. An older one counts as come with the last."""
NEVER = 1 << 62
"""later than any clock"""
_MIN_RATE = 1e-9
"""messages/s, one in 32 years; with less, the wait for a token is no number of nanoseconds."""


class TokenBucket:
    """rate in messages/s, burst in messages (at least 1), level in tokens at time `at`; owes: a
    batch bigger than burst may leave a debt."""

    __slots__ = ("_history", "_per_ns", "at", "burst", "owes", "rate", "tokens")

    _history: deque[tuple[int, float, float]]
    """(time, level just after, tokens that overflowed since the one before) of each admission."""

    def __init__(
        self, rate: float, burst: float, at: int, tokens: float | None = None, owes: bool = True
    ) -> None:
        _check(rate, burst)
        self.owes = owes
        self.rate = rate
        self.burst = burst
        self.at = at
        self.tokens = burst if tokens is None else min(tokens, burst)
        self._per_ns = rate / _NS
        self._history = deque([(at, self.tokens, 0.0)], _HISTORY)

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
        burst, lost = self.burst, 0.0
        if tokens > burst:
            lost = tokens - burst
            tokens = burst
        if tokens + _EPSILON < count and (tokens + _EPSILON < burst or not self.owes):
            return None
        self.tokens = tokens = tokens - count
        self.at = stamp
        self._history.append((stamp, tokens, lost))
        return stamp

    def fits(self, count: int) -> bool:
        """Can a batch of `count` ever go as the bucket is now?"""
        return self.owes or count <= self.burst + _EPSILON

    def ready_at(self, count: int) -> int:
        """When `count` tokens will be there (or the bucket is full, for a bigger batch): at that
        time, or any later one, `take` gives them. NEVER for a batch that does not fit."""
        if not self.fits(count):
            return NEVER
        needed = min(count, self.burst)
        if self.tokens + _EPSILON >= needed:
            return self.at
        wait, step = ceil((needed - self.tokens) / self._per_ns), 1
        while self.tokens + self._per_ns * wait + _EPSILON < needed:
            wait += step  # rounding that _EPSILON does not hide, with millions of tokens or of debt
            step *= 2
        return self.at + wait

    def take_waiting(self, count: int, stamp: int, now: int) -> tuple[int, int, float]:
        """Take the tokens of `count` single messages at the head of a queue, that arrived at
        `stamp`: how many get their token now, the bucket time of the first, and by how many ns each
        next one's is later. Call it again until none does.

        First come the tokens that were there at the stamp, all at once. Nobody waited before it,
        so what the bucket could not hold until then is lost, however late the caller is. From then
        on nothing overflows: each message takes its token when that comes.
        """
        if stamp < self.at:
            stamp = self.at
        there = self.available(stamp)
        if there and stamp <= now:
            taken = min(count, there)
            self.take(taken, stamp)
            return taken, stamp, 0.0
        first = self.ready_at(1)
        if first > now:
            return 0, first, 0.0
        grown = self.tokens + self._per_ns * (now - self.at)
        taken = min(count, max(1, floor(grown + _EPSILON)))
        # The last of them leaves at `last`; the level there is what that instant had left over.
        last = self.at + max(0, ceil((taken - self.tokens) / self._per_ns))
        self.tokens = min(self.burst, self.tokens + self._per_ns * (last - self.at) - taken)
        self.at = last
        self._forget()
        return taken, first, 1 / self._per_ns

    def rescale(self, rate: float, burst: float, now: int, owes: bool = True) -> None:
        """New (r, b). Tokens and debt stay; growing b adds no tokens, a smaller b caps them."""
        _check(rate, burst)
        self.owes = owes
        self.tokens = min(self.level(now), burst)
        self.at = max(self.at, now)
        self.rate, self.burst = rate, burst
        self._per_ns = rate / _NS
        self._forget()

    def empty(self, now: int) -> None:
        """Throw its tokens away; a debt stays."""
        self.tokens = min(self.level(now), 0.0)
        self.at = max(self.at, now)
        self._forget()

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

    def _forget(self) -> None:
        """Begin the history anew: admissions before this instant are out of reach."""
        self._history.clear()
        self._history.append((self.at, self.tokens, 0.0))

    def insert(self, count: int, stamp: int) -> bool:
        """Insert an admission before the last one, or leave everything as it is.

        The level from `stamp` on falls by `count`, less what has overflowed since then; it may
        reach below no admission that has been made.
        """
        history = self._history
        index = len(history)
        while index and history[index - 1][0] > stamp:
            index -= 1
        if not index:
            return False  # before all that is remembered
        at, level, _ = history[index - 1]
        level += self._per_ns * (stamp - at)
        lost = max(0.0, level - self.burst)
        level -= lost
        if level + _EPSILON < count:
            return False
        owed, before = float(count), lost
        changed: list[tuple[int, float, float]] = []
        for later in range(index, len(history)):
            at, left, overflow = history[later]
            overflow = max(0.0, overflow - before)  # what of it came after `stamp`
            before = 0.0
            reclaimed = min(owed, overflow)
            owed -= reclaimed
            if owed > _EPSILON and left + _EPSILON < owed:
                return False
            changed.append((at, left - owed, overflow - reclaimed))
            if owed <= 0:
                break
        for later, entry in enumerate(changed, index):
            history[later] = entry
        if len(history) == history.maxlen:
            history.popleft()
            index -= 1
        history.insert(index, (stamp, level - count, lost))
        self.tokens = history[-1][1]
        return True


def _check(rate: float, burst: float) -> None:
    if not _MIN_RATE <= rate < float("inf"):
        raise ValueError(f"rate {rate} must be at least {_MIN_RATE:g} messages per second")
    if not 1 <= burst < float("inf"):
        raise ValueError(f"burst {burst} must be at least 1 message: a smaller one admits nothing")
