"""Publishers that register into a placed topic get a broker at once where there is room.

Nobody else moves, and the first placement of a topic stays a person's decision.
"""

import asyncio
import logging

from distributor.control.placement_inputs import asked_of, in_force, moves, require_applicable
from distributor.control.placements import apply
from distributor.control.service import Distributor
from distributor.errors import Conflict
from distributor.model import Broker, Placement
from distributor.placement.srtm import extend
from srtm.text.words import counted, some

log = logging.getLogger("srtm.distributor")


async def place_newcomers(service: Distributor, name: str) -> None:
    """Place the publishers of topic `name` that have registered since it was called last. Raises
    StoreError.

    `retry` calls it again where it is too early: the topic is being fitted, gateways have to be
    heard, or a former broker has to give up its share first.
    """
    waiting = service.registrations.newcomers
    async with service.changing:
        topic = service.state.topics.get(name)
        if name not in waiting:
            return  # placed by another request
        if topic is None or topic.in_force is None:
            waiting.discard(name)
        elif not (topic.is_fitted or service.state.unsure or service.state.copied):
            waiting.discard(name)
            try:
                why = await _place(service, name)
            except Conflict as error:
                waiting.add(name)
                log.debug("publishers of topic %s wait: %s", name, error)
                return
            except BaseException:
                waiting.add(name)
                raise
            if why and service.state.listens(service.now()):
                waiting.add(name)
            elif why:
                log.warning("topic %s: publishers have registered and got no broker: %s", name, why)


async def retry(service: Distributor) -> None:
    """Place newcomers that still wait; called once a second or more often. Raises StoreError."""
    for name in sorted(service.registrations.newcomers):
        await place_newcomers(service, name)


async def _place(service: Distributor, name: str) -> str:
    """Under the lock `changing`. Why some are left without a broker; empty: nobody is. Raises
    Conflict, StoreError."""
    topic, state = service.state.topics[name], service.state
    placement = await asyncio.to_thread(_decided, service, name)
    moved = await asyncio.to_thread(moves, placement.assignment, (), topic)
    if moved:
        require_applicable(placement, state.leases[name], topic.contract, service.now())
        who = f"{counted(len(moved), 'publisher')} registered: {some(sorted(moved))}"
        applied = in_force(placement.because([who]), topic, state.next_epoch(), service.wall())
        await apply(service, name, applied, moved)
    return placement.reasons[-1] if placement.unplaced else ""


def _decided(service: Distributor, name: str) -> Placement:
    """A placement as by `srtm placement apply --keep`, but that nobody leaves a broker that is lost
    or drained either: it is full with those who are there. Raises Conflict."""
    topic, now = service.state.topics[name], service.now()
    contract, brokers, publishers, _ = asked_of(service.state, name, now, service.lease_seconds)
    takes = {each.name for each in brokers}
    brokers += [Broker(each, load) for each, load in topic.loads().items() if each not in takes]
    try:
        return extend(contract, brokers, publishers, topic.places, {})
    except ValueError as error:
        raise Conflict(f"topic {name}: {error}") from None
