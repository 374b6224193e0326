"""What /stats of an nsqd or a gateway says of one channel. Pure; the answer is not trusted."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_MOST_CLIENTS = 10_000
_MOST = 2**63


@dataclass(frozen=True, slots=True)
class ClientSeen:
    """One connection. name: `client_id` at `hostname`; finished: its FINs, since it connected;
    in_flight: messages that it has now"""

    name: str
    client_id: str
    finished: int
    in_flight: int = 0


@dataclass(frozen=True, slots=True)
class ChannelSeen:
    """A channel at one broker.

    started: when its nsqd did; its counters begin at 0 with it
    entered: messages that came to the channel since then, however often they were requeued
    depth, in_flight, deferred: of those, what nobody has finished
    paused:  it gives nothing to anybody
    """

    started: int
    entered: int = 0
    depth: int = 0
    in_flight: int = 0
    deferred: int = 0
    paused: bool = False
    clients: tuple[ClientSeen, ...] = ()

    @property
    def backlog(self) -> int:
        return self.depth + self.in_flight + self.deferred


def channel_seen(document: object, topic: str, channel: str) -> ChannelSeen:
    """Raises ValueError. A topic without channels keeps its messages for the first one."""
    if not isinstance(document, dict):
        raise ValueError("it is no object")
    if "srtm" in document and isinstance(document["srtm"], dict):
        away = document["srtm"].get("nsqd_away")
        if away:
            raise ValueError(f"its nsqd is away: {str(away)[:200]}")
    started = _count(document, "start_time")
    found = _named(document.get("topics"), "topic_name", topic)
    if found is None:
        return ChannelSeen(started)
    here = _named(found.get("channels"), "channel_name", channel)
    if here is None:
        waiting = 0 if found.get("channels") else _count(found, "depth")
        return ChannelSeen(started, waiting, waiting, paused=bool(found.get("paused")))
    return ChannelSeen(
        started=started,
        entered=_count(here, "message_count"),
        depth=_count(here, "depth"),
        in_flight=_count(here, "in_flight_count"),
        deferred=_count(here, "deferred_count"),
        paused=bool(here.get("paused")),
        clients=_clients(here.get("clients")),
    )


def _named(found: object, key: str, name: str) -> Mapping[str, Any] | None:
    if found is None:
        return None
    if not isinstance(found, list):
        raise ValueError(f"what has {key} is no list")
    return next((each for each in found if isinstance(each, dict) and each.get(key) == name), None)


def _count(found: Mapping[str, Any], key: str) -> int:
    value = found.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MOST:
        raise ValueError(f"{key} is {str(value)[:40]!r}, no count")
    return value


def _clients(found: object) -> tuple[ClientSeen, ...]:
    if not isinstance(found, list):
        return ()
    clients = []
    for each in found[:_MOST_CLIENTS]:
        if isinstance(each, dict):
            id_ = str(each.get("client_id", ""))[:200]
            name = f"{id_}@{str(each.get('hostname', ''))[:200]}"
            counts = _count(each, "finish_count"), _count(each, "in_flight_count")
            clients.append(ClientSeen(name, id_, *counts))
    return tuple(clients)
