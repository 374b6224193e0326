"""A queue that batches arrive at: exact, one step for a batch and not for each message."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.floating[Any]]


def work_before(times: Floats, counts: Counts, rate: float, start: float = 0.0) -> Floats:
    """Unfinished work, in messages, that each batch finds at a server of `rate` messages/s.

    times: seconds, sorted, shape (n,); counts: messages of each batch, shape (n,); start: the work
    left at time 0, in messages. Lindley's recursion by a cumulative minimum. Returns shape (n,).

    A token bucket (r, b) is such a server (SRTM appendix A, Eq. 2): message m of a batch waits for
    max(0, work + m - b) / r.
    """
    ahead = np.cumsum(counts) - counts - rate * times
    return np.maximum(ahead - np.minimum.accumulate(ahead), ahead + start)


def beyond(work: Floats, counts: Counts, limit: float) -> Floats:
    """How many messages of each batch have more than `limit` messages up to and with themselves."""
    return np.clip(np.ceil(work + counts - limit - _ROUNDING), 0, counts)


_ROUNDING = 1e-6
"""messages: a smaller excess is float rounding after some 1e8 messages"""


def smallest_burst(work: Floats, counts: Counts, late_share: float) -> int:
    """The smallest whole b with which at most `late_share` of the messages waits at all.

    work: what `work_before` says at rate r. The same figure as limits.queueing.smallest_burst, from
    batches. Raises ValueError without messages.
    """
    total = float(counts.sum())
    if not total:
        raise ValueError("no messages to fit a burst to: record arrivals first")
    low, high = 0, max(1, int(np.ceil((work + counts).max())))
    while high - low > 1:
        middle = (low + high) // 2
        if float(beyond(work, counts, middle).sum()) <= late_share * total + _ROUNDING:
            high = middle
        else:
            low = middle
    return high
