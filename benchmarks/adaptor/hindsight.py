"""The best constant split for each stretch between shifts, found knowing all arrivals.

It is switched at the shift without delay, each bucket full. The best is the least p99 of the token
wait over the stretch, by a search from three splits: even, by rate, and by need.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from srtm.queueing import Floats
from tb_adaptor.policies.least_wait import LeastWait
from tb_adaptor.share import Part, Split, divide, even
from tb_adaptor.simulator.bucket import Bucket
from tb_adaptor.simulator.judge import nearest_rank
from tb_adaptor.simulator.run import Arrivals
from tb_adaptor.window import Seen

_STEPS = (0.4, 0.2, 0.1, 0.05)


def hindsight_waits(
    contract: Part, arrivals: Mapping[str, Arrivals], shifts: Sequence[float], seconds: float
) -> dict[str, Floats]:
    """Waits in seconds by broker, in order of arrival."""
    edges = [0.0, *shifts, seconds]
    found: dict[str, list[Floats]] = {name: [] for name in arrivals}
    for begins, ends in pairwise(edges):
        stretch = {name: _between(each, begins, ends) for name, each in arrivals.items()}
        split = _best(contract, stretch, ends - begins)
        for name, each in stretch.items():
            found[name].append(_waits(each, split[name]))
    return {name: np.concatenate(each) for name, each in found.items()}


def _between(arrivals: Arrivals, begins: float, ends: float) -> Arrivals:
    there = (arrivals.times >= begins) & (arrivals.times < ends)
    return Arrivals(arrivals.times[there] - begins, arrivals.counts[there])


def _waits(arrivals: Arrivals, part: Part) -> Floats:
    bucket = Bucket(part, arrivals.times, arrivals.counts)
    bucket.finish()
    return bucket.left - arrivals.times


def _cost(arrivals: Mapping[str, Arrivals], split: Split) -> tuple[float, float]:
    waits = np.concatenate([_waits(each, split[name]) for name, each in arrivals.items()])
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
