"""The state as read from the store, with which a distributor becomes the leader."""

import json
import logging
from collections.abc import Iterable
from itertools import groupby
from math import inf
from operator import attrgetter

from distributor.api import AdaptationAsked, FittingShown, MigrationAsked
from distributor.control.lineage import Lineage
from distributor.control.state import (
    FORMER,
    UNHEARD,
    ControlState,
    Gateway,
    InForce,
    RegisteredTopic,
)
from distributor.fitting import CapacityModel
from distributor.grouping.proposals import Kept
from distributor.store import (
    BrokerRow,
    GrantRow,
    ModelRow,
    PublisherRow,
    Snapshot,
    TopicRow,
)
from srtm.limits.contract import Contract
from tb_adaptor.leases import NOTHING, Holder, Share, TopicLeases

log = logging.getLogger("srtm.distributor")


def restored(kept: Snapshot, assumed_until: float) -> ControlState:
    """The state as it was stored. assumed_until: when the last lease that anybody before may have
    given ends, in monotonic seconds. A new store's lineage has to be written yet."""
    state = ControlState(kept.epoch, kept.epoch, sure_at=assumed_until, lost=set(kept.lost))
    if kept.lineage is not None:
        state.lineage = Lineage(kept.lineage.id, kept.lineage.secret)
        state.unsure = kept.lineage.unsure
        state.opened = kept.epoch
        state.copied = kept.lineage.copied
        if state.copied:
            log.warning(
                "the store was restored from a copy: nothing is granted or taken away for a lease "
                "and a third, while gateways tell what they hold"
            )
    _take_brokers(state, kept.brokers, assumed_until)
    state.topics = {row.topic: _topic(row) for row in kept.topics}
    for placement in kept.placements:
        state.topics[placement.topic].history.append(InForce.of(placement))
    _take_grants(state, kept.grants, assumed_until)
    for name, topic in state.topics.items():
        _agree(state, name, topic)
    _take_publishers(state, kept.publishers)
    for fitting in kept.fittings:
        shown = FittingShown.model_validate_json(fitting.document)
        state.topics[fitting.topic].fitting = shown
    state.model = _model(kept.model)
    return state


def _take_brokers(state: ControlState, rows: Iterable[BrokerRow], assumed_until: float) -> None:
    for row in rows:
        gateway = state.gateways[row.name] = Gateway(row)
        if FORMER not in row.name:
            gateway.named_until = assumed_until
            state.unheard.add(row.name)


def _topic(row: TopicRow) -> RegisteredTopic:
    keys = None if row.keys is None else frozenset(json.loads(row.keys))
    topic = RegisteredTopic(Contract.model_validate_json(row.contract), keys)
    if row.adaptation:
        topic.adaptation = AdaptationAsked.model_validate_json(row.adaptation)
    if row.migration:
        topic.migration = MigrationAsked.model_validate_json(row.migration)
    if row.grouping:
        topic.grouping = Kept.model_validate_json(row.grouping)
    return topic


def _take_grants(state: ControlState, rows: Iterable[GrantRow], assumed_until: float) -> None:
    """What brokers may hold, also of topics that are deleted."""
    for row in rows:
        if row.broker not in state.gateways:
            continue  # it reported in the moment in which it was forgotten
        share = Share(row.rate, row.burst, row.least) if row.rate else NOTHING
        holders = state.leases.setdefault(row.topic, TopicLeases()).holders
        before = holders[row.broker].granted if row.broker in holders else ()
        lease_ends_at = inf if row.broker == UNHEARD else assumed_until
        holders[row.broker] = Holder((*before, (row.epoch, share)), lease_ends_at)
        state.gateways[row.broker].topics.add(row.topic)


def _agree(state: ControlState, name: str, topic: RegisteredTopic) -> None:
    """The topic's leases by its contract, its placement, and what brokers may hold."""
    leases = state.leases.setdefault(name, TopicLeases())
    leases.agree(topic.contract)
    if topic.in_force:
        leases.targets = topic.in_force.targets
        for broker in leases.targets:
            state.gateways[broker].topics.add(name)
    having = {each for each, held in leases.holders.items() if held.last != NOTHING}
    leases.claims = having - leases.targets.keys()
    if not leases.fits(len(leases.targets), len(leases.claims)):
        leases.claims = set()  # one of them had its turn: it is no place's floor
    # A share that was on its way when the last leader ended was acknowledged, or will be with the
    # first report: clients are not sent away for that second.
    topic.ready = having


def _take_publishers(state: ControlState, rows: Iterable[PublisherRow]) -> None:
    for name, its in groupby(rows, attrgetter("topic")):
        topic, places = state.topics[name], dict[str, str | None]()
        for row in its:
            topic.publishers[row.id] = (row.key, row.rate)
            if row.broker is not None:
                places[row.id] = row.broker
        if topic.in_force:
            topic.place(places, topic.in_force.epoch)


def _model(rows: Iterable[ModelRow]) -> CapacityModel:
    try:
        return CapacityModel.read({each.broker: json.loads(each.document) for each in rows})
    except ValueError as error:  # it only says where fittings begin
        log.warning("what fittings have taught is forgotten: %s", error)
        return CapacityModel()
