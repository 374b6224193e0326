"""The share that one broker gets of each topic, by its report and the leases, as state changes."""

from collections.abc import Iterable, Mapping

from distributor.control.state import ControlState, Gateway, RegisteredTopic
from distributor.gateway_api import DesiredTopic, Report
from distributor.store import GrantRow
from tb_adaptor.leases import NOTHING, Holder, Share, TopicLeases
from tb_adaptor.turns import NONE, Waiting


def see(
    state: ControlState,
    gateway: Gateway,
    report: Report,
    now: float,
    may_claim: bool,
) -> None:
    """Which topics messages come to. may_claim: a broker without a share gets a floor for them"""
    name, reported = gateway.row.name, set()
    for each in report.topics:
        if each.topic in gateway.resting:
            if each.offered or each.backlog:
                gateway.busy_at[each.topic] = now
            continue
        if each.topic not in state.topics:
            continue
        reported.add(each.topic)
        if each.topic in gateway.topics or (may_claim and (each.waiting or each.debt)):
            gateway.topics.add(each.topic)
            waiting = Waiting(each.batch, each.waiting, each.debt)
            state.leases[each.topic].report(name, waiting, now)
        if not (each.offered or each.backlog):
            continue
        if each.topic in gateway.topics or may_claim:
            leases = state.leases[each.topic]
            leases.claim(name)
            if name in leases.claims:
                gateway.topics.add(each.topic)
            gateway.busy_at[each.topic] = now
    for topic in gateway.topics - gateway.resting - reported:
        if topic in state.leases:
            state.leases[topic].report(name, NONE, now)


def share_of(
    state: ControlState,
    gateway: Gateway,
    topic: str,
    now: float,
    applied: int,
    lease_seconds: float,
) -> tuple[Share, Iterable[str]]:
    """Its share of one topic, once its report is taken in (`applied` is the epoch that it has);
    and the publishers that may be sent there from now on."""
    name, leases = gateway.row.name, state.leases.setdefault(topic, TopicLeases())
    holder = leases.holders.get(name, Holder()).heard(now, applied)
    leases.holders[name] = holder
    leases.pass_turn(name, now)
    known = state.topics.get(topic)
    ready: list[str] = []
    if known and holder.acknowledged != NOTHING and holder.granted[0][0] <= applied:
        ready = known.acknowledge(name)
    if state.listens(now):
        return (gateway.has.get(topic, NOTHING) if known else NOTHING), ready
    busy = now < gateway.busy_at.get(topic, -lease_seconds) + lease_seconds
    awaited = known is not None and any(
        each not in known.ready for each in leases.targets
    )  # publishers are still to leave for a broker that has no share yet
    if known is None or not (busy or awaited):
        leases.claims.discard(name)
    return leases.share(name, now, keep_floor=name in leases.claims), ready


def waits(leases: TopicLeases | None, broker: str, share: Share, now: float) -> bool:
    """Does it wait for others to shrink, or is the whole contract passed round?"""
    if leases is None:
        return False
    if leases.turns.broker is not None:
        return True
    if broker in leases.targets:
        return share != leases.target(broker, now)
    return broker in leases.claims and share == NOTHING


def desired_topic(
    topic: RegisteredTopic, share: Share, arrivals: bool, publishers: bool = False
) -> DesiredTopic:
    """arrivals: the broker is to report when messages came; publishers: who sent them"""
    contract = topic.contract
    document = contract.document()
    return DesiredTopic(
        topic=contract.topic,
        rate=share.rate,
        burst=share.burst,
        mode=contract.mode,
        max_wait=document.get("max-wait"),
        slo=document.get("slo"),
        batch=share.least,
        batches=contract.batches,
        fair=contract.fair,
        lease_grace=share.grace or None,
        safe_rate=share.floor.rate,
        safe_burst=share.floor.burst,
        arrivals=arrivals or topic.is_fitted,
        publishers=publishers,
        emptied=topic.emptied,
        topic_rate=contract.rate,
        topic_burst=contract.burst,
    )


def suspended(state: ControlState, gateway: Gateway, shares: Mapping[str, Share]) -> list[str]:
    """Topics of which it has nothing for the moment: it is another broker's turn to have all, or
    others have still to make room for its share. Its messages wait."""
    name = gateway.row.name
    return [
        topic
        for topic, share in sorted(shares.items())
        if share == NOTHING
        and topic in state.topics
        and (
            name in state.leases[topic].targets
            or state.leases[topic].turns.broker not in (None, name)
        )
    ]


def let_go(state: ControlState, gateway: Gateway, topics: Iterable[str]) -> None:
    """A topic is none of its any more once it holds nothing of it and is to have nothing."""
    name = gateway.row.name
    for topic in topics:
        leases = state.leases[topic]
        holder = leases.holders[name]
        turns = leases.turns
        is_to_have = name in (
            leases.targets.keys() | leases.claims | turns.waiting.keys() | turns.before.keys()
        )
        if not is_to_have and holder.settled and holder.last == NOTHING:
            del leases.holders[name]
            gateway.topics.discard(topic)
            gateway.busy_at.pop(topic, None)
            if topic in state.topics:
                state.topics[topic].ready.discard(name)
            elif not leases.holders:
                del state.leases[topic]


def grants(state: ControlState, gateway: Gateway) -> list[GrantRow]:
    """All that the gateway may hold, as it is stored."""
    name = gateway.row.name
    return [
        GrantRow(topic, name, epoch, share.rate, share.burst, share.least, share.grace)
        for topic in sorted(gateway.topics)
        if topic in state.leases
        for epoch, share in state.leases[topic].holders.get(name, Holder()).granted
        if epoch
    ]
