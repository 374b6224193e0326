"""The keys of publishers that a gateway has to know: of topics that are fair over keys.

A gateway says which version it has, by topic, and is told where that is another one. It needs the
keys of the publishers that are placed there; any other is for itself.
"""

import json
from collections.abc import Iterable, Mapping
from hashlib import sha256

from distributor.control.state import ControlState, Gateway, RegisteredTopic
from distributor.gateway_api import DesiredTopic, TopicKeys
from srtm.limits.contract import Fair

MOST_KEYS = 10_000
"""publishers of one topic on one broker; those that come later by id are each for themselves. They
are 1 MB, which a gateway reads in some milliseconds."""


def keyed(document: Iterable[DesiredTopic]) -> tuple[str, ...]:
    """The topics that are fair over keys, of those that a gateway is told."""
    return tuple(each.topic for each in document if each.fair is Fair.KEY)


def changed(state: ControlState, gateway: Gateway, has: Mapping[str, str]) -> list[TopicKeys]:
    """What the gateway is told. has: topic -> version that it has"""
    topics = (state.topics.get(name) for name in gateway.keyed)
    found = [_keys_at(each, gateway.row.name) for each in topics if each is not None]
    return [each for each in found if has.get(each.topic) != each.version]


def _keys_at(topic: RegisteredTopic, broker: str) -> TopicKeys:
    name = topic.contract.topic
    if topic.told_keys is None:
        topic.told_keys = _by_broker(topic)
    return topic.told_keys.get(broker) or _told(name, {})


def _by_broker(topic: RegisteredTopic) -> dict[str, TopicKeys]:
    """All brokers in one go: 100,000 publishers take 50 ms."""
    found: dict[str, dict[str, str]] = {}
    for publisher, broker in topic.places.items():
        key = topic.publishers[publisher][0]
        if key:
            found.setdefault(broker, {})[publisher] = key
    return {broker: _told(topic.contract.topic, keys) for broker, keys in found.items()}


def _told(topic: str, keys: Mapping[str, str]) -> TopicKeys:
    pairs = sorted(keys.items())[:MOST_KEYS]
    version = sha256(json.dumps(pairs).encode()).hexdigest()[:16]
    return TopicKeys(topic=topic, version=version, publishers=pairs)
