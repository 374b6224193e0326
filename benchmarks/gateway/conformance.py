"""Does a stream keep to a token bucket, over every interval there is? Pure."""

import numpy as np

from srtm.queueing import Floats


def worst_excess(times: Floats, rate: float, allowance: float) -> float:
    """By how many messages the worst interval exceeds allowance + rate * its length.

    times:     when each message went, in seconds, sorted, shape (n,)
    allowance: messages that may go at once: max(b, largest batch)

    At most 0 where the stream conforms; -allowance without messages.
    With S(i) messages before the i-th, an interval from the i-th to the j-th holds S(j) + 1 - S(i):
    its excess is what S(j) + 1 - rate * t(j) has over the least S(i) - rate * t(i) so far. O(n).
    """
    if not times.size:
        return -allowance
    before = np.arange(times.size) - rate * (times - times[0])
    return float(np.max(before + 1 - np.minimum.accumulate(before))) - allowance
