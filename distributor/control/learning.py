"""Learning from gateways what the store lacks because it is a new one, or an older copy.

The side with the older state yields. A gateway registers with all that it knows. Where that is
more than the store says, the distributor takes it in, and until every lease that the better store
may have given has ended, it tells each gateway no more and no less than the gateway has: nothing
is granted and nothing is taken away. After that the shares that gateways hold are the placement,
until somebody places the topic again. Publishers that only the other store knew register
themselves.

A gateway that was cut off all that time keeps the floor of a share that nobody else knows. So what
the others left of a contract is nobody's until somebody says that no such gateway runs
(`srtm broker forget ~unheard`).

    sure: grants by its store
      │  a gateway registers and shows what this store does not know (`standing`)
      ▼
    unsure: each keeps what it has ◀── others register too: `contracts`, `hold`
      │  all leases of the better store have ended (`sure_at`)
      ▼
    `recovered`: what they have is the placement; `keep_back`: the rest of the contract
      │  written (`settled`)
      ▼
    sure: grants again, and says in `warnings` what somebody should mend
"""

import logging
from collections.abc import Iterable
from math import fsum, inf

from distributor.api import ShareShown
from distributor.api_fields import MAX_TOPICS
from distributor.control.lineage import LARGEST_FOREIGN, MARGIN, Lineage, Standing
from distributor.control.shares import grants
from distributor.control.state import (
    FORMER,
    UNHEARD,
    ControlState,
    Gateway,
    InForce,
    RegisteredTopic,
)
from distributor.gateway_api import BrokerAsked, HeldTopic
from distributor.store import BrokerRow, LineageRow, Statement
from distributor.store.statements import (
    delete_lost,
    put_broker,
    put_epoch,
    put_grants,
    put_lineage,
    put_lost,
    put_placement,
    put_topic,
)
from srtm.limits.contract import MIN_RATE, Contract
from srtm.nsq.names import is_valid_topic_name
from srtm.text.errors import UsageError
from srtm.text.words import number, some
from tb_adaptor.leases import NOTHING, Holder, Share, TopicLeases

log = logging.getLogger("srtm.distributor")

LONGEST_LEASE_SECONDS = 3600.0
"""of --lease-duration; a gateway that tells of a longer one is not believed"""
POLICY = "recovered"
"""of a placement that was learnt from gateways"""


def standing(state: ControlState, asked: BrokerAsked) -> Standing:
    """Raises UsageError for an epoch that nobody has given out."""
    newest = max(asked.newest, asked.applied_epoch)
    found = state.lineage.standing(state.epoch, asked.store, newest, asked.proof)
    if found is Standing.LIE:
        state.refused_epochs += 1
        raise UsageError(
            f"broker {asked.name} shows epoch {newest}, which no distributor has given out; if it "
            "is an honest gateway, remove its --state-file and start it again"
        )
    return found


def begin(
    state: ControlState, gateway: str, found: Standing, asked: BrokerAsked, now: float
) -> None:
    """The store is behind what `gateway` knows: epochs go on above that, under a new lineage."""
    if found is Standing.BEHIND:
        state.former, state.lineage = state.lineage, Lineage.new()
    leave_behind_epochs(state, asked)
    longest = min(asked.lease_seconds, LONGEST_LEASE_SECONDS)
    state.sure_at = max(state.sure_at, now + longest * 4 / 3)
    if state.unsure:
        return
    # Whoever places topics while a restored store is led by means it.
    state.unsure, state.since = True, state.opened if state.copied else state.epoch
    state.copied = False
    log.error(
        "the store is %s: broker %s knows epoch %d of %s. Nothing is granted or taken away for "
        "%.0f s, while gateways tell what they hold; then place topics again",
        "an older copy" if found is Standing.BEHIND else "another one than gateways were led by",
        gateway,
        asked.newest,
        asked.store,
        max(0.0, state.sure_at - now),
    )


def leave_behind_epochs(state: ControlState, asked: BrokerAsked) -> None:
    """Epochs go on above those of another store; no further than another store believes."""
    newest = max(state.epoch, asked.newest, asked.applied_epoch)
    if newest > state.epoch or state.epoch < LARGEST_FOREIGN // 2:
        state.epoch = max(state.epoch, min(newest + MARGIN, LARGEST_FOREIGN))


