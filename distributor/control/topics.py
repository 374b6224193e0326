"""Contracts of topics: they are set, removed and shown."""

from math import fsum

from distributor.api import TopicAsked, TopicShown
from distributor.api_fields import MAX_TOPICS
from distributor.control.placement_inputs import contract_changed
from distributor.control.registrations import check_key
from distributor.control.service import Distributor
from distributor.control.state import RegisteredTopic
from distributor.errors import Conflict
from distributor.store.statements import (
    delete_lost,
    delete_topic,
    put_epoch,
    put_placement,
    put_topic,
)
from srtm.limits.contract import Contract
from tb_adaptor.leases import NOTHING, TopicLeases
from tb_adaptor.turns import Turns


async def put(service: Distributor, name: str, asked: TopicAsked) -> TopicShown:
    """Raises UsageError for a bad contract, Conflict where it does not fit what is there."""
    contract = _contract(name, asked)
    keys = None if asked.keys is None else frozenset(asked.keys)
    async with service.changing:
        known = service.state.topics.get(name)
        _require_possible(service, name, known, keys)
        changed = RegisteredTopic(contract, keys)
        statements = [put_topic(changed.row()), delete_lost(name)]
        placement = None
        if known and known.in_force and contract != known.contract:
            leases, epoch = service.state.leases[name], service.state.next_epoch()
            placement = contract_changed(
                contract, known.in_force, leases, service.now(), service.wall(), epoch
            )
            statements += put_placement(placement.row(name), {})
            statements.append(put_epoch(placement.epoch))
        await service.commit(statements)
        if known:
            known.contract, known.keys = contract, keys
        else:
            known = service.state.topics[name] = changed
            service.state.lost.discard(name)
            service.names_changed()
        # Not before the commit: a report that comes meanwhile forgets those of a topic that was
        # deleted, once no broker holds any of it.
        leases = service.state.leases.setdefault(name, TopicLeases())
        leases.agree(contract)
        if placement:
            known.history.append(placement)
            leases.place(placement.targets)
    return shown(service, name)


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
        largest_batch=service.state.leases[name].seen,
        keys=None if topic.keys is None else sorted(topic.keys),
        publishers=len(topic.publishers),
        placed=len(topic.places),
        offered=fsum(rate for _, rate in topic.publishers.values()),
        epoch=topic.in_force.epoch if topic.in_force else None,
    )


def _require_possible(
    service: Distributor, name: str, known: RegisteredTopic | None, keys: frozenset[str] | None
) -> None:
    """Raises UsageError where a publisher has none of these keys, Conflict for one topic too
    many."""
    if known and keys is not None:
        for publisher, (key, _) in known.publishers.items():
            check_key(name, publisher, key, keys)
    if known is None and len(service.state.topics) >= MAX_TOPICS:
        raise Conflict(
            f"topic {name}: {MAX_TOPICS:,} topics are registered, the most of one "
            "distributor; delete some"
        )


def _contract(name: str, asked: TopicAsked) -> Contract:
    """Raises UsageError."""
    values = asked.model_dump(exclude={"keys"}, exclude_none=True)
    if "max_wait" in values and not isinstance(values["max_wait"], str):
        values["max_wait"] = float(values["max_wait"])
    return Contract.read({"topic": name, **values}, f"topic {name}")
