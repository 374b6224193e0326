"""The split of a journey's SLO over its legs that costs least. Pure.

Each leg has options: what it could be made to be (so many brokers, so many consumers, a shorter
linger), with what that costs and the latency that it would have. One option of each leg is chosen,
and then a part (t_i, e_i) of the SLO for each leg, so that the sums keep the whole by the union
bound (frontier.py). The parts are those with the least sum of late shares; what is left of the
SLO's own share is divided in proportion, so each leg may be worse than measured by the same factor.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

from srtm.journey.frontier import Allowance, Frontier, any_of, least_late, together
from srtm.limits.slo import SLO

MOST_CHOICES = 10_000
"""of one option for each leg: all are looked at, cheapest first, at some 0.2 ms each"""


@dataclass(frozen=True, slots=True, eq=False)
class Option:
    """What a leg could be.

    name:     as a person reads it, such as `3 consumers`
    cost:     an hour of it, in the unit of the journey
    frontier: of one leg: the latency that it would have
    """

    name: str
    cost: float
    frontier: Frontier


@dataclass(frozen=True, slots=True)
class Split:
    """One option and one part of the SLO for each leg, by the leg's name.

    headroom: the factor by which the late share of every leg may exceed what was measured
    """

    options: Mapping[str, Option]
    parts: Mapping[str, Allowance]
    headroom: float

    @property
    def cost(self) -> float:
        return sum(option.cost for option in self.options.values())


@dataclass(frozen=True, slots=True)
class Impossible:
    """No choice keeps the SLO.

    leg:           without which the others would come closest to it
    late_share:    the least that any choice can promise within the target; 1: none promises a thing
    needs_seconds: the least target that could be kept at this percentile; None: none could
    """

    leg: str
    late_share: float
    needs_seconds: float | None


def split(legs: Mapping[str, Sequence[Option]], slo: SLO) -> Split | Impossible:
    """The cheapest choice that keeps `slo`; of those that cost the same, the one with the most
    headroom. Each leg has at least one option. Raises ValueError for more than MOST_CHOICES."""
    count = math.prod(len(options) for options in legs.values())
    if not 1 <= count <= MOST_CHOICES:
        raise ValueError(f"{count} choices of one option for each leg: 1 to {MOST_CHOICES}")
    any_choice = {name: any_of([each.frontier for each in legs[name]]) for name in legs}
    if _late(list(any_choice.values()), slo) > slo.allowed_late_share:
        return _impossible(any_choice, slo)
    best: Split | None = None
    before = cache(lambda *options: together([each.frontier for each in options]))
    for choice in sorted(product(*legs.values()), key=_cost):
        if best is not None and _cost(choice) > best.cost:
            break
        *others, last = choice
        parts = (
            least_late(before(*others), last.frontier, slo.target_seconds)
            if others
            else last.frontier.within(slo.target_seconds)
        )
        found = _made(dict(zip(legs, choice, strict=True)), parts, slo)
        if found is not None and (best is None or found.headroom > best.headroom):
            best = found
    return best or _impossible(any_choice, slo)


def _cost(choice: Sequence[Option]) -> float:
    return sum(option.cost for option in choice)


def _made(options: Mapping[str, Option], least: Sequence[Allowance], slo: SLO) -> Split | None:
    """least: the parts with the least late share. None where that is not within the SLO."""
    late = sum(each.late_share for each in least)
    if not least or late > slo.allowed_late_share:
        return None
    slower = slo.target_seconds / max(sum(each.seconds for each in least), 1e-9)
    headroom = slo.allowed_late_share / late if late else math.inf
    even = slo.allowed_late_share / len(least)
    parts = {
        name: Allowance(each.seconds * slower, each.late_share * headroom if late else even)
        for name, each in zip(options, least, strict=True)
    }
    return Split(options, parts, headroom)


def _impossible(legs: Mapping[str, Frontier], slo: SLO) -> Impossible:
    def late_without(name: str) -> float:
        return _late([legs[other] for other in legs if other != name], slo)

    everything = list(legs.values())
    needs = together(everything).least_seconds(slo.allowed_late_share)
    return Impossible(min(legs, key=late_without), _late(everything, slo), needs)


def _late(legs: Sequence[Frontier], slo: SLO) -> float:
    """The least late share that can be promised of these legs within the target."""
    if not legs:
        return 0.0
    found = together(legs).within(slo.target_seconds)
    return min(1.0, sum(each.late_share for each in found)) if found else 1.0
