"""Moves from a broker in trouble as one placement: checked, with the shares after them, applied."""

import logging
from collections import Counter
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
    require_room(leases, sorted(_brokers_after(topic, shown)), topic.contract, now)


def _brokers_after(topic: RegisteredTopic, shown: MigrationShown) -> set[str]:
    return set((topic.places | {each.publisher: each.target for each in shown.moves}).values())


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
    before, name = topic.in_force, topic.contract.topic
    assert before is not None
    held = {
        each: Part(share.rate, share.burst)
        for each, share in service.state.leases[name].targets.items()
    }
    carried = service.troubles.carried().get(name, 1.0)
    rates = {each: service.troubles.loads(each).get(name, 0.0) * carried for each in held}
    after = _brokers_after(topic, shown)
    sources = {each.source for each in shown.moves}
    try:
        parts = shares_after(
            held,
            rates,
            [(each.source, each.target, each.rate) for each in shown.moves],
            sources - after,
        )
    except ValueError as error:
        raise Conflict(f"topic {name}: {error}") from None
    places = topic.places | {each.publisher: each.target for each in shown.moves}
    there = Counter(places.values())
    declared: dict[str, list[float]] = {}
    for publisher, broker in places.items():
        declared.setdefault(broker, []).append(topic.publishers[publisher][1])
    rates_before = {each.name: each.rate for each in before.brokers}
    brokers = []
    for broker, part in parts.items():
        rate = fsum(declared.get(broker, ())) or rates_before[broker]
        brokers.append(
            ShareShown(
                name=broker,
                rate=rate,
                quota=rate,
                publishers=there[broker],
                r=part.rate,
                b=part.burst,
            )
        )
    who = some([f"{each.publisher} from {each.source} to {each.target}" for each in shown.moves])
    return InForce(
        epoch=service.state.next_epoch(),
        at=service.wall(),
        policy=POLICY,
        brokers=tuple(brokers),
        unplaced=before.unplaced,
        unplaced_rate=before.unplaced_rate,
        reasons=(f"moved {who}", *shown.reasons, *(each.reason for each in shown.moves[:_SAID])),
        moves=tuple(shown.moves),
    )
