"""A route from an NSQ channel to a Kafka topic.

One thread: messages are read, produced, reported and finished in turns, without a lock. FIN follows
Kafka's report, so what this process holds when it dies is still nsqd's.
"""

import selectors
import socket
import time
from functools import partial
from typing import Any

from srtm.bridge.deliveries import Deliveries
from srtm.bridge.figures import State
from srtm.bridge.file import KafkaTable, Route
from srtm.bridge.hosts import Hosts
from srtm.bridge.kafka_sink import KafkaSink
from srtm.bridge.lookup import Lookup
from srtm.bridge.nsq_source import Link
from srtm.bridge.runner import Runner
from srtm.bridge.wire import Broken

_TICK_SECONDS = 0.2
_TIGHT_SLO_SECONDS = 0.1
_IDLE_SECONDS = 0.2
_REPORT_SECONDS = 0.001
"""A wait for Kafka's reports while messages are out: nsqd's next message waits as long at most."""
_SLOW_REPORT_SECONDS = 0.02  # while Kafka reports nothing
_SLOW_TURNS = 200


class NsqToKafka(Runner):
    """One channel of one topic, at all of its nsqds."""

    def __init__(
        self, route: Route, kafka: KafkaTable, bridge: str, drain_seconds: float, topic: str = ""
    ) -> None:
        super().__init__(route, kafka, bridge, drain_seconds)
        self.topic = topic or route.source.topic
        self.target = route.target.of(self.topic)
        self._hosts: Hosts | None = None

    @property
    def label(self) -> str:
        """A pattern has many of one name."""
        name = self.route.name
        return f"{name} ({self.topic})" if self.route.source.is_pattern else name

    def document(self) -> dict[str, Any]:
        hosts = self._hosts.document() if self._hosts else {}
        return {**super().document(), "topic": self.topic, "nsqd": hosts}

    def leg(self) -> dict[str, Any]:
        """What journeys are told of the route, which has one leg of theirs."""
        slo = self.route.slo
        return {
            "leg": "bridge",
            "topic": self.topic,
            "channel": self.route.source.channel,
            "kafka_topic": self.target,
            "slo": None if slo is None else str(slo),
        }

    # --- the thread -----------------------------------------------------------------------------

    def work(self) -> None:
        route = self.route
        sink = KafkaSink(
            self.kafka,
            f"{self.bridge}-{route.name}",
            linger_ms=route.linger_ms,
            max_messages=route.max_in_flight,
            max_msg_size=route.max_msg_size,
        )
        with selectors.DefaultSelector() as selector:
            hosts = Hosts(
                route.nsqd,
                self.topic,
                route.source.channel,
                self._identity(),
                route.features(),
                self.figures,
                selector,
            )
            deliveries = Deliveries(self, self.topic, self.target, sink)
            self._hosts = hosts
            lookup = Lookup(route.lookupd, self.topic) if route.lookupd else None
            try:
                if self._reach_kafka(sink):
                    self._turns(selector, hosts, deliveries, lookup)
            finally:
                if lookup:
                    lookup.close()
                hosts.close()
        if deliveries.stop is not None:
            raise deliveries.stop

    def _identity(self) -> dict[str, Any]:
        # What a bridge held that was killed comes again after this time: nsqd waits for it even
        # when the connection is gone. TOUCH keeps what waits for Kafka.
        identity: dict[str, Any] = {
            "hostname": socket.gethostname(),
            "client_id": self.bridge,
            "msg_timeout": int(self.route.msg_timeout * 1000),
        }
        if self.route.slo and self.route.slo.target_seconds < _TIGHT_SLO_SECONDS:
            return {**identity, "output_buffer_size": -1}
        # nsqd's own 250 ms would be most of the latency; 25 ms is the least that it takes.
        return {**identity, "output_buffer_size": 65_536, "output_buffer_timeout": 25}

    def _reach_kafka(self, sink: KafkaSink) -> bool:
        """Wait until Kafka is reached, before the first message is taken: it would only wait here
        instead of in nsqd. False when the route is to end."""
        while why := sink.reached():
            self.said(why)
            if self.stopping.wait(1):
                return False
        sink.fit_batches(self.target)
        return True

    def _turns(
        self,
        selector: selectors.BaseSelector,
        hosts: Hosts,
        deliveries: Deliveries,
        lookup: Lookup | None,
    ) -> None:
        idle_turns = 0
        tick_at = drain_until = 0.0
        while True:
            now = deliveries.now = time.monotonic()
            waiting = self.figures.in_flight
            for key, events in selector.select(0 if waiting else _IDLE_SECONDS):
                link: Link = key.data
                try:
                    if events & selectors.EVENT_WRITE:
                        link.flush()
                    if events & selectors.EVENT_READ:
                        link.read(partial(link.host.frames, take=deliveries.take, now=now))
                except Broken as error:
                    link.host.broken(str(error), now)
                idle_turns = 0
            if waiting or self.figures.in_flight:
                slow = idle_turns > _SLOW_TURNS
                wait = (_SLOW_REPORT_SECONDS if slow else _REPORT_SECONDS) if idle_turns else 0
                idle_turns = 0 if deliveries.poll(wait) else idle_turns + 1
            hosts.finish(now)
            if now >= tick_at:
                tick_at = now + _TICK_SECONDS
                self._tick(now, hosts, deliveries, lookup)
                if self.figures.in_flight == 0:
                    deliveries.poll(0)
            if self.stopping.is_set() or deliveries.stop:
                if not drain_until:
                    drain_until = now + self.drain_seconds
                    if not deliveries.stop:
                        self.figures.state = State.DRAINING
                if not self.figures.in_flight or now > drain_until:
                    hosts.leave(now)
                    return

    # --- time -----------------------------------------------------------------------------------

    def _tick(
        self, now: float, hosts: Hosts, deliveries: Deliveries, lookup: Lookup | None
    ) -> None:
        deliveries.tick()
        if lookup:
            hosts.follow(lookup.found)
        hosts.tick(now)
        self._share_ready(now, hosts, deliveries)
        self.figures.in_flight_bytes = deliveries.bytes
        if deliveries.failures or deliveries.letters.refused:
            return  # they have told
        if deliveries.unanswered:
            self.said(deliveries.unanswered)
        else:
            self._tell(hosts, lookup)

    def _share_ready(self, now: float, hosts: Hosts, deliveries: Deliveries) -> None:
        """RDY by messages and by bytes; reading stops at the bound, whatever nsqd still sends."""
        most_bytes = self.route.max_in_flight_bytes
        full = deliveries.bytes >= most_bytes
        total = max(min(self.route.max_in_flight, most_bytes // deliveries.take_largest()), 1)
        over = self.stopping.is_set() or deliveries.stop is not None
        # After a failure one message tries whether Kafka takes it now.
        hosts.share_ready(
            total,
            shut=over or full or now < deliveries.retry_at,
            trial=deliveries.failures > 0,
            full=full,
            now=now,
        )

    def _tell(self, hosts: Hosts, lookup: Lookup | None) -> None:
        """Whether it runs, and what it waits for."""
        if hosts.subscribed:
            self.goes_on()
        elif len(hosts):
            if hosts.reason or self.figures.state is not State.STARTING:
                self.said(hosts.reason or "connecting to nsqd")
        elif lookup:
            self.said(lookup.reason or f"no nsqd has topic {self.topic} yet")
