"""The gateway to which each publisher connects."""

from heapq import nsmallest

from distributor.api import Place, Publishers
from distributor.api_fields import MAX_LISTED
from distributor.control.state import ControlState
from distributor.errors import NotFound


def place_of(state: ControlState, name: str, publisher: str) -> Place:
    """The place of a publisher of any id: one that nobody registered has no rate and no broker."""
    topic = state.topics.get(name)
    if topic is None or publisher not in topic.publishers:
        return Place(id=publisher, key=None, rate=None, broker=None, tcp_address=None, epoch=0)
    key, rate = topic.publishers[publisher]
    broker, epoch = topic.shown.get(publisher, (None, 0))
    gateway = state.gateways.get(broker) if broker else None
    address = gateway.row.tcp_address if gateway else None
    return Place(id=publisher, key=key, rate=rate, broker=broker, tcp_address=address, epoch=epoch)


def where(state: ControlState, name: str, publisher: str) -> Place:
    """Raises NotFound."""
    if publisher not in state.topic(name).publishers:
        raise NotFound(
            f"topic {name} has no publisher {publisher}; srtm topic publishers {name} shows those "
            f"that it has, srtm topic add {name} {publisher} --rate R adds it"
        )
    return place_of(state, name, publisher)


def listed(state: ControlState, name: str, after: str) -> Publishers:
    """The next of them behind the id `after`. Raises NotFound."""
    behind = (each for each in state.topic(name).publishers if each > after)
    found = nsmallest(MAX_LISTED + 1, behind)
    return Publishers(
        publishers=[place_of(state, name, each) for each in found[:MAX_LISTED]],
        next=found[MAX_LISTED - 1] if len(found) > MAX_LISTED else None,
    )
