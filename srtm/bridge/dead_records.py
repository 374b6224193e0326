"""Records of Kafka that cannot go to NSQ, on their way to the dead-letter topic or file."""

from typing import Any

from confluent_kafka import KafkaException, Message

from srtm.bridge.dead_letter_file import DeadLetterFile, as_json
from srtm.bridge.headers import headers_of
from srtm.bridge.kafka_sink import LARGEST, POISON, KafkaSink
from srtm.bridge.runner import DEAD_LETTER, Runner, Stopped
from srtm.host.backoff import backoff_seconds
from srtm.kafka.client import told

_MAX_BACKOFF_SECONDS = 5.0
_MAX = 1000  # on their way
_MAX_REFUSALS = 20  # halvings: nothing is left of any body


class DeadRecord:
    """done: it is where dead letters go. Called with the report."""

    __slots__ = ("cut", "done", "reason", "record", "refusals", "reports")

    def __init__(
        self, record: Message, reason: str, reports: "list[tuple[DeadRecord, Any]]"
    ) -> None:
        self.cut = False  # not whole
        self.done = False
        self.refusals = 0  # how often it was too big
        self.record = record
        self.reason = reason
        self.reports = reports

    def __call__(self, error: Any, _: Any) -> None:
        self.reports.append((self, error))


class DeadRecords:
    """The dead letters of one runner. Their producer is made with the first of them.

    waiting: that have no report; stop: why the route cannot go on; now: of this turn
    """

    def __init__(self, runner: Runner) -> None:
        self.now = 0.0
        self.waiting = 0
        self.stop: Stopped | None = None
        self._runner = runner
        self._route = runner.route
        self._sink: KafkaSink | None = None
        self._file: DeadLetterFile | None = None
        if self._route.dead_letter and self._route.dead_letter.system == "file":
            self._file = DeadLetterFile(
                self._route.dead_letter.topic, self._route.dead_letter_bytes
            )
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
        return bool(self._again or (self._file is not None and self._file.fault))

    def bury(self, record: Message, reason: str) -> DeadRecord:
        dead = DeadRecord(record, reason, self._reports)
        self._send(dead)
        return dead

    def poll(self) -> bool:
        """Take the reports; True where some have come."""
        if not self.waiting:
            return False
        if self._sink is not None:
            self._sink.poll(0)
        if self._file is not None:
            self._flush(self._file)
        if not self._reports:
            return False
        self._take_reports()
        return True

    def _flush(self, file: DeadLetterFile, at_once: bool = False) -> None:
        before = file.failures
        file.flush(self.now, at_once)
        if file.failures > before:
            self._runner.said(f"dead letters: {file.fault}")

    def tick(self, now: float) -> None:
        if self._sink is not None and self._sink.fatal:
            self._sink.renew(self._sink.fatal)
            self._take_reports()
        if self._again and now >= self._again_at:
            self.retry()

    def retry(self) -> None:
        if self._file is not None:
            self._flush(self._file, at_once=True)
        again, self._again = self._again, []
        for each in again:
            self._send(each)

    def close(self) -> None:
        if self._sink is not None:
            self._sink.flush(1)

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
        if self._file is not None:
            letter = {"route": self._route.name, "reason": dead.reason} | _as_json(record)
            self._file.put(letter, dead, self.now)
            self.waiting += 1
            return
        if self._sink is None:
            self._sink = KafkaSink(
                self._runner.kafka,
                f"{self._runner.bridge}-{self._route.name}",
                linger_ms=5.0,
                max_messages=_MAX,
                max_msg_size=LARGEST,
                alone=True,
            )
        topic = self._route.dead_letter.of(record.topic() or "")
        theirs = headers_of([record])[0] or []
        body: Any = record.value()
        key: Any = record.key()
        try:
            dead.cut = self._sink.dead_letter(
                topic, body, key, _origin(record), theirs, dead.reason, dead, dead.refusals
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


def _as_json(record: Message) -> dict[str, Any]:
    """Whole, for a file."""
    key: Any = record.key()
    body: Any = record.value()
    headers = headers_of([record])[0] or []
    named = [{"name": name} | as_json("value", value) for name, value in headers]
    more = {"headers": named} if named else {}
    return dict(_origin(record)) | as_json("key", key) | more | as_json("body", body)
