"""Translation of the service's state for the pure decision of who leaves a broker in trouble."""

from collections.abc import Iterable, Mapping
from math import fsum

from distributor.control.service import Distributor
from distributor.control.state import FORMER, Gateway, RegisteredTopic
from distributor.migration import Sender, Source, Target, TopicSeen

Inputs = tuple[Source, list[Target], dict[str, TopicSeen]]
_SHOWN = 80
"""characters of a name that a client gave"""


def inputs(service: Distributor, broker: str, now: float) -> Inputs:
    """Copies, so that the decision can be made beside the event loop, while brokers report."""
    troubles = service.troubles
    measured, carried = troubles.senders(broker) or {}, troubles.carried()
    names = [name for name in troubles.topics_at(broker) if troubles.may_move(name)]
    topics = {
        name: _seen(service.state.topics[name], broker, measured.get(name, {})) for name in names
    }
    senders, unknown = [], dict[str, float]()
    for name, rates in measured.items():
        if name not in topics:
            continue
        topic = service.state.topics[name]
        keys = topic.keys_of("both")
        for id_, rate in rates.items():
            if topic.places.get(id_) == broker:
                senders.append(Sender(name, id_, keys[id_], rate * carried.get(name, 1.0)))
            else:
                who = _printable(id_) or "nameless ones"
                unknown[who] = unknown.get(who, 0.0) + rate * carried.get(name, 1.0)
    source = Source(broker, troubles.ill[broker], tuple(senders), unknown)
    declared = service.state.allocated()
    targets = [
        _target(service, gateway, broker, carried, declared, now)
        for name, gateway in sorted(service.state.gateways.items())
        if name != broker and FORMER not in name
    ]
    return source, targets, topics


def _printable(name: str) -> str:
    """Strangers choose it, and it goes to somebody's terminal."""
    return "".join(each if each.isprintable() else "?" for each in name[:_SHOWN])


def _seen(topic: RegisteredTopic, broker: str, who: Iterable[str]) -> TopicSeen:
    """who: may move; the groups of these are counted"""
    assert topic.in_force is not None
    keys = topic.keys_of("both")
    of_who = {keys[each] for each in who if topic.places.get(each) == broker}
    groups: dict[str, dict[str, float]] = {key: {} for key in of_who if key}
    for publisher, at in topic.places.items() if groups else ():
        key, rate = keys[publisher], topic.publishers[publisher][1]
        if key in groups:
            groups[key][at] = groups[key].get(at, 0.0) + rate
    return TopicSeen(
        topic.contract.topic,
        frozenset(each.name for each in topic.in_force.brokers),
        int(topic.contract.burst // topic.contract.least_burst),
        len(topic.publishers),
        groups,
        topic.migration.mode == "auto",
    )


def _target(
    service: Distributor,
    gateway: Gateway,
    source: str,
    carried: Mapping[str, float],
    declared: Mapping[str, float],
    now: float,
) -> Target:
    """carried: `Troubles.carried`; declared: `ControlState.allocated`"""
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
    load = max(came, declared.get(name, 0.0)) + troubles.reserved(name, source)
    return Target(name, gateway.row.capacity, load, why)
