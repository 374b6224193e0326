"""A route from a Kafka topic to an NSQ topic.

One thread: records are taken, published and answered in turns, without a lock. Offsets follow
nsqd's OK, so what this process holds when it dies is read again.
"""

import selectors
import time
from collections import Counter
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message

from srtm.bridge.batches import Batches, Limits
from srtm.bridge.dead_records import DeadRecords
from srtm.bridge.figures import State
from srtm.bridge.file import KafkaTable, Route
from srtm.bridge.kafka_source import KafkaSource, Partition, Track, wait_until
from srtm.bridge.nsq_sink import Batch, Publisher
from srtm.bridge.placed import Placed
from srtm.bridge.runner import Runner, Stopped
from srtm.kafka.client import told

_TICK_SECONDS = 0.2
_IDLE_SECONDS = 0.1
_ANSWER_SECONDS = 0.001
"""A wait for records while answers are out, which then are late by as much at most."""
_FULL_SECONDS = 0.05
_PAUSE_AFTER_SECONDS = 1.0
"""Pausing drops what was fetched, so a short wait for room does without."""
_REVOKE_SECONDS = 5.0


class KafkaToNsq(Runner):
    def __init__(
        self,
        route: Route,
        kafka: KafkaTable,
        bridge: str,
        drain_seconds: float,
        placed: Placed | None = None,
    ) -> None:
        super().__init__(route, kafka, bridge, drain_seconds)
        self.placed = placed
        self._publishers: list[Publisher] = []
        self._limits = Limits(route.max_msg_size)
        self._since_full = 0.0
        self._now = 0.0

    def document(self) -> dict[str, Any]:
        nsqds = {
            f"{number}": each.address or each.reason or "no address"
            for number, each in enumerate(self._publishers)
        }
        return {**super().document(), "nsqd": nsqds}

    # --- the thread -----------------------------------------------------------------------------

    def work(self) -> None:
        route = self.route
        self._selector = selectors.DefaultSelector()
        self._dead = DeadRecords(self)
        features = route.features()
        count = len(route.nsqd) if route.nsqd else route.publishers
        self._publishers = [
            Publisher(
                self._selector,
                route.name,
                f"{self.bridge}-{route.name}",
                route.nsqd,
                number,
                self.figures,
                features,
            )
            for number in range(count)
        ]
        if self.placed is not None:
            self.placed.start(self._publishers)
        self._source = KafkaSource(self.kafka, route, self.bridge, self.figures, self._drain)
        self._batches = Batches(
            route, self._source, self._publishers, self._dead, self.figures, self._limits
        )
        try:
            self._turns()
        finally:
            self._drain(set(self._source.tracks), self.drain_seconds)
            self._source.close()
            for publisher in self._publishers:
                publisher.close()
            if self.placed is not None:
                self.placed.stop()
            self._dead.close()
            self._selector.close()
        if self._dead.stop is not None:
            raise self._dead.stop

    def _turns(self) -> None:
        tick_at = 0.0
        while not self.stopping.is_set() and self._dead.stop is None:
            now = self._now = self._dead.now = time.monotonic()
            if now >= tick_at:
                tick_at = now + _TICK_SECONDS
                self._tick(now)
            busy = any(each.waiting for each in self._publishers) or self._dead.waiting
            if not self._has_room():
                self._full(now)
                self._answers(_FULL_SECONDS)
                continue
            self._since_full = 0.0
            self._source.resume()
            self._take(self.route.batch, _ANSWER_SECONDS if busy else _IDLE_SECONDS)
            self._answers(0)
        if self.stopping.is_set():
            self.figures.state = State.DRAINING

    def _has_room(self) -> bool:
        """Is there room for another batch, whatever partitions it is of?"""
        return self._dead.has_room and all(
            each.has_room and each.connected for each in self._publishers
        )

    def _full(self, now: float) -> None:
        """A wait for room. If it lasts, partitions pause; polling goes on, for the group."""
        if not self._since_full:
            self._since_full = now
        if now - self._since_full > _PAUSE_AFTER_SECONDS:
            self._source.pause()
            self._take(1, 0)  # of a partition that has just come

    def _take(self, most: int, seconds: float) -> None:
        """Records to batches; Kafka's own words to the consumer are among them."""
        records = self._source.take(most, seconds)
        words = list(filter(Message.error, records))
        if words:
            records = [each for each in records if each.error() is None]
        if records:
            self._batches.publish(records)
        for each in words:
            error = each.error()
            if error is not None and not self._source.heard(each, error):
                self._refused(error)

    def _answers(self, seconds: float) -> None:
        """What nsqd and Kafka say to what was sent."""
        for publisher in self._publishers:
            publisher.pump(self._now)
        now = time.monotonic()
        for key, events in self._selector.select(seconds):
            key.data.owner.ready(key.data, events, now)
        stored = False
        for publisher in self._publishers:
            while publisher.answers:
                self._stored(publisher.answers.popleft())
                stored = True
            if self._limits.learn(publisher):
                self._batches.divide(publisher)
            publisher.pump(now)
        if self._dead.poll() or stored:
            self._source.store()
            self.goes_on()

    def _tick(self, now: float) -> None:
        for publisher in self._publishers:
            publisher.tick(now)
        self._dead.tick(now)
        if "fenced" in self._source.fault:
            raise Stopped(
                f"another bridge has taken its place in group {self.route.group}: {self.bridge} is "
                "the name of both; give each its own name in [bridge]"
            )
        if self._source.fault:
            # Another consumer goes on from the last commit.
            raise KafkaException(KafkaError(KafkaError._FATAL, self._source.fault))
        self._source.store()
        self._source.look(now)
        if self._source.anew:
            raise KafkaException(KafkaError(KafkaError._FATAL, self._source.anew))
        self.figures.in_flight = sum(len(track.entries) for track in self._source.tracks.values())
        self.figures.records_lag = self._source.lag()
        away = [each.reason for each in self._publishers if not each.connected]
        if away and self.figures.state is not State.STARTING:
            self.said(away[0] or "connecting to nsqd")
        elif away and away[0]:
            self.said(away[0])
        elif not away and self._source.away:
            self.said(self._source.away)
        elif not away and not self._dead.refused and self._source.tracks:
            self.goes_on()

    def _refused(self, error: KafkaError) -> None:
        """Kafka's word to the consumer: it tries again by itself, unless that is fatal."""
        if error.fatal() or error.code() == KafkaError._FATAL:
            self._source.fault = told(error)
        elif error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            which = "that matches " if self.route.source.is_pattern else ""
            self.said(f"Kafka has no topic {which}{self.route.source.topic} yet; create it")
        else:
            self.said(f"Kafka: {told(error)}")

    def _stored(self, batch: Batch) -> None:
        wall_ms = time.time_ns() // 1_000_000
        self.figures.counts["delivered_count"] += len(batch.bodies)
        # Kafka's times are whole milliseconds: many are equal.
        times = Counter(map(Message.timestamp, batch.records))
        latencies = [max(wall_ms - each, 0) * 1_000_000 for _, each in times]
        self.figures.measured(latencies, list(times.values()))

    def _drain(self, partitions: set[Partition], seconds: float = _REVOKE_SECONDS) -> None:
        """Work until all that was taken of `partitions` is finished, the time is over, or the route
        cannot go on."""
        tracks: list[Track] = [
            self._source.tracks[each] for each in partitions if each in self._source.tracks
        ]

        def finished() -> bool:
            self._now = self._dead.now = time.monotonic()
            return self._dead.stop is not None or all(
                each[0].done for track in tracks for each in track.entries
            )

        def work() -> None:
            for publisher in self._publishers:
                publisher.tick(self._now)
            if self._dead.refused:
                self._dead.retry()
            self._answers(0.01)

        wait_until(finished, seconds, work)
