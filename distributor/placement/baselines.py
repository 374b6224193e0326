"""The policies that SRTM is compared with (SRTM sections 6.1 to 6.4)."""

from collections.abc import Iterable, Sequence

from distributor.model import Broker, Placement, Publisher
from distributor.placement.groups import blind
from distributor.placement.outcome import outcome
from distributor.placement.request import Request, request
from distributor.placement.srtm import concentrate
from srtm.limits.contract import Contract
from srtm.text.words import counted, number, rate


def max_min(
    contract: Contract, brokers: Iterable[Broker], publishers: Iterable[Publisher]
) -> Placement:
    """Concentration and max-min as `srtm`, blind to correlation keys: publishers are taken in an
    order drawn by the topic's name."""
    asked = request(contract, brokers, publishers)
    return concentrate("max-min", asked, blind(asked.publishers, contract.topic))


def conc(
    contract: Contract, brokers: Iterable[Broker], publishers: Iterable[Publisher]
) -> Placement:
    """Concentration alone: the fewest brokers, with equal total load there, that of other topics
    included. Blind to keys."""
    asked = request(contract, brokers, publishers)
    groups = blind(asked.publishers, contract.topic)
    return concentrate("conc", asked, groups, by_total_load=True)


def lb(contract: Contract, brokers: Iterable[Broker], publishers: Iterable[Publisher]) -> Placement:
    """Load balancing: the same number of publishers (within one) on all brokers, whatever their
    capacity. Blind to keys. With more brokers than b, on as many of the biggest as b allows."""
    asked = request(contract, brokers, publishers)
    return _regardless("lb", asked, asked.brokers[: asked.most_brokers])


def single(
    contract: Contract, brokers: Iterable[Broker], publishers: Iterable[Publisher]
) -> Placement:
    """Everybody on the broker with the biggest residual capacity: no DRL penalty, and an overload
    where it is too small."""
    asked = request(contract, brokers, publishers)
    return _regardless("single", asked, asked.brokers[:1])


def _regardless(policy: str, asked: Request, brokers: Sequence[Broker]) -> Placement:
    """The placement that deals publishers out in turn over `brokers`; capacity is not looked at."""
    order = [number for group in blind(asked.publishers, asked.contract.topic) for number in group]
    assignment = {}
    if brokers:
        assignment = {
            asked.publishers[at].id: brokers[turn % len(brokers)].name
            for turn, at in enumerate(order)
        }
    placement = outcome(
        policy,
        asked,
        assignment,
        {},
        brokers_at_least=min(1, len(brokers)),  # no overload, no other bound
        minimum_at_most=asked.offered / max(1, len(brokers)),
    )
    said = [
        f"{policy}: {counted(len(order), 'publisher')} over {counted(len(brokers), 'broker')} of "
        f"{len(asked.brokers)}, whatever {'its' if len(brokers) == 1 else 'their'} capacity"
    ]
    if policy == "lb" and len(brokers) < len(asked.brokers):
        said.append(
            f"the contract's b = {number(asked.contract.burst)} allows no more than "
            f"{counted(len(brokers), 'broker')} (b_l >= 1 at each)"
        )
    if not brokers:
        said.append(f"out of brokers: there is none; {rate(asked.offered)} are without")
    return placement.because(said)
