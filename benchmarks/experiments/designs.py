"""The designs that SRTM compares (sections 6.2 to 6.4), by the product's own placement code."""

from collections.abc import Callable, Sequence

from distributor.model import Broker, Placement, Publisher
from distributor.placement.groups import blind, by_key
from distributor.placement.policies import POLICIES
from distributor.placement.request import request
from distributor.placement.srtm import concentrate
from srtm.limits.contract import Contract

DESIGNS = {"lb": "LB", "conc": "Conc", "max-min": "Max-Min", "srtm": "SRTM"}
"""policy -> as SRTM calls it; its correlation-aware allocation is our policy `srtm`"""

Place = Callable[[Contract, Sequence[Broker], Sequence[Publisher], int], Placement]


def place(
    policy: str,
    contract: Contract,
    brokers: Sequence[Broker],
    publishers: Sequence[Publisher],
    count: int = 1,
) -> Placement:
    """Over `count` brokers or, where the capacities ask for them, more. `lb` takes them all."""
    placement = POLICIES[policy](contract, brokers, publishers)
    if policy == "lb" or len(placement.brokers) >= count:
        return placement
    # One publisher stands on each of `count` brokers already, so that they all serve the topic.
    by_room = sorted(brokers, key=lambda each: (-each.rcap, each.name))[:count]
    first = dict(
        zip((each.id for each in publishers), (each.name for each in by_room), strict=False)
    )
    asked = request(contract, brokers, publishers, first)
    order = blind(asked.unassigned, contract.topic)
    groups = by_key(asked.unassigned) if policy == "srtm" else order
    return concentrate(policy, asked, groups, by_total_load=policy == "conc")