def contracts(state: ControlState, asked: BrokerAsked) -> list[Statement]:
    """Take in the contracts that it knows: of topics that are unknown here, and of others where it
    knows them by what this store was after it was copied. What is to be written. Raises UsageError
    for a contract that is none."""
    statements: list[Statement] = []
    read = {each.topic: _contract(each) for each in asked.held}  # before anything is changed
    newer = (
        state.former is not None
        and state.former.gave(asked.store, asked.newest, asked.proof)
        and asked.newest >= asked.applied_epoch > state.opened
    )
    for held in asked.held:
        if held.topic not in state.topics and len(state.topics) >= MAX_TOPICS:
            continue
        known = state.topics.get(held.topic)
        learnt_from, learnt_at = state.learnt.get(held.topic, ("", 0))
        later = asked.applied_epoch > learnt_at and (
            newer or (state.unsure and asked.store == learnt_from)
        )
        if known is not None and not later:
            continue
        contract = read[held.topic]
        state.learnt[held.topic] = (asked.store, asked.applied_epoch)
        if known is None:
            known = state.topics[held.topic] = RegisteredTopic(contract, None)
            log.warning("topic %s: learnt from broker %s", held.topic, asked.name)
        known.contract = contract
        leases = state.leases.setdefault(held.topic, TopicLeases())
        leases.agree(contract)
        leases.may_keep(contract)
        state.stir(held.topic)
        state.lost.discard(held.topic)
        statements += [put_topic(known.row()), delete_lost(held.topic)]
    lost = {
        each
        for each in asked.names
        if each not in state.topics and is_valid_topic_name(each.encode())
    }
    room = MAX_TOPICS - len(state.topics) - len(state.lost)
    lost = set(sorted(lost - state.lost)[: max(0, room)])
    state.lost |= lost
    return [*statements, put_lost(sorted(lost))]


def unlearn(state: ControlState, asked: BrokerAsked, topics: set[str], lost: set[str]) -> None:
    """`contracts` could not be written; topics, lost: those of before."""
    for name in state.topics.keys() - topics:
        del state.topics[name]
        state.leases[name].total = NOTHING
        state.stir(name)
    for held in asked.held:
        state.learnt.pop(held.topic, None)
    state.lost = lost


def hold(state: ControlState, gateway: Gateway, asked: BrokerAsked, lease_ends_at: float) -> None:
    """From now on the gateway may hold what it says that it holds, besides what it was told
    here."""
    name, gateway.epoch = gateway.row.name, state.next_epoch()
    for each in asked.held:
        leases = state.leases.setdefault(each.topic, TopicLeases())
        share = _share(each)
        holder = leases.holders.get(name, Holder()).told(gateway.epoch, share, lease_ends_at)
        if each.burst >= each.topic_burst:
            holder = holder.grown(each.burst, leases.total.burst)
        leases.holders[name] = holder
        gateway.topics.add(each.topic)
        state.stir(each.topic)


def shares(held: Iterable[HeldTopic]) -> dict[str, Share]:
    return {each.topic: _share(each) for each in held}


def _share(held: HeldTopic) -> Share:
    return Share(held.rate, held.burst, held.batch, held.lease_grace or 0.0)


def recovered(state: ControlState, at: float) -> list[tuple[str, InForce]]:
    """The placements to take over once all gateways have been heard: what they have is the
    placement of each topic that nobody has placed since, where that is another one."""
    found = []
    for name, topic in state.topics.items():
        has = {
            broker: gateway.has[name]
            for broker, gateway in sorted(state.gateways.items())
            if gateway.process is not None and name in gateway.has
        }
        before = topic.in_force
        if not has or (before and (before.epoch > state.since or before.targets == has)):
            continue
        found.append((name, _in_force(state, topic, has, at)))
    return found


def keep_back(state: ControlState, topics: Iterable[str], now: float) -> list[Statement]:
    """What those that were heard left of these topics' contracts may be held by others. What is to
    be written."""
    for name in topics:
        leases = state.leases[name]
        held = [_had(state.gateways[each], name, leases, now) for each in leases.holders]
        if all(each == NOTHING for each in held) and not _may_be_elsewhere(state, name):
            continue  # nobody had it
        rate = leases.total.rate - fsum(each.rate for each in held)
        burst = leases.total.burst - fsum(each.burst for each in held)
        if burst < _A_MESSAGE or rate < MIN_RATE:
            continue
        row = BrokerRow(UNHEARD, "", "", 0.0, draining=True)
        gateway = state.gateways.setdefault(UNHEARD, Gateway(row))
        gateway.topics.add(name)
        before = leases.holders.get(UNHEARD, Holder()).last
        left = Share(before.rate + rate, before.burst + burst)
        leases.holders[UNHEARD] = Holder(((state.next_epoch(), left),), inf)
        state.stir(name)
    if UNHEARD not in state.gateways:
        return []
    gateway = state.gateways[UNHEARD]
    return [put_broker(gateway.row), *put_grants(UNHEARD, grants(state, gateway))]


