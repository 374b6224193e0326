"""Contracts of topics: they are set, removed and shown."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum

from distributor.api import TopicAsked, TopicOfMany, TopicShown
from distributor.api_fields import MAX_TOPICS, PublisherAsked
from distributor.control.placement_inputs import contract_changed
from distributor.control.registrations import check_key, require_once, rows_of
from distributor.control.service import Distributor
from distributor.control.state import InForce, RegisteredTopic
from distributor.errors import Conflict
from distributor.store import PublisherRow, Statement
from distributor.store.statements import (
    delete_lost,
    delete_topic,
    merged,
    put_epoch,
    put_placement,
    put_publishers,
    put_topic,
)
from srtm.limits.contract import Contract
from srtm.text.errors import UsageError
from srtm.text.words import some
from tb_adaptor.leases import NOTHING, TopicLeases
from tb_adaptor.turns import Turns

_AT_ONCE = 50
"""topics of a request"""


@dataclass(frozen=True, slots=True)
class _Change:
    """What becomes of one topic. known: as it was before; placement: of its new contract, where it
    is placed; publishers: those that register with it"""

    topic: RegisteredTopic
    known: RegisteredTopic | None
    placement: InForce | None
    publishers: list[PublisherRow]

    @property
    def name(self) -> str:
        return self.topic.contract.topic

    def statements(self) -> list[Statement]:
        found = [put_topic(self.topic.row()), delete_lost(self.name)]
        if self.placement:
            found += put_placement(self.placement.row(self.name), {})
            found.append(put_epoch(self.placement.epoch))
        return found


async def put(service: Distributor, name: str, asked: TopicAsked) -> TopicShown:
    """Raises UsageError for a bad contract, Conflict where it does not fit what is there."""
    await _put(service, [(name, asked, [])])
    return shown(service, name)


async def put_many(service: Distributor, asked: Sequence[TopicOfMany]) -> int:
    """Topics and their publishers, all in one transaction: how many publishers. Raises as `put`
    does, and UsageError for a topic or a publisher that stands twice."""
    names = Counter(each.topic for each in asked)
    twice = [name for name, times in names.items() if times > 1]
    if twice:
        raise UsageError(f"topic {some(twice)} is given twice; each may stand once")
    for each in asked:
        require_once(each.topic, each.publishers)
    await _put(service, [(each.topic, each, each.publishers) for each in asked])
    return sum(len(each.publishers) for each in asked)


async def _put(
    service: Distributor, asked: Sequence[tuple[str, TopicAsked, Sequence[PublisherAsked]]]
) -> None:
    agreed = [(_contract(name, each), each, publishers) for name, each, publishers in asked]
    async with service.changing:
        _require_room(service, [name for name, _, _ in asked])
        changes = []
        for number, each in enumerate(agreed):
            changes.append(_change(service, *each))
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)  # reports have a turn
        statements = [each for change in changes for each in change.statements()]
        publishers = [row for change in changes for row in change.publishers]
        await service.commit([*merged(statements), put_publishers(publishers)])
        for change in changes:
            _take(service, change)


def _change(
    service: Distributor,
    contract: Contract,
    asked: TopicAsked,
    publishers: Sequence[PublisherAsked],
) -> _Change:
    """Raises UsageError."""
    name = contract.topic
    keys = None if asked.keys is None else frozenset(asked.keys)
    known = service.state.topics.get(name)
    if known and keys is not None:
        again = {each.id for each in publishers}
        for publisher, (key, _) in known.publishers.items():
            if publisher not in again:
                check_key(name, publisher, key, keys)
    placement = None
    if known and known.in_force and contract != known.contract:
        leases, epoch = service.state.leases[name], service.state.next_epoch()
        placement = contract_changed(
            contract, known.in_force, leases, service.now(), service.wall(), epoch
        )
    rows = rows_of(name, publishers, keys)
    return _Change(RegisteredTopic(contract, keys), known, placement, rows)


def _take(service: Distributor, change: _Change) -> None:
    """The change has been written."""
    name, contract, known = change.name, change.topic.contract, change.known
    if known:
        known.contract, known.keys = contract, change.topic.keys
    else:
        known = service.state.topics[name] = change.topic
        service.state.lost.discard(name)
        service.names_changed()
    # Not before the commit: a report that comes meanwhile forgets those of a topic that was
    # deleted, once no broker holds any of it.
    leases = service.state.leases.setdefault(name, TopicLeases())
    leases.agree(contract)
    if change.placement:
        known.history.append(change.placement)
        leases.place(change.placement.targets)
    service.state.stir(name)
    if change.publishers:
        service.registrations.take(name, change.publishers)


async def delete(service: Distributor, name: str) -> None:
    async with service.changing:
        if name in service.state.lost:
            await service.commit(delete_topic(name))
            service.state.lost.discard(name)
            service.names_changed()
            return
        topic = service.topic(name)
        await service.commit(delete_topic(name))
        service.names_changed()
        if name in service.fitters:
            service.fitters[name].cancel()
        del service.state.topics[name]
        service.state.leases[name].place({})
        service.state.leases[name].total = NOTHING
        service.state.leases[name].turns = Turns()
        service.state.stir(name)
        service.adaptor.forget(name)
        service.penalties.forget(name)
        service.troubles.forget(name)
        service.watches.notify(name, topic.publishers)


def shown(service: Distributor, name: str) -> TopicShown:
    topic = service.topic(name)
    contract = topic.contract.document()
    return TopicShown(
        topic=name,
        rate=topic.contract.rate,
        burst=topic.contract.burst,
        slo=contract.get("slo"),
        mode=topic.contract.mode,
        max_wait=contract.get("max-wait"),
        batch=topic.contract.batch,
        batches=topic.contract.batches,
        fair=topic.contract.fair,
        lease_grace=contract.get("lease-grace"),
        largest_batch=service.state.leases[name].seen,
        keys=None if topic.keys is None else sorted(topic.keys),
        publishers=len(topic.publishers),
        placed=len(topic.places),
        offered=fsum(rate for _, rate in topic.publishers.values()),
        epoch=topic.in_force.epoch if topic.in_force else None,
    )


def _require_room(service: Distributor, names: Iterable[str]) -> None:
    """Raises Conflict for topics too many."""
    new = [name for name in names if name not in service.state.topics]
    if new and len(service.state.topics) + len(new) > MAX_TOPICS:
        raise Conflict(
            f"topic {some(new)}: {len(service.state.topics):,} topics are registered, and "
            f"{MAX_TOPICS:,} are the most of one distributor; delete some"
        )


def _contract(name: str, asked: TopicAsked) -> Contract:
    """Raises UsageError."""
    values = asked.model_dump(exclude={"keys", "topic", "publishers"}, exclude_none=True)
    for duration in ("max_wait", "lease_grace"):
        if isinstance(values.get(duration), int):
            values[duration] = float(values[duration])
    return Contract.read({"topic": name, **values}, f"topic {name}")
