"""What no policy can be below, whatever it knows of what comes.

All brokers together admit at most b + r t in any t seconds, b being the contract's or the largest
batch if that is more; its messages count one by one, which only shortens waits. Everything here
follows from that alone, so it bounds every policy that keeps the contract, however it splits,
whatever it foresees and in whatever order its brokers serve.

Mean and maximum: the one bucket (r, b) lets out the most that this allows by every instant, as it
holds a message back only where r and b would be exceeded. So at each instant no policy has fewer
messages waiting, and the sum of waits is the integral of how many wait. Served in order of arrival
by the one bucket, the longest wait is the least possible: whoever is served out of order leaves an
earlier one for later.

A percentile of the one bucket is no bound: a policy may let a few messages wait for ever, as it
were, for the sake of all others. What bounds it is the most messages that can be served within w.
Those that are accepted in order of arrival, each one that can still be served within w behind those
accepted before, are the most. Let U be the work that accepted ones leave in a server of rate r; one
is in time where U + 1 <= b + r w. Compare with any other choice: so long as ours has d >= 0 more
messages, its U is at most d larger. This stays true while time passes, where both accept or refuse,
and where ours alone accepts. Where the other alone accepts, our U was larger than its own, so d was
at least 1, and it is d - 1 now with a U that the other's has come nearer to by 1.
"""

from collections.abc import Mapping

import numpy as np

from srtm.limits.queueing import Floats, token_waits
from tb_adaptor.share import Part
from tb_adaptor.simulator.judge import in_ms
from tb_adaptor.simulator.run import Arrivals

_PRECISE = 0.01
"""relative: the bound may be lower by so much than the one that is proved"""
_SLACK = 1e-6
"""messages; less is rounding"""


def least_ms(contract: Part, arrivals: Mapping[str, Arrivals]) -> dict[str, float]:
    """mean, p50, p99 and max of the token wait in milliseconds that none is below, each by itself;
    0 without messages."""
    times, whole = _single(contract, arrivals)
    if not times.size:
        return in_ms(times)
    found = in_ms(token_waits(times, *whole))
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        found[name] = _least(times, whole, share) * 1e3
    return found


def least_wait(contract: Part, arrivals: Mapping[str, Arrivals], share: float) -> float:
    """Seconds that the wait of rank `share` (nearest rank) cannot be below."""
    return _least(*_single(contract, arrivals), share)


def _single(contract: Part, arrivals: Mapping[str, Arrivals]) -> tuple[Floats, Part]:
    """When each message came, and what is let in at once: messages of a batch that may go one by
    one wait for no longer than the batch does."""
    each = [np.repeat(one.times, one.counts.astype(int)) for one in arrivals.values()]
    largest = max((float(one.counts.max(initial=1.0)) for one in arrivals.values()), default=1.0)
    return np.sort(np.concatenate(each)), Part(contract.rate, max(contract.burst, largest))


def _least(times: Floats, whole: Part, share: float) -> float:
    allowed = times.size - max(1, int(np.ceil(share * times.size - 1e-9)))
    if late_at_least(times, whole, 0.0) <= allowed:
        return 0.0
    low, high = 0.0, float(token_waits(times, *whole).max())
    while high - low > _PRECISE * high:
        middle = (low + high) / 2
        if late_at_least(times, whole, middle) > allowed:
            low = middle
        else:
            high = middle
    return low


def late_at_least(times: Floats, contract: Part, wait: float) -> int:
    """How many messages wait for longer than `wait` seconds at the least, whatever the policy.
    times: of each message, seconds, sorted, shape (n,)."""
    rate, most = contract.rate, contract.burst + contract.rate * wait + _SLACK
    work, before, late = 0.0, 0.0, 0
    for at in times.tolist():
        work = max(0.0, work - rate * (at - before))
        before = at
        if work + 1.0 <= most:
            work += 1.0
        else:
            late += 1
    return late
