"""Publishers that leave a broker in trouble: decided, proposed, carried out, shown."""

import asyncio
import logging
from collections.abc import Iterable

from distributor.api import MigrationAsked, MigrationShown, MigrationsShown, MoveShown
from distributor.control.relief import carry_out, require_applicable
from distributor.control.relief_inputs import inputs
from distributor.control.service import Distributor
from distributor.errors import Conflict
from distributor.migration import Decision, Move, relieve
from distributor.store.statements import put_migration
from srtm.text.words import counted

log = logging.getLogger("srtm.distributor")


async def decide(service: Distributor) -> None:
    """Once a second, decide who leaves a broker in trouble, for each whose publishers are known.
    Nothing is decided while a topic is fitted, as brokers are measured with all that they bear, and
    while gateways tell what a lost store did not. Raises StoreError."""
    troubles = service.troubles
    if not troubles.is_due(service.now()):
        return
    async with service.changing:
        now = service.now()
        troubles.look(now)
        if service.fitters or service.state.listens(now):
            return
        for broker in sorted(troubles.ill):
            if troubles.decision_due(broker, now) and troubles.senders(broker) is not None:
                troubles.decided(broker, now)
                asked = inputs(service, broker, now)
                found = await asyncio.to_thread(relieve, *asked, troubles.memory, now)
                await _take(service, broker, found)


async def _take(service: Distributor, broker: str, found: Decision) -> None:
    """Carry out what was decided for a broker, or propose it. Raises StoreError."""
    troubles = service.troubles
    at = service.wall()
    for name in troubles.topics_at(broker):
        key = broker, name
        moves = [each for each in found.moves if each.topic == name]
        before = troubles.proposals.pop(key, None)
        troubles.blocked.pop(key, None)
        if not moves:
            if not found.moves and troubles.may_move(name):
                troubles.blocked[key] = found.reasons
            continue
        shown = MigrationShown(at=at, moves=_shown(moves), reasons=list(found.reasons))
        try:
            if found.by_itself:
                await carry_out(service, name, shown)
                continue
            require_applicable(service, name, shown)
        except Conflict as error:
            troubles.blocked[key] = (*found.reasons, str(error))
            continue
        if before is None or _ways(before) != _ways(shown):
            log.warning(
                "topic %s: %s should leave %s: srtm placement migrate %s moves them",
                name,
                counted(len(moves), "publisher"),
                broker,
                name,
            )
        else:
            shown = before  # as somebody may have read it
        troubles.proposals[key] = shown


def _ways(shown: MigrationShown) -> set[tuple[str, str]]:
    return {(each.publisher, each.target) for each in shown.moves}


def _shown(moves: Iterable[Move]) -> list[MoveShown]:
    return [MoveShown.model_validate(each, from_attributes=True) for each in moves]


async def accept(service: Distributor, name: str) -> MigrationShown:
    """What is proposed for the topic. Raises NotFound, Conflict, StoreError."""
    async with service.changing:
        service.topic(name)
        shown = _proposed(service, name)
        if shown is None:
            why = _blocked(service, name)
            raise Conflict(
                f"topic {name}: nothing is proposed{': ' + '; '.join(why) if why else ''}"
            )
        await carry_out(service, name, shown)
        service.troubles.forget(name)
        return shown


async def put(service: Distributor, name: str, asked: MigrationAsked) -> MigrationsShown:
    """Raises NotFound, StoreError."""
    async with service.changing:
        topic = service.topic(name)
        await service.commit([put_migration(name, asked.model_dump_json())])
        topic.migration = asked
        service.troubles.forget(name)
    return show(service, name)


# --- shown ------------------------------------------------------------------------------------


def show(service: Distributor, name: str) -> MigrationsShown:
    """Raises NotFound."""
    topic, troubles = service.topic(name), service.troubles
    serves = {each.name for each in topic.in_force.brokers} if topic.in_force else set()
    return MigrationsShown(
        topic=name,
        mode=topic.migration.mode,
        trouble={
            broker: trouble.reason
            for broker, trouble in sorted(troubles.ill.items())
            if broker in serves
        },
        blocked=_blocked(service, name),
        proposed=_proposed(service, name),
        applied=[
            MigrationShown(at=each.at, moves=list(each.moves), reasons=list(each.reasons))
            for each in reversed(topic.history)
            if each.moves
        ],
    )


def _blocked(service: Distributor, name: str) -> list[str]:
    troubles, said = service.troubles, list[str]()
    for broker in sorted(troubles.ill):
        if name in troubles.wants_publishers(broker) and troubles.senders(broker) is None:
            said.append(
                f"broker {broker} is asked who sends to it, and has not told for long enough"
            )
        said += troubles.blocked.get((broker, name), ())
    return said


def _proposed(service: Distributor, name: str) -> MigrationShown | None:
    """The proposals of all brokers for the topic, in one."""
    found = [
        shown for (_, topic), shown in sorted(service.troubles.proposals.items()) if topic == name
    ]
    if not found:
        return None
    return MigrationShown(
        at=max(each.at for each in found),
        moves=[move for each in found for move in each.moves],
        reasons=[reason for each in found for reason in each.reasons],
    )
