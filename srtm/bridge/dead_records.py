"""Records of Kafka that cannot go to NSQ, on their way to the dead-letter topic."""

from typing import Any

from confluent_kafka import KafkaException, Message

from srtm.backoff import backoff_seconds
from srtm.bridge.kafka_sink import KafkaSink, told
from srtm.bridge.runner import Runner, Stopped

_MAX_BACKOFF_SECONDS = 5.0
_MAX = 1000  # on their way


class DeadRecord:
    """done: it is in the dead-letter topic. Called with Kafka's report."""

    __slots__ = ("done", "reason", "record", "reports")

    def __init__(
        self, record: Message, reason: str, reports: "list[tuple[DeadRecord, Any]]"
    ) -> None:
        self.done = False
        self.record = record
        self.reason = reason
        self.reports = reports

    def __call__(self, error: Any, _: Any) -> None:
        self.reports.append((self, error))


class DeadRecords:
    """Of one runner. Its producer is made with the first of them.

    waiting: that have no report; stop: why the route cannot go on; now: of this turn
    """

    def __init__(self, runner: Runner) -> None:
        self.now = 0.0
        self.waiting = 0
        self.stop: Stopped | None = None
        self._runner = runner
        self._route = runner.route
        self._sink: KafkaSink | None = None
        self._reports: list[tuple[DeadRecord, Any]] = []
        self._again: list[DeadRecord] = []  # those that Kafka has refused for now
        self._again_at = 0.0
        self._failures = 0

    @property
    def has_room(self) -> bool:
        return self.waiting < _MAX and not self._again

    @property
    def refused(self) -> bool:
        """Kafka takes none for now."""
        return bool(self._again)

    def bury(self, record: Message, reason: str) -> DeadRecord:
        dead = DeadRecord(record, reason, self._reports)
        self._send(dead)
        return dead

    def poll(self) -> bool:
        """Take Kafka's reports; True where some may have come."""
        if not self.waiting or self._sink is None:
            return False
        self._sink.poll(0)
        self._take_reports()
        return True

    def tick(self, now: float) -> None:
        if self._sink is not None and self._sink.fatal:
            self._sink.renew(self._sink.fatal)
            self._take_reports()
        if self._again and now >= self._again_at:
            self.retry()

    def retry(self) -> None:
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
                hint = ' (or tombstones = "skip")' if not record.value() else ""
                self.stop = Stopped(
                    f"{record.topic()}[{record.partition()}] offset {record.offset()} cannot go "
                    f"to {self._route.target}: {dead.reason}; give the route dead-letter = "
                    f'"kafka:TOPIC"{hint}'
                )
            return
        if self._sink is None:
            self._sink = KafkaSink(
                self._runner.kafka,
                f"{self._runner.bridge}-{self._route.name}",
                linger_ms=5.0,
                max_messages=_MAX,
                max_msg_size=max(self._route.max_msg_size, 1 << 20),
            )
        topic = self._route.dead_letter.of(record.topic() or "")
        theirs: Any = record.headers() or []
        headers: dict[str, bytes | str] = {name: value or b"" for name, value in theirs}
        headers |= {
            "kafka-topic": record.topic() or "",
            "kafka-partition": str(record.partition()),
            "kafka-offset": str(record.offset()),
        }
        body: Any = record.value()
        key: Any = record.key()
        try:
            if self._sink.dead_letter(topic, body, key, headers, dead.reason, dead):
                self._runner.figures.counts["cut_count"] += 1
            self.waiting += 1
        except (KafkaException, BufferError) as error:
            self._refused(dead, topic, str(error))

    def _take_reports(self) -> None:
        for dead, error in self._reports:
            self.waiting -= 1
            if error is None:
                dead.done = True
                self._failures = 0
                self._runner.figures.counts["dead_letter_count"] += 1
            elif self._route.dead_letter is not None:
                topic = self._route.dead_letter.of(dead.record.topic() or "")
                self._refused(dead, topic, told(error))
        self._reports.clear()

    def _refused(self, dead: DeadRecord, topic: str, why: str) -> None:
        self._runner.said(f"Kafka's topic {topic}, for dead letters: {why}")
        self._again.append(dead)
        self._again_at = self.now + backoff_seconds(self._failures, 1.0, _MAX_BACKOFF_SECONDS)
        self._failures += 1
