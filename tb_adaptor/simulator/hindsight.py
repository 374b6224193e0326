"""A good constant split for each stretch between shifts, found knowing all arrivals.

It is switched at the shift without delay, each bucket full. Good is a low p99 of the token wait
over the stretch, by a search from three splits: even, by rate, and by need. It bounds no policy:
one that moves shares within a stretch can be far below, and the search may miss the best constant
split. What bounds is in `bound.py`.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from srtm.limits.queueing import Floats
from tb_adaptor.policies.least_wait import LeastWait
from tb_adaptor.share import Part, Split, divide, even
from tb_adaptor.simulator.bucket import Bucket
from tb_adaptor.simulator.judge import nearest_rank
from tb_adaptor.simulator.run import Arrivals, Outcome
from tb_adaptor.window import Seen

_STEPS = (0.4, 0.2, 0.1, 0.05)


def hindsight(
    contract: Part, arrivals: Mapping[str, Arrivals], shifts: Sequence[float] = ()
) -> Outcome:
    """shifts: seconds, sorted; without any there is one stretch."""
    ends_at = max(
        (float(each.times[-1]) for each in arrivals.values() if each.times.size), default=0
    )
    inside = [at for at in shifts if 0 < at < ends_at]
    went = {name: np.empty(each.times.size) for name, each in arrivals.items()}
    shares: list[tuple[float, dict[str, Part]]] = []
    for begins, ends in pairwise([0.0, *inside, np.nextafter(ends_at, np.inf)]):
        there = {
            name: (each.times >= begins) & (each.times < ends) for name, each in arrivals.items()
        }
        stretch = {
            name: Arrivals(each.times[there[name]] - begins, each.counts[there[name]])
            for name, each in arrivals.items()
        }
        split = _best(contract, stretch, ends - begins)
        shares.append((begins, dict(split)))
        for name, each in stretch.items():
            went[name][there[name]] = begins + _left(each, split[name])
    left = np.concatenate(list(went.values()))
    arrived = np.concatenate([each.times for each in arrivals.values()])
    sizes = np.concatenate([each.counts for each in arrivals.values()])
    waits = np.repeat(np.maximum(left - arrived, 0.0), sizes.astype(int))
    return Outcome(waits, arrived, left, sizes, shares)


def _left(arrivals: Arrivals, part: Part) -> Floats:
    bucket = Bucket(part, arrivals.times, arrivals.counts)
    bucket.finish()
    return bucket.left


def _cost(arrivals: Mapping[str, Arrivals], split: Split) -> tuple[float, float]:
    waits = np.concatenate(
        [
            np.repeat(_left(each, split[name]) - each.times, each.counts.astype(int))
            for name, each in arrivals.items()
        ]
    )
    return (nearest_rank(waits, 0.99), float(waits.mean())) if waits.size else (0.0, 0.0)


def _best(contract: Part, arrivals: Mapping[str, Arrivals], seconds: float) -> Split:
    names = list(arrivals)
    messages = {name: max(1.0, float(each.counts.sum())) for name, each in arrivals.items()}
    begins: list[Split] = [even(contract, names), divide(contract, messages, messages)]
    seen = {
        name: Seen(seconds, begins[0][name], each.times, each.counts, np.ones(1), 0.0)
        for name, each in arrivals.items()
    }
    needed = LeastWait(seconds, seconds).rescale(contract, seen, seconds)
    if needed is not None:
        begins.append(needed.split)
    costs = [_cost(arrivals, split) for split in begins]
    best = int(np.argmin([cost[0] for cost in costs]))
    split, cost = begins[best], costs[best]
    for step in _STEPS:
        if cost[0] == 0:
            break
        for name in names:
            for rate, burst in ((1 + step, 1), (1 / (1 + step), 1), (1, 1 + step), (1, 1 - step)):
                rates = {each: part.rate for each, part in split.items()}
                bursts = {each: part.burst for each, part in split.items()}
                rates[name] *= rate
                bursts[name] *= burst
                other = divide(contract, rates, bursts)
                its = _cost(arrivals, other)
                if its < cost:
                    split, cost = other, its
    return split
