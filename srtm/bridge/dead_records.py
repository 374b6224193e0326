"""Records of Kafka that cannot go to NSQ, on their way to the dead-letter topic or file."""

from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException, Message

from srtm.bridge.dead_letters import DeadLetters
from srtm.bridge.kafka_sink import POISON
from srtm.bridge.runner import DEAD_LETTER, Runner, Stopped
from srtm.host.backoff import backoff_seconds
from srtm.kafka.client import told
from srtm.kafka.headers import headers_of

_MAX_BACKOFF_SECONDS = 5.0
_MAX = 1000  # on their way
_MAX_REFUSALS = 20  # halvings: nothing is left of any body


@dataclass(slots=True, eq=False)
class DeadRecord:
    """done: it is where dead letters go, cut: but not whole; refusals: how often it was too big.
    Called with the report."""

    record: Message
    reason: str
    reports: "list[tuple[DeadRecord, Any]]"
    cut: bool = False
    done: bool = False
    refusals: int = 0

    def __call__(self, error: Any, _: Any) -> None:
        self.reports.append((self, error))


class DeadRecords:
    """The dead letters of one runner.

    waiting: that have no report; stop: why the route cannot go on; now: of this turn
    """

    def __init__(self, runner: Runner) -> None:
        self.now = 0.0
        self.waiting = 0
        self.stop: Stopped | None = None
        self._runner = runner
        self._route = runner.route
        self._letters = DeadLetters(runner, "", 5.0, _MAX)
        self._reports: list[tuple[DeadRecord, Any]] = []
        self._again: list[DeadRecord] = []  # those that Kafka has refused for now
        self._again_at = 0.0
        self._failures = 0

    @property
    def has_room(self) -> bool:
        return self.waiting < _MAX and not self.refused

    @property
    def refused(self) -> bool:
        """Are dead letters refused for now?"""
        return bool(self._again) or self._letters.refused

    def bury(self, record: Message, reason: str) -> DeadRecord:
        dead = DeadRecord(record, reason, self._reports)
        self._send(dead)
        return dead

    def poll(self) -> bool:
        """Take the reports; True where some have come."""
        if not self.waiting:
            return False
        self._letters.poll(self.now)
        if not self._reports:
            return False
        self._take_reports()
        return True

    def tick(self, now: float) -> None:
        if self._letters.renew():
            self._take_reports()
        if self._again and now >= self._again_at:
            self.retry()

    def retry(self) -> None:
        self._letters.poll(self.now, at_once=True)
        again, self._again = self._again, []
        for each in again:
            self._send(each)

    def close(self) -> None:
        self._letters.close()

    def _send(self, dead: DeadRecord) -> None:
        record = dead.record
        if self._route.dead_letter is None:
            if self.stop is None:
                target = self._route.target.of(record.topic() or "")
                hint = ' (or tombstones = "skip")' if not record.value() else ""
                self.stop = Stopped(
                    f"{record.topic()}[{record.partition()}] offset {record.offset()} cannot go "
                    f"to nsq:{target}: {dead.reason}; give the route "
                    f"{DEAD_LETTER}{hint}"
                )
            return
        topic = self._route.dead_letter.of(record.topic() or "")
        body: Any = record.value()
        key: Any = record.key()
        try:
            dead.cut = self._letters.put(
                topic,
                _origin(record),
                dead.reason,
                dead,
                self.now,
                body=body,
                key=key,
                theirs=headers_of([record])[0] or (),
                refusals=dead.refusals,
            )
            self.waiting += 1
        except KafkaException as error:
            self._refused(dead, topic, error.args[0].code(), told(error.args[0]))
        except BufferError as error:
            self._refused(dead, topic, 0, str(error))

    def _take_reports(self) -> None:
        for dead, error in self._reports:
            self.waiting -= 1
            if error is None:
                dead.done = True
                self._failures = 0
                self._runner.figures.counts["dead_letter_count"] += 1
                self._runner.figures.counts["cut_count"] += dead.cut
            elif self._route.dead_letter is not None:
                topic = self._route.dead_letter.of(dead.record.topic() or "")
                self._refused(dead, topic, error.code(), told(error))
        self._reports.clear()

    def _refused(self, dead: DeadRecord, topic: str, code: int, why: str) -> None:
        if code in POISON and dead.refusals < _MAX_REFUSALS:
            dead.refusals += 1
            self._send(dead)
            return
        self._runner.said(f"Kafka's topic {topic}, for dead letters: {why}")
        self._again.append(dead)
        self._again_at = self.now + backoff_seconds(self._failures, 1.0, _MAX_BACKOFF_SECONDS)
        self._failures += 1


def _origin(record: Message) -> list[tuple[str, str]]:
    return [
        ("kafka-topic", record.topic() or ""),
        ("kafka-partition", str(record.partition())),
        ("kafka-offset", str(record.offset())),
    ]