def _may_be_elsewhere(state: ControlState, topic: str) -> bool:
    """Was it placed by the copy that this store turned out to be? Then the better store may have
    placed it on brokers that were not heard."""
    history = state.topics[topic].history
    return state.former is not None and any(each.epoch <= state.opened for each in history)


def _had(gateway: Gateway, topic: str, leases: TopicLeases, now: float) -> Share:
    """What it had when the store was lost: as it told, or no more than it was told before."""
    if gateway.process is not None:
        return gateway.has.get(topic, NOTHING)
    return leases.holders[gateway.row.name].most(now)


def settled(state: ControlState, placements: Iterable[tuple[str, InForce]]) -> list[Statement]:
    """What is to be written once all have been heard."""
    statements = [put_epoch(state.epoch)]
    for name, placement in placements:
        statements += put_placement(placement.row(name), {})
    return [*statements, *put_lineage(known(state))]


def known(state: ControlState) -> LineageRow:
    """The lineage, once nothing is in doubt any more."""
    return LineageRow(state.lineage.id, state.lineage.secret, unsure=False)


def warnings(state: ControlState, now: float) -> list[str]:
    """What somebody should know and mend."""
    found = []
    if state.copied and now < state.sure_at:
        found.append(
            "the store was restored from a copy: nothing is granted or taken away for "
            f"{state.sure_at - now:.0f} s, while gateways tell what they hold"
        )
    if state.unsure:
        found.append(
            "the store was lost or is an older copy: nothing is granted or taken away for "
            f"{max(0.0, state.sure_at - now):.0f} s, while gateways tell what they hold"
        )
    found += [
        f"topic {name} is split as gateways held it when the store was lost; register its "
        f"publishers again, or restart srtm up, and place it: srtm placement apply {name}"
        for name, topic in sorted(state.topics.items())
        if topic.in_force and topic.in_force.policy == POLICY
    ]
    kept_back = sorted(state.gateways[UNHEARD].topics) if UNHEARD in state.gateways else []
    found += [
        f"topic {name}: {number(share.rate)} messages/s and {number(share.burst)} of its burst are "
        "kept back for gateways that were not heard after the store was lost; once none of them "
        f"runs: srtm broker forget {UNHEARD}"
        for name in kept_back
        if (share := state.leases[name].holders.get(UNHEARD, Holder()).last) != NOTHING
    ]
    found += [
        f"broker {name}: a gateway that lost the name {gateway.row.name.partition(FORMER)[0]} may "
        f"still hold a part of topic {some(sorted(gateway.topics))}, which is kept back; once it "
        f"has ended: srtm broker forget '{name}'"
        for name, gateway in sorted(state.gateways.items())
        if FORMER in name and name != UNHEARD and gateway.topics
    ]
    if state.lost and not state.unsure:  # else who knows it may not have been heard yet
        found.append(
            f"topic {some(sorted(state.lost))} had a contract in a store that was lost, and nobody "
            "knows it: no message of it gets through; register it again, or delete it"
        )
    return found


def _contract(held: HeldTopic) -> Contract:
    """Raises UsageError for a topic's name or an SLO that is none."""
    values = {
        "topic": held.topic,
        "rate": held.topic_rate,
        "burst": held.topic_burst,
        "mode": held.mode,
        "max_wait": held.max_wait,
        "slo": held.slo,
        "batch": held.batch,
        "batches": held.batches,
        "fair": held.fair,
        "lease_grace": held.lease_grace,
    }
    given = {key: value for key, value in values.items() if value is not None}
    return Contract.read(given, f"topic {held.topic}")


def _in_force(
    state: ControlState, topic: RegisteredTopic, has: dict[str, Share], at: float
) -> InForce:
    """The sum is no more than the contract, whatever gateways say."""
    rates = fsum(each.rate for each in has.values())
    bursts = fsum(each.burst for each in has.values())
    total = topic.contract
    by_rate = 1.0 if rates <= total.rate else total.rate / rates * _LESS
    by_burst = 1.0 if bursts <= total.burst else total.burst / bursts * _LESS
    return InForce(
        epoch=state.next_epoch(),
        at=at,
        policy=POLICY,
        brokers=tuple(
            ShareShown(
                name=name,
                rate=share.rate,  # of unknown publishers; a changed contract is split by these
                quota=0.0,
                publishers=sum(place == name for place in topic.places.values()),
                r=share.rate * by_rate,
                b=max(1.0, share.burst * by_burst),
            )
            for name, share in has.items()
        ),
        unplaced=0,
        unplaced_rate=0.0,
        reasons=("the store was lost or an older copy: these are the shares that gateways held",),
    )


_LESS = 1 - 1e-12
"""roundings of a sum of thousands"""
_A_MESSAGE = 0.999
"""the least burst of a floor, and roundings"""
