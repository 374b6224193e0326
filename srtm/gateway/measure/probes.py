"""Where probes are: on each topic with an SLO, while it has a channel of somebody else's."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

from srtm.errors import UnavailableError
from srtm.gateway.measure.matching import Deliveries
from srtm.gateway.measure.probe import CHANNEL, Probe
from srtm.gateway.nsqd import NsqdHttp
from srtm.gateway.reactor import Reactor
from srtm.gateway.topic import Topic
from srtm.gateway.topics import Topics
from srtm.gateway.tunnel import Tunnel
from srtm.gateway.upstream import NsqdAddress
from srtm.nsq.names import is_ephemeral

_ASKED_ONE_BY_ONE = 8
"""Topics with an SLO, each with a /stats of its own; more share one of all topics."""
_LEAVES_SECONDS = 0.5


class Probes:
    """The probes of one gateway, by topic."""

    def __init__(
        self,
        reactor: Reactor,
        address: NsqdAddress,
        http: NsqdHttp,
        deliveries: Deliveries,
        topics: Topics,
        max_msg_size: int,
    ) -> None:
        self._reactor = reactor
        self._address = address
        self._http = http
        self._deliveries = deliveries
        self._topics = topics
        self._max_msg_size = max_msg_size
        self._probes: dict[Topic, Probe] = {}
        self._changes = 0

    async def place(self) -> None:
        """Once a second, while nsqd answers."""
        self._probes = {topic: probe for topic, probe in self._probes.items() if not probe.closed}
        measured = [
            topic
            for topic in self._topics.by_name.values()
            if topic.limit is not None and topic.limit.slo is not None
        ]
        changes = self._changes
        try:
            if len(measured) <= _ASKED_ONE_BY_ONE:
                answers = [await self._http.stats(topic.name.decode()) for topic in measured]
            else:
                answers = [await self._http.stats()]
        except UnavailableError:
            return
        if self._changes != changes:
            return  # these answers may name a channel that has gone since
        others = {
            found["topic_name"].encode()
            for stats in answers
            for found in stats.get("topics") or []
            if any(channel["channel_name"] != CHANNEL for channel in found["channels"] or [])
        }
        for topic, probe in self._probes.items():
            if topic.limit is not None:
                probe.tick(topic.limit.rate)
        # A contract may have ended while nsqd answered.
        wanted = {topic for topic in measured if topic.limit and topic.name in others}
        for topic in wanted - self._probes.keys():
            with contextlib.suppress(OSError):
                self._probes[topic] = Probe(
                    self._reactor, self._address, topic, self._deliveries, self._max_msg_size
                )
        for topic in self._probes.keys() - wanted:
            self._probes[topic].leave()

    def leave_all(self) -> None:
        """nsqd is away or ill."""
        for probe in self._probes.values():
            probe.leave()

    def tunnel_closed(self, tunnel: Tunnel, connection: socket.socket) -> None:
        """Close a consumer's connection. An ephemeral channel may go with it: the probe goes
        before, since a topic keeps its messages for its next channel only while it has none."""
        if is_ephemeral(tunnel.channel):
            self._changes += 1
            probe = self._of(tunnel.topic)
            if probe is not None:
                probe.leave(connection.close)
                return
        connection.close()

    @contextlib.asynccontextmanager
    async def without(self, name: str) -> AsyncIterator[None]:
        """While a channel of this topic is deleted: the probe must not be the last one."""
        self._changes += 1
        probe = self._of(name.encode())
        if probe is not None:
            gone = asyncio.Event()
            probe.leave(gone.set)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(gone.wait(), _LEAVES_SECONDS)
            probe.close()
        try:
            yield
        finally:
            self._changes += 1

    def _of(self, name: bytes) -> Probe | None:
        topic = self._topics.by_name.get(name)
        return self._probes.get(topic) if topic is not None else None

    def close(self) -> None:
        for probe in self._probes.values():
            probe.close()
