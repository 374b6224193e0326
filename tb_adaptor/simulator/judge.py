"""What a run is judged by: token waits, and how far admissions went beyond the contract."""

from collections.abc import Mapping

import numpy as np

from srtm.limits.excess import worst_excess
from srtm.limits.queueing import Floats
from tb_adaptor.share import Part
from tb_adaptor.simulator.bucket import Bucket
from tb_adaptor.simulator.run import Arrivals, Outcome


def unsplit(contract: Part, arrivals: Mapping[str, Arrivals]) -> Outcome:
    """One bucket that has the whole contract; all brokers' arrivals in order of time."""
    times = np.concatenate([each.times for each in arrivals.values()])
    counts = np.concatenate([each.counts for each in arrivals.values()])
    order = np.argsort(times, kind="stable")
    times, counts = times[order], counts[order]
    bucket = Bucket(contract, times, counts)
    bucket.finish()
    waits = np.repeat(bucket.left - times, counts.astype(int))
    return Outcome(waits, times, bucket.left, counts, [(0.0, {"unsplit": contract})])


def unsplit_waits(contract: Part, arrivals: Mapping[str, Arrivals]) -> Floats:
    """Waits in seconds of each message, in order of arrival."""
    return unsplit(contract, arrivals).waits


def excess(outcome: Outcome, contract: Part) -> float:
    """The most messages by which admissions of all brokers together exceeded max(b, largest batch)
    + r t over any interval of t seconds; 0 where they never did."""
    if not outcome.went.size:
        return 0.0
    order = np.argsort(outcome.went, kind="stable")
    at_once = max(contract.burst, float(outcome.sizes.max()))
    over = worst_excess(outcome.went[order], contract.rate, at_once, outcome.sizes[order])
    return over if over > _ROUNDING * contract.burst + _ROUNDED_SECONDS * contract.rate else 0.0


_ROUNDING = 1e-6
"""of b: sums over a day of messages lose so many digits"""
_ROUNDED_SECONDS = 2e-9
"""The time by which an interval may be longer than its rounded ends: both are whole nanoseconds."""


def nearest_rank(waits: Floats, share: float) -> float:
    """The smallest wait that at least `share` of the messages do not exceed, in seconds."""
    rank = max(1, int(np.ceil(share * waits.size - 1e-9)))
    return float(np.partition(waits, rank - 1)[rank - 1])


def in_ms(waits: Floats) -> dict[str, float]:
    """mean, p50, p99 and max in milliseconds, percentiles by nearest rank; 0 without messages."""
    if not waits.size:
        return {"mean": 0.0, "p50": 0.0, "p99": 0.0, "max": 0.0}
    return {
        "mean": float(waits.mean()) * 1e3,
        "p50": nearest_rank(waits, 0.5) * 1e3,
        "p99": nearest_rank(waits, 0.99) * 1e3,
        "max": float(waits.max()) * 1e3,
    }
