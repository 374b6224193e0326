"""Ours: the split by which the longest token wait is least, for what came lately.

It moves only where somebody waits. What no broker needs stays where it is: an idle broker that
comes back finds its share, as taking it back costs seconds.
"""

from collections.abc import Mapping
from math import fsum

import numpy as np

from srtm.limits.queueing import Floats
from tb_adaptor.policies.forecast import forecast, has_shifted
from tb_adaptor.policies.need import Need, need_of
from tb_adaptor.policies.policy import RATE_FLOOR, Rescale
from tb_adaptor.share import Part, divide
from tb_adaptor.window import Seen

_LEVELS = 64
"""steps of r that are tried"""
_NO_WAIT = 1e-3
"""seconds: shorter waits move nothing"""
_WORTH = 1.1
"""The waits of the split in force have to be longer by this factor before it is changed."""
_STEP = 0.4
"""The part of the way to the split that is gone in one step where the rates have not shifted."""
_NEAR = 1.1
"""Waits longer by this factor than the least ones are as good: they take less from the others."""
_LEAST_CHANGE = 0.01
"""of a share: less is not worth a round of leases"""
_SPARE = 0.25
"""of what nobody needs, this part goes to brokers by their need, as next time they may need more;
the rest stays where it is"""


class LeastWait:
    """back_seconds: how far it looks back; horizon_seconds: and ahead"""

    acts_early = True

    def __init__(self, back_seconds: float = 5.0, horizon_seconds: float = 5.0) -> None:
        self._back = back_seconds
        self._horizon = horizon_seconds

    def rescale(self, contract: Part, seen: Mapping[str, Seen], now: float) -> Rescale | None:
        if not any(each.step_waiting.any() or each.waiting for each in seen.values()):
            return None
        shifts = any(has_shifted(each, self._back) for each in seen.values())
        rates = _levels(contract, len(seen))
        needs = {
            name: need_of(forecast(each, self._back, self._horizon), rates)
            for name, each in seen.items()
        }
        held = max(needs[name].wait(*each.part) for name, each in seen.items())
        if held <= _NO_WAIT:
            return None
        wait = _least_wait(needs, contract)
        if held <= _WORTH * wait + _NO_WAIT:
            return None
        found = _fit(needs, contract, wait * _NEAR) or _fit(needs, contract, wait)
        assert found is not None
        levels, bursts = found
        needed = {name: Part(float(rates[levels[name]]), bursts[name]) for name in needs}
        parts = {name: each.part for name, each in seen.items()}
        split = _spread(contract, needed, parts)
        if not shifts:
            split = _part_of_the_way(contract, split, parts)
        if not any(_differs(split[name], part) for name, part in parts.items()):
            return None
        return Rescale(
            split,
            (
                f"by what came lately somebody would wait {held * 1e3:,.0f} ms; with the best "
                f"split {wait * 1e3:,.0f} ms",
            ),
        )


def _differs(one: Part, other: Part) -> bool:
    """Do the two parts differ by so much that somebody would notice?"""
    return abs(one.rate - other.rate) > _LEAST_CHANGE * other.rate or (
        abs(one.burst - other.burst) > _LEAST_CHANGE * other.burst
    )


def _part_of_the_way(
    contract: Part, split: Mapping[str, Part], held: Mapping[str, Part]
) -> dict[str, Part]:
    """The split that lies a part of the way from `held` to `split`. Without a shift of rates the
    waits of some seconds are mostly chance: several steps in the same direction are followed, and
    one there and one back end where they began."""
    rates = {
        name: held[name].rate + _STEP * (part.rate - held[name].rate)
        for name, part in split.items()
    }
    bursts = {
        name: held[name].burst + _STEP * (part.burst - held[name].burst)
        for name, part in split.items()
    }
    return divide(contract, rates, bursts, RATE_FLOOR)


def _levels(contract: Part, brokers: int) -> Floats:
    """Rates that a broker may have: a floor, and equal steps of what is left beside the floors."""
    floor = RATE_FLOOR * contract.rate / brokers
    return floor + (contract.rate - brokers * floor) * np.arange(_LEVELS + 1) / _LEVELS


def _least_wait(needs: Mapping[str, Need], contract: Part) -> float:
    """The least w in seconds for which r and b suffice, to a per cent or a tenth of a ms."""
    if _fit(needs, contract, 0.0) is not None:
        return 0.0
    low, high = 0.0, 1e-3
    while _fit(needs, contract, high) is None:
        low, high = high, high * 4
    while high > low * 1.01 and high - low > 1e-4:
        middle = (low + high) / 2
        if _fit(needs, contract, middle) is None:
            low = middle
        else:
            high = middle
    return high


def _fit(
    needs: Mapping[str, Need], contract: Part, wait: float
) -> tuple[dict[str, int], dict[str, float]] | None:
    """A level of r for each broker and the b that it needs with it; None where they do not fit.

    The least b falls with r ever more slowly, so each next step of r goes where it saves most."""
    bursts = {name: need.bursts(wait) for name, need in needs.items()}
    level: dict[str, int] = {}
    for name, each in bursts.items():
        enough = np.flatnonzero(np.isfinite(each))
        if not enough.size:
            return None
        level[name] = int(enough[0])
    left = _LEVELS - sum(level.values())
    if left < 0:
        return None
    total = fsum(float(bursts[name][at]) for name, at in level.items())
    while total > contract.burst:
        if not left:
            return None
        saved = {name: float(bursts[name][at] - bursts[name][at + 1]) for name, at in level.items()}
        best = max(saved, key=lambda name: saved[name])
        if saved[best] <= 0:
            return None
        level[best] += 1
        left -= 1
        total -= saved[best]
    return level, {name: float(bursts[name][at]) for name, at in level.items()}


def _spread(
    contract: Part, needed: Mapping[str, Part], held: Mapping[str, Part]
) -> dict[str, Part]:
    """What each needs, and of what is left one part by need and the other where it is."""
    rates = _with_spare(
        contract.rate,
        {name: part.rate for name, part in needed.items()},
        {name: part.rate for name, part in held.items()},
    )
    bursts = _with_spare(
        contract.burst,
        {name: part.burst for name, part in needed.items()},
        {name: part.burst for name, part in held.items()},
    )
    return divide(contract, rates, bursts, RATE_FLOOR)


def _with_spare(
    total: float, needed: Mapping[str, float], held: Mapping[str, float]
) -> dict[str, float]:
    spare = max(0.0, total - fsum(needed.values()))
    unused = {name: max(0.0, held[name] - value) for name, value in needed.items()}
    by_need = fsum(needed.values())
    by_holding = fsum(unused.values())
    stays = (1 - _SPARE) * spare if by_holding > 0 else 0.0
    return {
        name: value
        + (spare - stays) * value / by_need
        + (stays * unused[name] / by_holding if by_holding > 0 else 0.0)
        for name, value in needed.items()
    }
