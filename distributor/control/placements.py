"""Placements of the service: dry run, apply, history."""

import asyncio
from collections.abc import Mapping, Sequence

from distributor.api import PlacementAsked, PlacementPlan, PlacementShown
from distributor.control.groupings import groups_for
from distributor.control.placement_inputs import (
    asked_of,
    decide,
    in_force,
    moves,
    plan_in_force,
    plan_of,
    require_applicable,
)
from distributor.control.service import Distributor
from distributor.control.state import InForce
from distributor.errors import Conflict, NotFound
from distributor.model import Placement
from distributor.store import Statement
from distributor.store.statements import HISTORY, put_epoch, put_placement
from srtm.text.errors import UsageError


async def place(service: Distributor, name: str, asked: PlacementAsked) -> PlacementPlan:
    """Raises NotFound, UsageError, Conflict, StoreError.

    Whatever walks over all publishers does so in a thread, beside the event loop: 100,000 of them
    take most of a second, and brokers report meanwhile. Topics and publishers change under the lock
    only, so they stand still.
    """
    if asked.keep and asked.policy != "srtm":
        raise UsageError(f"keep goes with policy srtm; {asked.policy} places everybody anew")
    async with service.changing:
        topic = service.topic(name)
        if not topic.publishers:
            raise Conflict(f"topic {name} has no publishers: register at least one")
        keys, why = await asyncio.to_thread(groups_for, name, topic, asked)
        placement = await asyncio.to_thread(_decided, service, name, asked, keys)
        placement = placement.because(why if asked.policy == "srtm" else ())
        if asked.dry_run:
            return await asyncio.to_thread(plan_of, placement)
        leases = service.state.leases[name]
        if topic.is_fitted:
            raise Conflict(
                f"topic {name} is being fitted: srtm placement fit {name} --stop ends it"
            )
        require_applicable(placement, leases, topic.contract, service.now())
        moved = await asyncio.to_thread(moves, placement.assignment, placement.unplaced, topic)
        applied = in_force(placement, topic, service.state.next_epoch(), service.wall())
        await apply(service, name, applied, moved)
        return await asyncio.to_thread(plan_in_force, topic, applied)


async def apply(
    service: Distributor,
    name: str,
    applied: InForce,
    moved: dict[str, str | None],
    also: Sequence[Statement] = (),
) -> None:
    """Under the lock `changing`. moved: publisher id -> broker, of those who get another one; also:
    written with it. Raises StoreError, and nothing is changed then."""
    topic, leases = service.state.topics[name], service.state.leases[name]
    written = [put_epoch(applied.epoch), *put_placement(applied.row(name), moved), *also]
    await service.commit(written)
    topic.history.append(applied)
    del topic.history[:-HISTORY]
    leases.place(applied.targets)
    service.state.stir(name)
    for each in leases.targets:
        service.state.gateways[each].topics.add(name)
    service.watches.notify(name, topic.place(moved, applied.epoch))


async def current(service: Distributor, name: str) -> PlacementPlan:
    """Raises NotFound."""
    async with service.changing:
        topic = service.topic(name)
        if topic.in_force is None:
            raise NotFound(
                f"topic {name} has no placement yet; srtm placement apply {name} makes one"
            )
        return await asyncio.to_thread(plan_in_force, topic, topic.in_force)


def history(service: Distributor, name: str) -> list[PlacementShown]:
    """Newest first."""
    return [
        PlacementShown.model_validate(each, from_attributes=True)
        for each in reversed(service.topic(name).history)
    ]


def _decided(
    service: Distributor, name: str, asked: PlacementAsked, keys: Mapping[str, str | None]
) -> Placement:
    values = asked_of(service.state, name, service.now(), service.lease_seconds, keys)
    return decide(asked.policy, values, asked.keep)
