"""The most that can come under a contract: b + r t messages in any interval of t seconds. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from srtm.limits.contract import Contract

_ROUNDING = 1e-6
"""messages; sums of fractions of a message are off by less."""


@dataclass(frozen=True, slots=True)
class Ceiling:
    """rate: r in messages/s; burst: b in messages, or the largest batch where that is more, as a
    bucket that is full admits it at once (srtm/limits/bucket.py)."""

    rate: float
    burst: float

    @classmethod
    def parse(cls, spec: str, where: str) -> "Ceiling":
        """Read `rate=1000,burst=200` with the words of a topic's contract, of which those that say
        nothing of how much comes are checked and passed over. Raises UsageError, which names
        `where`."""
        contract = Contract.parse(f"topic,{spec}", where)
        return cls(contract.rate, max(contract.burst, float(contract.batch)))

    def __str__(self) -> str:
        return f"rate={self.rate:.15g},burst={self.burst:.15g}"


class Level:
    """The most tokens that the contract's bucket can have, by what has come.

    The bucket itself is elsewhere and is taken to have been full at first. Of what came within a
    slot nobody knows when, so all of it counts as come at the slot's start: the level is never
    below the real one.

    ceiling:  None: nothing bounds what comes
    exceeded: did more come lately than the contract allows, by more than what two slots bring?
    Times of messages behind a bridge, or read from offsets, are off by about a slot.
    """

    __slots__ = ("_ceiling", "_tokens", "exceeded")

    def __init__(self, ceiling: Ceiling | None) -> None:
        self._ceiling = ceiling
        self._tokens = ceiling.burst if ceiling else math.inf
        self.exceeded = False

    @property
    def messages(self) -> float:
        """Messages that can come at once now."""
        return max(0.0, self._tokens)

    def see(self, counts: Sequence[float], slot_seconds: float) -> None:
        """counts: messages that came in each of the slots since the last call, oldest first."""
        if self._ceiling is None:
            return
        brought = self._ceiling.rate * slot_seconds
        self.exceeded = False
        for count in counts:
            after = self._tokens - count + brought
            if after < -2 * brought - _ROUNDING:
                self.exceeded = True
            self._tokens = min(self._ceiling.burst, max(-2 * brought, after))


EXCEEDED = (
    "more comes than the contract allows: others write to this topic, or what waited "
    "elsewhere came at once; the contract does not bound what comes, so nothing is promised by it"
)
