"""Shares of a contract: (r_l, b_l) by broker, and how a contract is divided exactly."""

from collections.abc import Mapping
from math import fsum, nextafter
from typing import NamedTuple

from srtm.limits.contract import MIN_RATE


class Part(NamedTuple):
    """A sub-bucket, or a whole contract: rate in messages/s, burst in messages."""

    rate: float
    burst: float


Split = Mapping[str, Part]
"""broker -> its part"""


def even(contract: Part, brokers: list[str]) -> dict[str, Part]:
    """The contract divided evenly: the same part for each broker."""
    return divide(contract, dict.fromkeys(brokers, 1.0), dict.fromkeys(brokers, 1.0))


def divide(
    contract: Part,
    rates: Mapping[str, float],
    bursts: Mapping[str, float],
    rate_floor: float = 0.0,
) -> dict[str, Part]:
    """The contract divided in proportion to `rates` and `bursts`, each burst at least 1 message and
    each rate at least `rate_floor` of an even part. Sums are the contract's, or less by roundings,
    never more.

    Raises ValueError where b has no whole message for each broker.
    """
    count = len(rates)
    if contract.burst < count:
        raise ValueError(
            f"b = {contract.burst:g} leaves less than one message on each of {count} brokers"
        )
    least = max(MIN_RATE, rate_floor * contract.rate / count)
    r = _proportional(rates, contract.rate, least)
    b = _proportional(bursts, contract.burst, 1.0)
    return {name: Part(r[name], b[name]) for name in rates}


def _proportional(wanted: Mapping[str, float], total: float, least: float) -> dict[str, float]:
    """`total` in proportion to `wanted`, but `least` at least for each."""
    at_least: set[str] = set()
    while True:
        free = {name: value for name, value in wanted.items() if name not in at_least}
        left = total - least * len(at_least)
        weight = fsum(free.values())
        if weight <= 0:
            part = {name: left / len(free) for name in free}
        else:
            part = {name: left * value / weight for name, value in free.items()}
        below = {name for name, value in part.items() if value < least}
        if not below:
            break
        at_least |= below
    found = {name: part.get(name, least) for name in wanted}
    return _no_more_than(found, total, least)


def _no_more_than(parts: dict[str, float], total: float, least: float) -> dict[str, float]:
    """Roundings go to the largest part. fsum gives the sign of a sum exactly."""
    biggest = max(parts, key=lambda name: parts[name])
    while fsum([*parts.values(), -total]) > 0:
        over = fsum([*parts.values(), -total])
        parts[biggest] = max(least, nextafter(parts[biggest] - over, 0.0))
        if parts[biggest] == least:
            break
    return parts
