"""Moves from a broker in trouble as one placement, checked and applied with the new shares."""

import logging
from collections import Counter
from collections.abc import Mapping
from math import fsum

from distributor.api import MigrationShown, ShareShown
from distributor.control.placement_inputs import require_room
from distributor.control.placements import apply
from distributor.control.service import Distributor
from distributor.control.state import InForce, RegisteredTopic
from distributor.control.troubles import POLICY
from distributor.errors import Conflict
from distributor.migration import shares_after
from srtm.text.words import counted, some
from tb_adaptor.share import Part

log = logging.getLogger("srtm.distributor")

_SAID = 10
"""moves whose reasons stand in the history; all of them are in `moves`"""


def require_applicable(service: Distributor, name: str, shown: MigrationShown) -> None:
    """Raises Conflict where things are not any more as it was made for, or b has no room."""
    topic, now = service.topic(name), service.now()
    if topic.is_fitted or topic.in_force is None:
        raise Conflict(f"topic {name} is being fitted: srtm placement fit {name} --stop ends it")
    for each in shown.moves:
        gateway = service.state.gateways.get(each.target)
        state = gateway.state(now, service.lease_seconds) if gateway else "lost"
        if topic.places.get(each.publisher) != each.source or state != "up":
            raise Conflict(
                f"topic {name}: publisher {each.publisher} cannot go from {each.source} to "
                f"{each.target} any more; a new proposal comes within seconds"
            )
    leases = service.state.leases[name]
    require_room(leases, sorted(set(_places_after(topic, shown).values())), topic.contract, now)


def _places_after(topic: RegisteredTopic, shown: MigrationShown) -> dict[str, str]:
    return topic.places | {each.publisher: each.target for each in shown.moves}


async def carry_out(service: Distributor, name: str, shown: MigrationShown) -> None:
    """Under the lock `changing`: all moves in one placement. Raises Conflict, StoreError."""
    require_applicable(service, name, shown)
    topic, troubles = service.topic(name), service.troubles
    applied = _in_force(service, topic, shown)
    moved: dict[str, str | None] = {each.publisher: each.target for each in shown.moves}
    await apply(service, name, applied, moved)
    now = service.now()
    for each in shown.moves:
        troubles.memory.moved(name, each.publisher, each.source, now)
    troubles.moved += len(shown.moves)
    brokers = {each.source for each in shown.moves} | {each.target for each in shown.moves}
    troubles.restart(brokers, now)
    log.warning(
        "topic %s: %s moved: %s",
        name,
        counted(len(moved), "publisher"),
        "; ".join([*shown.reasons, *(each.reason for each in shown.moves[:3])]),
    )


def _in_force(service: Distributor, topic: RegisteredTopic, shown: MigrationShown) -> InForce:
    """Raises Conflict."""
    before = topic.in_force
    assert before is not None
    places = _places_after(topic, shown)
    parts = _parts(service, topic, shown, places)
    who = some([f"{each.publisher} from {each.source} to {each.target}" for each in shown.moves])
    return InForce(
        epoch=service.state.next_epoch(),
        at=service.wall(),
        policy=POLICY,
        brokers=_brokers(topic, before, places, parts),
        unplaced=before.unplaced,
        unplaced_rate=before.unplaced_rate,
        reasons=(f"moved {who}", *shown.reasons, *(each.reason for each in shown.moves[:_SAID])),
        moves=tuple(shown.moves),
    )


def _parts(
    service: Distributor, topic: RegisteredTopic, shown: MigrationShown, places: Mapping[str, str]
) -> Mapping[str, Part]:
    """The sub-buckets after the moves, when publishers are at `places`. Raises Conflict."""
    name = topic.contract.topic
    targets = service.state.leases[name].targets
    carried = service.troubles.carried().get(name, 1.0)
    sources = {each.source for each in shown.moves}
    try:
        return shares_after(
            {each: Part(share.rate, share.burst) for each, share in targets.items()},
            {each: service.troubles.loads(each).get(name, 0.0) * carried for each in targets},
            [(each.source, each.target, each.rate) for each in shown.moves],
            sources - set(places.values()),
        )
    except ValueError as error:
        raise Conflict(f"topic {name}: {error}") from None


def _brokers(
    topic: RegisteredTopic,
    before: InForce,
    places: Mapping[str, str],
    parts: Mapping[str, Part],
) -> tuple[ShareShown, ...]:
    there = Counter(places.values())
    declared: dict[str, list[float]] = {}
    for publisher, broker in places.items():
        declared.setdefault(broker, []).append(topic.publishers[publisher][1])
    rates = {each.name: each.rate for each in before.brokers}
    rates |= {broker: total for broker, each in declared.items() if (total := fsum(each))}
    return tuple(
        ShareShown(
            name=broker,
            rate=rates[broker],
            quota=rates[broker],
            publishers=there[broker],
            r=part.rate,
            b=part.burst,
        )
        for broker, part in parts.items()
    )
