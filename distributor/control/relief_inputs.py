"""Between the service's state and the pure decision of who leaves a broker in trouble."""

from math import floor, fsum

from distributor.control.service import Distributor
from distributor.control.state import FORMER, Gateway, Topic
from distributor.migration import Decision, Sender, Source, Target, TopicSeen, relieve


def decided(service: Distributor, broker: str, now: float) -> Decision:
    """State stands still meanwhile: the lock is held."""
    troubles = service.troubles
    measured, carried = troubles.senders(broker) or {}, troubles.carried()
    topics = {name: _seen(service.state.topics[name], broker)
              for name in troubles.topics_at(broker) if troubles.may_move(name)}  # fmt: skip
    senders, unknown = [], dict[str, float]()
    for name, rates in measured.items():
        if name not in topics:
            continue
        topic = service.state.topics[name]
        for id_, rate in rates.items():
            if topic.places.get(id_) == broker:
                key = topic.publishers[id_][0]
                senders.append(Sender(name, id_, key, rate * carried.get(name, 1.0)))
            else:
                who = id_ or "nameless ones"
                unknown[who] = unknown.get(who, 0.0) + rate * carried.get(name, 1.0)
    source = Source(broker, troubles.ill[broker], tuple(senders), unknown)
    targets = [
        _target(service, gateway, broker, carried, now)
        for name, gateway in sorted(service.state.gateways.items())
        if name != broker and FORMER not in name
    ]
    return relieve(source, targets, topics, troubles.memory, now)


def _seen(topic: Topic, broker: str) -> TopicSeen:
    assert topic.in_force is not None
    keys = {topic.publishers[each][0] for each, at in topic.places.items() if at == broker}
    groups: dict[str, dict[str, float]] = {key: {} for key in keys if key}
    for publisher, at in topic.places.items():
        key, rate = topic.publishers[publisher]
        if key in groups:
            groups[key][at] = groups[key].get(at, 0.0) + rate
    return TopicSeen(
        topic.contract.topic,
        frozenset(each.name for each in topic.in_force.brokers),
        floor(topic.contract.burst),
        len(topic.publishers),
        groups,
        topic.migration.mode == "auto",
    )


def _target(
    service: Distributor, gateway: Gateway, source: str, carried: dict[str, float], now: float
) -> Target:
    troubles, name = service.troubles, gateway.row.name
    state = gateway.state(now, service.lease_seconds)
    why = ""
    if state != "up":
        why = "is lost" if state == "lost" else "is drained"
    elif not gateway.row.capacity:
        why = f"has no known capacity: srtm broker capacity {name} --slo SLO --set measures it"
    elif name in troubles.ill:
        why = "is in trouble itself"
    elif not troubles.is_fresh(name, now):
        why = "has not reported for a whole window since publishers came or went"
    loads = troubles.loads(name)
    came = fsum(rate * carried.get(topic, 1.0) for topic, rate in loads.items())
    load = max(came, service.state.allocated(name)) + troubles.reserved(name, source)
    return Target(name, gateway.row.capacity, load, why)
