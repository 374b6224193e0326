"""From who goes where to a placement: rates, sub-buckets, and what every plan has to warn of."""

from collections.abc import Mapping, Sequence
from math import fsum

from distributor.model import BrokerShare, Placement
from distributor.placement.request import Request
from distributor.placement.sub_buckets import sub_buckets
from srtm.text.words import number, rate, some

_ROUNDING = 1e-9
"""relative: a sum of rates that is so little over a capacity is not over it"""


def outcome(
    policy: str,
    asked: Request,
    assignment: Mapping[str, str],
    quotas: Mapping[str, float],
    *,
    brokers_at_least: int,
    minimum_at_most: float,
    kept: Mapping[str, tuple[float, float]] | None = None,
) -> Placement:
    """assignment: publisher id -> broker name, with those who were placed before
    quotas:     messages/s by broker; of a broker without one it is what it got
    kept:       (r_l, b_l) of fitted brokers by name
    Its reasons are the warnings that any policy has to give; a policy adds its own.
    """
    rates: dict[str, list[float]] = {}
    unplaced = []
    for publisher in asked.publishers:
        name = assignment.get(publisher.id)
        if name is None:
            unplaced.append(publisher.id)
        else:
            rates.setdefault(name, []).append(publisher.rate)
    serving = [broker for broker in asked.brokers if broker.name in rates]
    totals = [fsum(rates[broker.name]) for broker in serving]
    stay = {
        at: kept[broker.name] for at, broker in enumerate(serving) if kept and broker.name in kept
    }
    contract = asked.contract
    # Whoever has no broker gets no part: it would lie idle, and the others wait for it.
    least = contract.least_burst
    buckets = sub_buckets(contract.rate, contract.burst, totals, kept=stay, least=least)
    shares = tuple(
        BrokerShare(
            broker.name, total, quotas.get(broker.name, total), len(rates[broker.name]), r, b
        )
        for broker, total, (r, b) in zip(serving, totals, buckets, strict=True)
    )
    moved = [shares[at].name for at, bucket in stay.items() if buckets[at] != bucket]
    return Placement(
        policy=policy,
        assignment=assignment,
        brokers=shares,
        unplaced=tuple(unplaced),
        reasons=tuple(_warnings(asked, shares, moved)),
        brokers_at_least=brokers_at_least,
        minimum_at_most=minimum_at_most,
    )


def _warnings(
    asked: Request, shares: Sequence[BrokerShare], no_longer_kept: Sequence[str]
) -> list[str]:
    contract, offered = asked.contract, asked.offered
    found = []
    if contract.rate < offered * (1 - _ROUNDING):
        found.append(
            f"warning: the publishers offer {rate(offered)} and the contract's r is "
            f"{number(contract.rate)}: messages will wait without bound; raise r above "
            f"{number(offered)}"
        )
    by_name = {broker.name: broker for broker in asked.brokers}
    for share in shares:
        broker = by_name[share.name]
        left = max(0.0, broker.rcap)
        if share.rate > left + _ROUNDING * (broker.capacity + 1):
            found.append(
                f"warning: {share.name} gets {rate(share.rate)} and has {number(left)} left: "
                f"overloaded by {number(share.rate - left)}"
            )
    before = [broker.name for broker in asked.brokers if broker.rcap < 0]
    if before:
        found.append(
            f"warning: more is allocated than fits within the SLO on {some(before)}, without this "
            "topic"
        )
    lifted = [
        share.name for share in shares if contract.burst * share.rate < offered * (1 - _ROUNDING)
    ]
    if lifted:
        found.append(
            f"warning: b = {number(contract.burst)} by rate is less than one message on "
            f"{some(lifted)}: b_l is lifted to 1 there, out of the other brokers' shares; "
            f"b = {number(_enough(shares, offered))} would do without"
        )
    if no_longer_kept:
        found.append(
            f"warning: b = {number(contract.burst)} does not leave one message for every new "
            f"broker: {some(no_longer_kept)} could not keep the sub-bucket it was fitted with; "
            "measure it again"
        )
    return found


def _enough(shares: Sequence[BrokerShare], offered: float) -> float:
    """The b with which the smallest share is one message."""
    return offered / min(share.rate for share in shares)
