"""A route from an NSQ channel to a Kafka topic.

One thread: messages are read, produced, reported and finished in turns, without a lock. FIN follows
Kafka's report, so what this process holds when it dies is still nsqd's.
"""

import logging
import selectors
import socket
import time
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from srtm.backoff import backoff_seconds
from srtm.bridge.figures import State
from srtm.bridge.file import KafkaTable, Route
from srtm.bridge.kafka_sink import POISON, KafkaSink, told
from srtm.bridge.lookup import Lookup
from srtm.bridge.nsq_source import Host, Link, Waiting
from srtm.bridge.pointer import NoKey, pointer
from srtm.bridge.runner import Runner, Stopped
from srtm.bridge.wire import Broken

log = logging.getLogger("srtm.bridge")

_TICK_SECONDS = 0.2
_IDLE_SECONDS = 0.2
_REPORT_SECONDS = 0.001
"""A wait for Kafka's reports while messages are out: nsqd's next message waits as long at most."""
_SLOW_REPORT_SECONDS = 0.02  # while Kafka reports nothing
_SLOW_TURNS = 200
_MAX_BACKOFF_SECONDS = 5.0
_TIGHT_SLO_SECONDS = 0.1
_LEAVE_SECONDS = 2.0


class NsqToKafka(Runner):
    """One channel of one topic, at all of its nsqds."""

    def __init__(
        self, route: Route, kafka: KafkaTable, bridge: str, drain_seconds: float, topic: str = ""
    ) -> None:
        super().__init__(route, kafka, bridge, drain_seconds)
        self.topic = topic or route.source.topic
        self.target = route.target.of(self.topic)
        self._key_of = pointer(route.key) if route.key else None
        self._dead = route.dead_letter.of(self.topic) if route.dead_letter else ""
        # Of the messages since the last tick, and between the two before. Nothing is known at
        # first, so as many may come as of nsqd's largest.
        self._largest = 0
        self._largest_before = 1 << 20
        self._bytes = 0
        self._hosts: dict[str, Host] = {}
        self._reports: list[tuple[Waiting, Any, Any]] = []
        self._retry_at = 0.0
        self._failures = 0
        self._stop: Stopped | None = None
        self._refit = False
        self._now = 0.0

    def document(self) -> dict[str, Any]:
        hosts = list(self._hosts.values())
        return {
            **super().document(),
            "topic": self.topic,
            "nsqd": {host.address: host.reason or "subscribed" for host in hosts},
        }

    # --- the thread -----------------------------------------------------------------------------

    def work(self) -> None:
        route = self.route
        self._selector = selectors.DefaultSelector()
        self._hosts.clear()
        self._reports.clear()
        self._bytes = 0
        self._sink = KafkaSink(
            self.kafka,
            f"{self.bridge}-{route.name}",
            linger_ms=route.linger_ms,
            max_messages=route.max_in_flight,
            max_msg_size=route.max_msg_size,
        )
        lookup = Lookup(route.lookupd, self.topic) if route.lookupd else None
        for address in route.nsqd:
            self._add(address)
        if not self._reach_kafka(lookup):
            return
        try:
            self._turns(lookup)
        finally:
            if lookup:
                lookup.close()
            for host in self._hosts.values():
                if host.link is not None:
                    host.link.close()
                    host.link = None
            self._selector.close()
        if self._stop is not None:
            raise self._stop

    def _reach_kafka(self, lookup: Lookup | None) -> bool:
        """Before the first message is taken: it would only wait here instead of in nsqd."""
        while why := self._sink.reached():
            self.said(f"Kafka at {self.kafka.bootstrap_servers} does not answer: {why}")
            if self.stopping.wait(1):
                if lookup:
                    lookup.close()
                return False
        self._sink.fit_batches(self.target)
        return True

    def _turns(self, lookup: Lookup | None) -> None:
        idle_turns = 0
        tick_at = drain_until = 0.0
        select, flush = self._selector.select, self._finish
        while True:
            now = self._now = time.monotonic()
            waiting = self.figures.in_flight
            for key, events in select(0 if waiting else _IDLE_SECONDS):
                link: Link = key.data
                try:
                    if events & selectors.EVENT_WRITE:
                        link.flush()
                    if events & selectors.EVENT_READ:
                        link.read(self._frames_of(link))
                except Broken as error:
                    link.host.broken(str(error), now)
                idle_turns = 0
            if waiting or self.figures.in_flight:
                slow = idle_turns > _SLOW_TURNS
                wait = (_SLOW_REPORT_SECONDS if slow else _REPORT_SECONDS) if idle_turns else 0
                idle_turns += 1
                self._sink.poll(wait)
                if self._reports:
                    self._take_reports()
                    idle_turns = 0
            flush()
            if now >= tick_at:
                tick_at = now + _TICK_SECONDS
                self._tick(now, lookup)
                if self.figures.in_flight == 0:
                    self._sink.poll(0)
            if self.stopping.is_set() or self._stop:
                if not drain_until:
                    drain_until = now + self.drain_seconds
                    if not self._stop:
                        self.figures.state = State.DRAINING
                if not self.figures.in_flight or now > drain_until:
                    self._leave()
                    return

    def _add(self, address: str) -> None:
        if address in self._hosts:
            self._hosts[address].listed = True
            return
        name = socket.gethostname()
        # What a bridge held that was killed comes again after this time: nsqd waits for it even
        # when the connection is gone. TOUCH keeps what waits for Kafka.
        timeout_ms = int(self.route.msg_timeout * 1000)
        identity: dict[str, Any] = {"hostname": name, "msg_timeout": timeout_ms}
        identity["client_id"] = self.bridge
        if self.route.slo and self.route.slo.target_seconds < _TIGHT_SLO_SECONDS:
            identity["output_buffer_size"] = -1
        else:
            # nsqd's own 250 ms would be most of the latency; 25 ms is the least that it takes.
            identity |= {"output_buffer_size": 65_536, "output_buffer_timeout": 25}
        self._hosts[address] = Host(
            address,
            self.topic,
            self.route.source.channel,
            identity,
            self.figures,
            self._selector,
        )

    # --- messages -------------------------------------------------------------------------------

    def _frames_of(self, link: Link) -> Any:
        host, now, take = link.host, self._now, self._take
        return lambda raw, ends: host.frames(raw, ends, take, now)

    def _take(
        self, host: Host, link: Link, time_ns: int, attempts: int, id: bytes, body: bytes
    ) -> None:
        """One message to Kafka."""
        size = len(body)
        waiting = Waiting(host, link, id, attempts, time_ns, size, self._now, self._reports)
        host.waiting[id] = waiting
        figures = self.figures
        figures.in_flight += 1
        self._bytes += size
        if size > self._largest:
            self._largest = size
        try:
            key = self._key_of(body) if self._key_of is not None else None
            self._sink.produce(
                self.target,
                body,
                key,
                headers=[
                    ("nsq-host", host.address),
                    ("nsq-topic", self.topic),
                    ("nsq-message-id", id),
                    ("nsq-attempts", b"%d" % attempts),
                    ("nsq-time", b"%d" % time_ns),
                ],
                on_delivery=waiting,
            )
        except NoKey as error:
            self._bury(waiting, body, str(error))
        except KafkaException as error:
            self._refused(waiting, error.args[0], body)
        except BufferError:
            self._give_back(waiting)

    def _take_reports(self) -> None:
        reports = self._reports
        counts = self.figures.counts
        wall = time.time_ns()
        latencies: list[int] = []
        delivered = dead = 0
        for waiting, error, message in reports:
            if error is not None:
                self._refused(waiting, error, message.value() if message is not None else None)
                continue
            self.figures.in_flight -= 1
            self._bytes -= waiting.size
            waiting.host.delivered(waiting)
            if waiting.dead:
                dead += 1
            else:
                delivered += 1
                latencies.append(max(wall - waiting.time_ns, 0))
        reports.clear()
        counts["delivered_count"] += delivered
        counts["dead_letter_count"] += dead
        if latencies:
            self.figures.measured(latencies, [1] * len(latencies))
        if (delivered or dead) and self._failures:
            self._failures = 0
            self._retry_at = 0.0
        if delivered or dead:
            self.goes_on()

    def _refused(self, waiting: Waiting, error: Any, body: bytes | None) -> None:
        """Kafka's word against one message."""
        topic = self._dead if waiting.dead else self.target
        if (
            error.code() == KafkaError.MSG_SIZE_TOO_LARGE
            and not waiting.dead
            and waiting.size <= self._sink.limit(self.target, anew=not self._refit)
        ):
            # The topic refuses a batch as a whole, also for what would pass alone.
            self._refit = True
            self._give_back(waiting)
            return
        if error.code() in POISON and body is not None:
            if not waiting.dead:
                self._bury(waiting, body, told(error))
            elif waiting.size > 0:
                # Not even cut to what the topic says that it takes: shorter still.
                self._bury(waiting, body, told(error), cut=True)
            return
        self._give_back(waiting)
        if error.code() == KafkaError._FATAL or self._sink.fatal:
            return
        if error.code() == KafkaError._PURGE_QUEUE:
            return
        self._retry_at = self._now + backoff_seconds(self._failures, 1.0, _MAX_BACKOFF_SECONDS)
        self._failures += 1
        self.said(f"Kafka's topic {topic}: {told(error)}")

    def _give_back(self, waiting: Waiting) -> None:
        self.figures.in_flight -= 1
        self._bytes -= waiting.size
        try:
            waiting.host.requeue(waiting)
        except Broken as error:
            waiting.host.broken(str(error), self._now)

    def _bury(self, waiting: Waiting, body: bytes, reason: str, cut: bool = False) -> None:
        """To the dead-letter topic; a route without one stops."""
        if not self._dead:
            if self._stop is None:
                self._stop = Stopped(
                    f"message {waiting.id.decode()} of {self.route.source} cannot go to "
                    f'{self.route.target}: {reason}; give the route dead-letter = "kafka:TOPIC"'
                )
            self._give_back(waiting)
            return
        waiting.dead = True
        headers: dict[str, bytes | str] = {
            "nsq-host": waiting.host.address,
            "nsq-topic": self.topic,
            "nsq-message-id": waiting.id,
            "nsq-attempts": str(waiting.attempts),
            "nsq-time": str(waiting.time_ns),
        }
        try:
            if self._sink.dead_letter(self._dead, body, None, headers, reason, waiting, cut):
                self.figures.counts["cut_count"] += 1
        except (KafkaException, BufferError) as error:
            log.warning("route %s: dead letter: %s", self.route.name, error)
            self._give_back(waiting)

    def _finish(self) -> None:
        for host in self._hosts.values():
            if host.link is not None and host.link.finished:
                try:
                    host.link.finish()
                except Broken as error:
                    host.broken(str(error), self._now)

    # --- time -----------------------------------------------------------------------------------

    def _tick(self, now: float, lookup: Lookup | None) -> None:
        if self._sink.fatal:
            self._sink.renew(self._sink.fatal)
        if self._refit:
            self._refit = False
            self._sink.fit_batches(self.target)
        self._take_reports()
        if lookup:
            self._follow(lookup)
        for host in list(self._hosts.values()):
            try:
                host.connect(now)
                if host.link is not None:
                    host.link.beat(now)
                    host.touch(now)
            except Broken as error:
                host.broken(str(error), now)
            if not host.listed and host.link is None and not host.waiting:
                del self._hosts[host.address]
        self._share_ready(now)
        self.figures.in_flight_bytes = self._bytes
        self._tell(lookup)

    def _follow(self, lookup: Lookup) -> None:
        """nsqds that nsqlookupd names; one that it names no more stays until it breaks."""
        found = lookup.found
        if found is None:
            return
        for address in found:
            self._add(address)
        for host in self._hosts.values():
            host.listed = host.address in found

    def _share_ready(self, now: float) -> None:
        """RDY by messages and by bytes; reading stops at the bound, whatever nsqd still sends."""
        joined = [host for host in self._hosts.values() if host.subscribed]
        full = self._bytes >= self.route.max_in_flight_bytes
        by_bytes = self.route.max_in_flight_bytes // max(self._largest, self._largest_before)
        if self._largest:
            self._largest_before, self._largest = self._largest, 0
        total = max(min(self.route.max_in_flight, by_bytes), 1)
        for number, host in enumerate(joined):
            link = host.link
            assert link is not None
            ready = min(max(total // len(joined), 1), link.max_rdy)
            if self.stopping.is_set() or self._stop or full or now < self._retry_at:
                ready = 0
            elif self._failures:
                ready = 1 if number == 0 else 0  # one message tries whether Kafka takes it now
            try:
                link.set_rdy(ready)
                link.pause(full)
            except Broken as error:
                host.broken(str(error), now)

    def _tell(self, lookup: Lookup | None) -> None:
        """Whether it runs, and what it waits for."""
        if self._failures:
            return
        if any(host.subscribed for host in self._hosts.values()):
            self.goes_on()
        elif self._hosts:
            self.said(next(iter(self._hosts.values())).reason or "connecting to nsqd")
        elif lookup:
            self.said(lookup.reason or f"no nsqd has topic {self.topic} yet")

    def _leave(self) -> None:
        """Each FIN reaches nsqd before the connection ends."""
        self._finish()
        for host in self._hosts.values():
            try:
                host.leave()
            except Broken as error:
                host.broken(str(error), self._now)
        until = time.monotonic() + _LEAVE_SECONDS
        while time.monotonic() < until:
            links = [each.link for each in self._hosts.values() if each.subscribed]
            if all(link is None or link.left for link in links):
                break
            for key, events in self._selector.select(0.1):
                link = key.data
                try:
                    if events & selectors.EVENT_WRITE:
                        link.flush()
                    if events & selectors.EVENT_READ:
                        link.read(lambda raw, ends: _answers(raw, ends))
                except Broken as error:
                    link.host.broken(str(error), self._now)


def _answers(raw: bytes, ends: list[int]) -> list[tuple[int, bytes]]:
    """Frames that are no messages: those go back to nsqd by themselves."""
    starts = [0, *ends[:-1]]
    return [
        (raw[start + 7], raw[start + 8 : end])
        for start, end in zip(starts, ends, strict=True)
        if raw[start + 7] != 2
    ]
