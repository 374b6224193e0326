"""A contract that no placement can help: its one bucket, unsplit, is late by itself."""

from dataclasses import dataclass
from math import ceil

import numpy as np

from distributor.fitting.batches import Counts, Floats, beyond, smallest_burst, work_before
from distributor.fitting.late_share import Side, side
from srtm.limits.contract import Contract
from srtm.limits.slo import SLO
from srtm.text.words import number, rate

_HEADROOM = 1.1
"""r over the offered rate, as SRTM section 6"""
_SPARE = 2
"""b over the smallest with which no message waits at the SLO's percentile"""
_SLOT_SECONDS = 0.1


@dataclass(frozen=True, slots=True, eq=False)
class Arrivals:
    """The topic's arrivals at all brokers together, in slots of the distributor's clock.

    times: seconds, sorted; counts: messages; both of shape (n,)
    """

    times: Floats
    counts: Counts

    @property
    def seconds(self) -> float:
        return float(self.times[-1] - self.times[0]) if self.times.size else 0.0

    @property
    def rate(self) -> float:
        """messages/s, without the first instant's, which came in no time that was seen."""
        if not self.seconds:
            return 0.0
        return float(self.counts[self.times > self.times[0]].sum()) / self.seconds


@dataclass(frozen=True, slots=True)
class TooSmall:
    """rate, burst: messages/s and messages that would do; burst is None where no arrivals tell."""

    rate: float
    burst: int | None
    reason: str


def too_small(
    contract: Contract, slo: SLO, offered: float, arrivals: Arrivals | None
) -> TooSmall | None:
    """Why the contract is too small, and what would do; None where it is big enough, as far as is
    known.

    offered: messages/s that the publishers declare. Too small is a contract with λ >= r, and one
    whose virtual unsplit bucket alone makes over half of the allowed late share wait for longer
    than the target: by a sequential test, from a full bucket, which flatters it.
    """
    if offered >= contract.rate:
        why = f"publishers declare {rate(offered)}"
    else:
        alone = 0.0 if arrivals is None else _late_alone(contract, slo, arrivals)
        if not alone:
            return None
        why = (
            f"one unsplit bucket alone would make {alone:.2%} of the messages late, over half of "
            f"the allowed {slo.allowed_late_share:.2%}"
        )
    enough = _HEADROOM * max(offered, arrivals.rate if arrivals else 0.0)
    burst = None
    if arrivals is not None and arrivals.times.size:
        work = work_before(arrivals.times - arrivals.times[0], arrivals.counts, enough)
        burst = ceil(_SPARE * smallest_burst(work, arrivals.counts, slo.allowed_late_share))
        burst = max(burst, ceil(contract.burst)) if enough <= contract.rate else burst
    would_do = f"r = {number(enough)} and " + (
        f"b = {number(burst)} would do" if burst else "a b fitted to recorded arrivals would do"
    )
    return TooSmall(
        enough,
        burst,
        f"contract too small: {why}, with r = {number(contract.rate)} and "
        f"b = {number(contract.burst)}; {would_do}",
    )


def _late_alone(contract: Contract, slo: SLO, arrivals: Arrivals) -> float:
    """The share of messages that one unsplit bucket alone makes late, where that is surely over
    half of what the SLO allows; else 0."""
    if not arrivals.seconds:
        return 0.0
    since = arrivals.times - arrivals.times[0]
    work = work_before(since, arrivals.counts, contract.rate)
    late = beyond(work, arrivals.counts, contract.burst + contract.rate * slo.target_seconds)
    slot = (since / _SLOT_SECONDS).astype(np.int64)
    messages = np.bincount(slot, arrivals.counts).astype(np.float64)
    by_slot = np.bincount(slot, late).astype(np.float64)
    together = float((arrivals.counts**2).sum() / arrivals.counts.sum())
    found = side(messages, by_slot, slo.allowed_late_share / 2, together)
    return float(late.sum() / messages.sum()) if found is Side.ABOVE else 0.0
