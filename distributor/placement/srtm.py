"""SRTM's own policy: concentration, max-min, correlation-aware selection (SRTM sections 4.2, 4.3).

`srtm` is the first iteration and `extend` every later one; the other concentrating policies are the
same with other groups or other levels.
"""

from collections.abc import Iterable, Mapping, Sequence

from distributor.model import Broker, Placement, Publisher
from distributor.placement.assign import NANO, amount, assign, smallest_at_most
from distributor.placement.candidates import candidates
from distributor.placement.groups import by_key
from distributor.placement.outcome import outcome
from distributor.placement.reasons import reasons
from distributor.placement.request import Request, request
from srtm.limits.contract import Contract

SubBucket = tuple[float, float]
"""(r_l, b_l)"""


def srtm(
    contract: Contract, brokers: Iterable[Broker], publishers: Iterable[Publisher]
) -> Placement:
    """A new topic: the fewest brokers whose residual capacities hold its offered rate, shares by
    water-filling, and every correlation group spread over them in proportion.

    Raises ValueError for ids or names given twice and for no publishers. Publishers for which there
    is no room are `unplaced`, and a reason says what is missing.
    """
    asked = request(contract, brokers, publishers)
    return concentrate("srtm", asked, by_key(asked.unassigned))


def extend(
    contract: Contract,
    brokers: Iterable[Broker],
    publishers: Iterable[Publisher],
    placed: Mapping[str, str],
    full: Mapping[str, SubBucket],
) -> Placement:
    """The next iteration, after online fitting: publishers that are not in `placed` (their rate is
    SRTM's ua.rate) go to the topic's brokers that are not full and to the fewest new ones, possibly
    none. Nobody in `placed` moves.

    brokers: as for `srtm`: `allocated` is that of the other topics
    placed:  publisher id -> broker name
    full:    brokers that take no more, with the sub-bucket that they were fitted with, which they
             keep; of one that does not serve the topic it is not looked at

    Max-min counts what the topic has there already, and groups are spread by their remaining
    publishers. Raises ValueError as `srtm` does, and for names and ids that are not known.
    """
    asked = request(contract, brokers, publishers, placed, full)
    return concentrate("srtm", asked, by_key(asked.unassigned), kept=full)


def concentrate(
    policy: str,
    asked: Request,
    groups: Sequence[Sequence[int]],
    *,
    by_total_load: bool = False,
    kept: Mapping[str, SubBucket] | None = None,
) -> Placement:
    """Fewest brokers, water-filling, `spread` by `groups` (numbers in `asked.unassigned`).

    by_total_load: level what all topics have there, not what this one has (SRTM section 6.2, Conc)
    """
    found = candidates(asked)
    usable, rooms, there = found.usable, found.rooms, found.there
    bases = [amount(each.allocated) for each in usable] if by_total_load else there
    unassigned = asked.unassigned
    weights = [amount(publisher.rate) for publisher in unassigned]
    assigned = assign(groups, weights, rooms, bases, len(found.opened))
    assignment = dict(asked.placed)
    left, placed_weights = [], []
    for publisher, weight, broker in zip(unassigned, weights, assigned.broker_of, strict=True):
        if broker < 0:
            left.append(publisher)
        else:
            assignment[publisher.id] = usable[broker].name
            placed_weights.append(weight)
    quotas = {
        broker.name: found.own.get(broker.name, 0.0) + quota / NANO
        for broker, quota in zip(usable, assigned.quotas, strict=True)
    }
    used = assigned.used
    at_most = smallest_at_most(placed_weights, rooms[:used], there[:used])
    full_rates = [rate for name, rate in found.own.items() if name in asked.full]
    placement = outcome(
        policy,
        asked,
        assignment,
        quotas,
        brokers_at_least=len(full_rates) + assigned.at_least,
        minimum_at_most=min([*([at_most / NANO] if used else []), *full_rates], default=0.0),
        kept=kept,
    )
    return placement.because(
        reasons(asked, found, assigned, groups, left, placement, by_total_load)
    )
