"""Messages of one NSQ topic on their way to Kafka: produced, reported, refused, buried.

What Kafka reports is finished in nsqd; what it refuses for now goes back to nsqd, what it will
never take goes to the dead-letter topic.
"""

import logging
import time
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from srtm.bridge.dead_letters import DeadLetters
from srtm.bridge.kafka_sink import POISON, KafkaSink
from srtm.bridge.nsq_source import Host, Link, Waiting
from srtm.bridge.pointer import NoKey, pointer
from srtm.bridge.runner import DEAD_LETTER, Runner, Stopped
from srtm.bridge.wire import Broken
from srtm.host.backoff import backoff_seconds
from srtm.kafka.client import told

log = logging.getLogger("srtm.bridge")

_MAX_BACKOFF_SECONDS = 5.0
_SILENT_SECONDS = 5.0
"""of Kafka, with messages on their way: more than a batch, a retry and a new leader take"""
_MAX_ATTEMPTS = 5
"""of a message that its topic should take; then it is the message's fault"""
_MAX_REFUSALS = 20  # halvings: nothing is left of any body


class Deliveries:
    """The messages of one runner on their way to Kafka. The runner calls `poll` often, `tick` once
    in a while.

    now: monotonic seconds of this turn; bytes: of the bodies that wait; failures: in a row;
    letters: the dead ones; stop: why the route cannot go on
    """

    def __init__(self, runner: Runner, topic: str, target: str, sink: KafkaSink) -> None:
        self.now = 0.0
        self.bytes = 0
        self.failures = 0
        self.retry_at = 0.0
        self.stop: Stopped | None = None
        # Of the messages since the last tick, and between the two before. Nothing is known at
        # first, so as many may come as of nsqd's largest.
        self._largest = 0
        self._largest_before = 1 << 20
        self._runner = runner
        self._route = runner.route
        self._figures = runner.figures
        self._figures.in_flight = 0
        self._topic = topic
        self._target = target
        self._sink = sink
        self._key_of = pointer(self._route.key) if self._route.key else None
        self._dead = self._route.dead_letter.of(topic) if self._route.dead_letter else ""
        self.letters = DeadLetters(runner, "-dead", 0.0, self._route.max_in_flight)
        self._reports: list[tuple[Waiting, Any, Any]] = []
        self._heard = 0.0  # the last report, or the first message after all had one
        self._refit = False

    def take_largest(self) -> int:
        """Bytes of the largest message of late."""
        found = max(self._largest, self._largest_before)
        if self._largest:
            self._largest_before, self._largest = self._largest, 0
        return found

    def take(
        self, host: Host, link: Link, time_ns: int, attempts: int, id: bytes, body: bytes
    ) -> None:
        """One message to Kafka."""
        size = len(body)
        waiting = Waiting(host, link, id, attempts, time_ns, size, self.now, self._reports)
        host.waiting[id] = waiting
        figures = self._figures
        if not figures.in_flight:
            self._heard = self.now
        figures.in_flight += 1
        self.bytes += size
        if size > self._largest:
            self._largest = size
        try:
            key = self._key_of(body) if self._key_of is not None else None
            if key:
                waiting.size += len(key)
                self.bytes += len(key)
            self._sink.produce(
                self._target,
                body,
                key,
                headers=self._origin(waiting),
                on_delivery=waiting,
            )
        except NoKey as error:
            self._bury(waiting, body, str(error))
        except KafkaException as error:
            self._refused(waiting, error.args[0], body)
        except BufferError:
            self._give_back(waiting)

    def _origin(self, waiting: Waiting) -> list[tuple[str, bytes | str | None]]:
        return [
            ("nsq-host", waiting.host.address),
            ("nsq-topic", self._topic),
            ("nsq-message-id", waiting.id),
            ("nsq-attempts", b"%d" % waiting.attempts),
            ("nsq-time", b"%d" % waiting.time_ns),
        ]

    def poll(self, seconds: float) -> bool:
        """Take Kafka's reports; wait so long for the first. True where there were any."""
        self._sink.poll(seconds)
        self.letters.poll(self.now)
        if not self._reports:
            return False
        self._take_reports()
        return True

    @property
    def unanswered(self) -> str:
        """What to tell people when Kafka reports nothing for too long: its producer waits for it
        without a word. "" when it does."""
        return self._sink.away() if self._is_silent else ""

    @property
    def _is_silent(self) -> bool:
        return self._figures.in_flight > 0 and self.now - self._heard > _SILENT_SECONDS

    def tick(self) -> None:
        """Another producer or other batches, where that is needed."""
        if self._is_silent:
            self._sink.look()
        if self._sink.fatal:
            self._sink.renew(self._sink.fatal)
        self.letters.renew()
        if self._refit:
            self._refit = False
            self._sink.fit_batches(self._target)
        self._take_reports()

    def _take_reports(self) -> None:
        reports = self._reports
        if reports:
            self._heard = self.now
        counts = self._figures.counts
        wall = time.time_ns()
        latencies: list[int] = []
        delivered = dead = 0
        for waiting, error, message in reports:
            if error is not None:
                self._refused(waiting, error, message.value() if message is not None else None)
                continue
            self._figures.in_flight -= 1
            self.bytes -= waiting.size
            waiting.host.delivered(waiting)
            if waiting.dead:
                dead += 1
                counts["cut_count"] += waiting.cut
            else:
                delivered += 1
                latencies.append(max(wall - waiting.time_ns, 0))
        reports.clear()
        counts["delivered_count"] += delivered
        counts["dead_letter_count"] += dead
        if latencies:
            self._figures.measured(latencies, [1] * len(latencies))
        if (delivered or dead) and self.failures:
            self.failures = 0
            self.retry_at = 0.0
        if delivered or dead:
            self._runner.goes_on()

    def _refused(self, waiting: Waiting, error: Any, body: bytes | None) -> None:
        """Kafka's word against one message."""
        topic = self._dead if waiting.dead else self._target
        if (
            error.code() == KafkaError.MSG_SIZE_TOO_LARGE
            and not waiting.dead
            and waiting.attempts < _MAX_ATTEMPTS
            and waiting.size <= self._sink.limit(self._target, anew=not self._refit)
        ):
            # The topic refuses a batch as a whole, also for what would pass alone.
            self._refit = True
            self._give_back(waiting)
            return
        if error.code() in POISON and body is not None and waiting.refusals < _MAX_REFUSALS:
            # Not even cut to what the topic of dead letters says that it takes: shorter still.
            waiting.refusals += waiting.dead
            self._bury(waiting, body, told(error))
            return
        self._give_back(waiting)
        if error.code() in (KafkaError._FATAL, KafkaError._PURGE_QUEUE) or self._sink.fatal:
            return
        self.retry_at = self.now + backoff_seconds(self.failures, 1.0, _MAX_BACKOFF_SECONDS)
        self.failures += 1
        self._runner.said(f"Kafka's topic {topic}: {told(error)}")

    def _give_back(self, waiting: Waiting) -> None:
        self._figures.in_flight -= 1
        self.bytes -= waiting.size
        try:
            waiting.host.requeue(waiting)
        except Broken as error:
            waiting.host.broken(str(error), self.now)

    def _bury(self, waiting: Waiting, body: bytes, reason: str) -> None:
        """Send the message to the dead letters; a route without dead letters stops."""
        if not self._dead:
            if self.stop is None:
                self.stop = Stopped(
                    f"message {waiting.id.decode(errors='replace')} of nsq:{self._topic} "
                    f"cannot go to kafka:{self._target}: {reason}; give the route {DEAD_LETTER}"
                )
            self._give_back(waiting)
            return
        waiting.dead = True
        try:
            waiting.cut = self.letters.put(
                self._dead,
                self._origin(waiting),
                reason,
                waiting,
                self.now,
                body=body,
                refusals=waiting.refusals,
            )
        except (KafkaException, BufferError) as error:
            log.warning("route %s: dead letter: %s", self._route.name, error)
            self._give_back(waiting)
