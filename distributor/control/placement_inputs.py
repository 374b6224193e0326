"""Translation between the service's state and the pure placement: its inputs, and its leases."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

from distributor.api import Assignment, PlacementPlan, ShareShown
from distributor.control.state import ControlState, InForce, RegisteredTopic
from distributor.errors import Conflict
from distributor.model import Broker, Placement, Publisher
from distributor.placement.policies import POLICIES
from distributor.placement.srtm import extend
from distributor.placement.sub_buckets import sub_buckets
from srtm.limits.contract import Contract
from srtm.text.words import number, some
from tb_adaptor.leases import NOTHING, TopicLeases

Asked = tuple[Contract, list[Broker], list[Publisher], dict[str, str]]
"""contract, brokers that take publishers, all publishers, and who has one of these brokers"""


def asked_of(
    state: ControlState,
    name: str,
    now: float,
    lease_seconds: float,
    keys: Mapping[str, str | None] | None = None,
) -> Asked:
    """Copies, so that a placement can be made beside the event loop. keys: by which publishers are
    placed, if not by those of users and accepted groups."""
    topic, loads = state.topics[name], state.allocated(without=name)
    brokers = [
        Broker(each.row.name, each.row.capacity, loads.get(each.row.name, 0.0))
        for each in state.gateways.values()
        if each.state(now, lease_seconds) == "up"
    ]
    takes = {each.name for each in brokers}
    by = topic.keys_of("both") if keys is None else keys
    publishers = [Publisher(each, by[each], rate) for each, (_, rate) in topic.publishers.items()]
    placed = {each: broker for each, broker in topic.places.items() if broker in takes}
    return topic.contract, brokers, publishers, placed


def decide(policy: str, asked: Asked, keep: bool) -> Placement:
    """Pure. Raises Conflict where the state of things allows no placement."""
    contract, brokers, publishers, placed = asked
    try:
        if keep:
            return extend(contract, brokers, publishers, placed, {})
        return POLICIES[policy](contract, brokers, publishers)
    except ValueError as error:
        raise Conflict(f"topic {contract.topic}: {error}") from None


def require_applicable(
    placement: Placement, leases: TopicLeases, contract: Contract, now: float
) -> None:
    """Raises Conflict for a placement that serves nobody or that b cannot be split over."""
    name = contract.topic
    if not placement.brokers:
        why = placement.reasons[-1] if placement.reasons else "no broker takes publishers"
        raise Conflict(f"topic {name}: not applied, it would place nobody: {why}")
    require_room(leases, [each.name for each in placement.brokers], contract, now)


def contract_changed(
    contract: Contract,
    before: InForce,
    leases: TopicLeases,
    now: float,
    at: float,
    epoch: int,
) -> InForce:
    """The placement `before` with the new r and b, in proportion to the rates it was made for.
    Raises Conflict where b is too small for its brokers."""
    names = [each.name for each in before.brokers]
    require_room(leases, names, contract, now)
    rates = [each.rate for each in before.brokers]
    buckets = sub_buckets(
        contract.rate,
        contract.burst,
        rates,
        before.unplaced_rate,
        least=contract.least_burst,
    )
    return InForce(
        epoch=epoch,
        at=at,
        policy=before.policy,
        brokers=tuple(
            each.model_copy(update={"r": r, "b": b})
            for each, (r, b) in zip(before.brokers, buckets, strict=True)
        ),
        unplaced=before.unplaced,
        unplaced_rate=before.unplaced_rate,
        reasons=(
            f"the contract changed to r = {number(contract.rate)}, b = {number(contract.burst)}: "
            "the same brokers, shares by the same rates",
        ),
    )


def in_force(placement: Placement, topic: RegisteredTopic, epoch: int, at: float) -> InForce:
    return InForce(
        epoch=epoch,
        at=at,
        policy=placement.policy,
        brokers=shares_shown(placement),
        unplaced=len(placement.unplaced),
        unplaced_rate=0.0,
        reasons=placement.reasons,
    )


def moves(
    assignment: Mapping[str, str], unplaced: Iterable[str], topic: RegisteredTopic
) -> dict[str, str | None]:
    """publisher id -> broker, of those who get another one than they have."""
    moved: dict[str, str | None] = {
        each: broker for each, broker in assignment.items() if topic.places.get(each) != broker
    }
    moved |= {each: None for each in unplaced if each in topic.places}
    return moved


def plan_of(placement: Placement) -> PlacementPlan:
    """One that is not applied."""
    return PlacementPlan(
        policy=placement.policy,
        assignments=_assignments(placement.assignment.items()),
        brokers=list(shares_shown(placement)),
        unplaced=list(placement.unplaced),
        reasons=list(placement.reasons),
        epoch=None,
        at=None,
    )


def plan_in_force(topic: RegisteredTopic, placement: InForce) -> PlacementPlan:
    """The one that was applied last, with everybody who has a broker by it now."""
    return PlacementPlan(
        policy=placement.policy,
        assignments=_assignments(topic.places.items()),
        brokers=list(placement.brokers),
        unplaced=sorted(each for each in topic.publishers if each not in topic.places),
        reasons=list(placement.reasons),
        epoch=placement.epoch,
        at=placement.at,
    )


def shares_shown(placement: Placement) -> tuple[ShareShown, ...]:
    return tuple(ShareShown(**asdict(each)) for each in placement.brokers)


def _assignments(pairs: Iterable[tuple[str, str]]) -> list[Assignment]:
    return [Assignment(publisher=each, broker=broker) for each, broker in sorted(pairs)]


def require_room(leases: TopicLeases, names: Sequence[str], contract: Contract, now: float) -> None:
    """While publishers leave a former broker it keeps one message of b, or one batch; one that has
    a floor only because messages come to it gives way. Raises Conflict where b is too small for
    that."""
    formers = [
        each
        for each, holder in leases.holders.items()
        if each not in names
        and (each in leases.targets or each not in leases.claims)
        and holder.most(now) != NOTHING
    ]
    least = contract.least_burst
    if (len(names) + len(formers)) * least > contract.burst:
        leaving = f", and on {some(sorted(formers))} while publishers leave" if formers else ""
        raise Conflict(
            f"topic {contract.topic}: b = {number(contract.burst)} leaves less than "
            f"{f'a batch of {least}' if least > 1 else 'one message'} on each of {len(names)} "
            f"brokers{leaving}; raise burst to {(len(names) + len(formers)) * least}"
        )
