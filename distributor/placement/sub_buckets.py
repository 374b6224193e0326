"""The sub-bucket (r_l, b_l) of each broker: r and b in proportion to the offered rates."""

from collections.abc import Mapping, Sequence
from math import ldexp, ulp

_BITS = 80
"""rates of 1e-6 to 1e14 messages/s times 2^80 are whole numbers: their ratios are exact"""


def sub_buckets(
    r: float,
    b: float,
    rates: Sequence[float],
    unplaced_rate: float = 0.0,
    kept: Mapping[int, tuple[float, float]] | None = None,
    least: int = 1,
) -> list[tuple[float, float]]:
    """r_l = r λ_l / λ and b_l = b λ_l / λ of each broker, in messages/s and messages.

    rates:         λ_l, messages/s offered at each broker, all more than 0
    unplaced_rate: the rest of the topic's offered rate λ; its part of r and b is kept back
    kept:          by number in `rates`, the (r_l, b_l) of brokers that were fitted with them, under
                   the same contract and the same offered rate of the whole topic
    least:         messages of the largest batch

    b_l is at least `least`: a bucket that never holds a whole batch admits none. What that takes is
    taken from the bigger shares in proportion, and from `kept` ones only where nothing else is left
    (then they no longer are what was fitted; compare before and after). So b must be at least
    `least` times the number of brokers; raises ValueError where it is not.

    Every share is a whole number of the last binary places of r (of b), so that any sum of them is
    exact in floating point, in any order: all shares of a topic sum up to r and to b, and never to
    more. This is SRTM sections 2.1 and 4.2 with rates matched, λ_l / r_l = λ / r.
    """
    if len(rates) * least > b:
        needs = f"a batch of {least}" if least > 1 else "one whole message"
        raise ValueError(
            f"burst {b:g} cannot be split over {len(rates)} brokers: each needs {needs}"
        )
    if not all(rate > 0 for rate in rates):
        raise ValueError(f"offered rates {list(rates)} must all be more than 0")
    kept = kept or {}
    weights = [_whole(rate) for rate in rates]
    back = _whole(unplaced_rate)
    rates_kept = {at: share for at, (share, _) in kept.items()}
    bursts_kept = {at: share for at, (_, share) in kept.items()}
    return list(
        zip(
            _split(r, weights, back, 0, rates_kept),
            _split(b, weights, back, least, bursts_kept),
            strict=True,
        )
    )


def _whole(rate: float) -> int:
    return int(ldexp(rate, _BITS))


def _split(
    amount: float, weights: Sequence[int], back: int, least: int, kept: Mapping[int, float]
) -> list[float]:
    """`amount` by `weights`, each share at least `least`, the part of `back` to nobody."""
    unit = ulp(amount)
    floor = max(1, int(least / unit))
    units = {at: int(share / unit) for at, share in kept.items()}
    left = int(amount / unit) - sum(units.values())
    free = [at for at in range(len(weights)) if at not in kept]
    if left < floor * len(free):
        return _split(amount, weights, back, least, {})  # the kept ones leave too little
    free.sort(key=lambda at: (weights[at], at))
    weight = sum(weights[at] for at in free) + back
    while free and left * weights[free[0]] < floor * weight:
        at = free.pop(0)
        units[at] = floor
        left -= floor
        weight -= weights[at]
    claims = [(at, weights[at]) for at in free] + [(-1, back)] * bool(back)
    units |= {at: left * claim // weight for at, claim in claims}
    rest = left - sum(units[at] for at, _ in claims)  # largest remainder
    claims.sort(key=lambda each: (-(left * each[1] % weight), each[0]))
    for at, _ in claims[:rest]:
        units[at] += 1
    return [units[at] * unit for at in range(len(weights))]
