"""A Kafka topic of arrivals into files of a trace, by Spark's structured streaming.

`FOLDER/_stream` holds Spark's checkpoint and our ledger; no reader of a trace looks there.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from srtm.correlation.stream.batches import Batches
from srtm.correlation.stream.state import STATE, Ledger, read_ledger
from srtm.host.files import json_in
from srtm.text.errors import SrtmError, UsageError

_CHECKPOINT = "checkpoint"
_LEDGER = "ledger.json"
_MOST_RECORDS = 500_000
"""of one batch"""
_BATCH_SECONDS = 10
_RETRY_SECONDS = (1.0, 10.0)
_SETTINGS = {
    # Kafka that is away is noticed after seconds and not after minutes.
    "kafka.request.timeout.ms": "8000",
    "kafka.default.api.timeout.ms": "10000",
    "kafka.socket.connection.setup.timeout.ms": "5000",
    "fetchOffset.numRetries": "1",
    "kafkaConsumer.pollTimeoutMs": "10000",
    # What a producer took back is no arrival; Kafka's own default reads it.
    "kafka.isolation.level": "read_committed",
    "maxOffsetsPerTrigger": str(_MOST_RECORDS),
    "startingOffsets": "earliest",
}


@dataclass(frozen=True)
class Source:
    """settings: of Kafka's Java client; skip_lost: go on where Kafka has removed unread records."""

    servers: str
    topic: str
    settings: Mapping[str, str] = field(default_factory=dict)
    skip_lost: bool = False

    def records(self, spark: SparkSession) -> DataFrame:
        options = {
            **_SETTINGS,
            **{f"kafka.{name}": value for name, value in self.settings.items()},
            "kafka.bootstrap.servers": self.servers,
            "subscribe": self.topic,
            "failOnDataLoss": "false" if self.skip_lost else "true",
        }
        return spark.readStream.format("kafka").options(**options).load()


class Intake:
    """Keeps the query running: begins it again where Kafka, or room on the disk, is away."""

    def __init__(
        self,
        spark: SparkSession,
        source: Source,
        folder: Path,
        kept_seconds: float,
        say: Callable[[str], None],
    ) -> None:
        """Raises UsageError where the checkpoint is gone, or another topic's."""
        self._spark = spark
        self._source = source
        self._folder = folder
        self._state = folder / STATE
        self._kept_seconds = kept_seconds
        self._say = say
        self._query: StreamingQuery | None = None
        self._batches: Batches | None = None
        self._waits_for = ""
        self._tries = 0
        self._retry_at = 0.0
        self._check()

    @property
    def ledger(self) -> Ledger | None:
        return self._batches.ledger if self._batches else read_ledger(self._state / _LEDGER)

    def keep_running(self, now: float) -> None:
        """Begin the query where it does not run; to be called often. now: monotonic seconds. Raises
        SrtmError for what time does not mend."""
        query = self._query
        if query is not None and query.isActive:
            if self._waits_for and query.status["message"].startswith("Waiting"):
                self._is_back()
            return
        if query is not None:
            self._query = None
            self._wait(words_of(query.exception(), self._source), now)
        elif now >= self._retry_at:
            self._begin(now)

    def stop(self) -> None:
        if self._query is not None:
            with suppress(Py4JError, PySparkException, ConnectionError):  # its JVM may be gone
                self._query.stop()

    def _check(self) -> None:
        ledger, query = read_ledger(self._state / _LEDGER), self._query_id()
        if ledger is None:
            return
        if ledger.topic != self._source.topic:
            raise UsageError(
                f"--trace {self._folder}: holds arrivals of Kafka topic {ledger.topic}; name a "
                f"folder of its own for {self._source.topic}"
            )
        if ledger.query != query:
            raise UsageError(
                f"{self._state / _CHECKPOINT}: gone, or another one: what is in {self._folder} "
                "would be read twice; put it back, or name a new --trace folder"
            )

    def _query_id(self) -> str:
        """The query's id in the checkpoint; empty: there is none."""
        try:
            return str(json_in(self._state / _CHECKPOINT / "metadata")["id"])
        except (OSError, ValueError, KeyError, TypeError):
            return ""

    def _begin(self, now: float) -> None:
        try:
            self._query = (
                self._source.records(self._spark)
                .writeStream.foreachBatch(self._take)
                .option("checkpointLocation", f"file://{(self._state / _CHECKPOINT).absolute()}")
                .trigger(processingTime=f"{_BATCH_SECONDS} seconds")
                .start()
            )
        except PySparkException as error:
            self._wait(words_of(error, self._source), now)

    def _take(self, records: DataFrame, batch: int) -> None:
        if self._batches is None:
            query = self._query_id()
            path = self._state / _LEDGER
            ledger = read_ledger(path) or Ledger(query=query, topic=self._source.topic)
            self._batches = Batches(self._folder, path, ledger, self._kept_seconds, self._say)
        self._batches.take(records, batch)

    def _is_back(self) -> None:
        self._say(f"goes on, no longer {self._waits_for}")
        self._waits_for, self._tries = "", 0

    def _wait(self, why: str, now: float) -> None:
        if why != self._waits_for:
            self._say(why)
        self._waits_for = why
        first, most = _RETRY_SECONDS
        self._retry_at = now + min(most, first * 2**self._tries)
        self._tries = min(self._tries + 1, 10)


def words_of(error: Exception | None, source: Source) -> str:
    """What is waited for. Raises SrtmError where waiting does not help."""
    said = str(error)
    if any(sign in said for sign in _LOST):
        raise SrtmError(
            f"Kafka has removed records of topic {source.topic} before they were read, or the "
            "topic was made anew: they are lost; --skip-lost goes on with what is there"
        )
    for sign, words in _AWAY.items():
        if sign in said:
            return words.format(servers=source.servers, topic=source.topic)
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    raise SrtmError(f"Spark's stream failed: {(lines or ['it says no more'])[0][:300]}")


_LOST = ("data may have been lost", "KAFKA_DATA_LOSS", "OffsetOutOfRange")
_AWAY = {
    "No space left on device": "waiting for room on the disk: nothing is lost, Kafka keeps it",
    "UnknownTopicOrPartition": "waiting for Kafka topic {topic}: {servers} has none of this name",
    "TimeoutException": "waiting for Kafka: {servers} does not answer",
    "DisconnectException": "waiting for Kafka: {servers} does not answer",
    "No resolvable bootstrap urls": "waiting for Kafka: no host of {servers} is known",
    "Failed to create new KafkaAdminClient": "waiting for Kafka: {servers} cannot be reached",
    "Cannot fetch": "waiting for Kafka: {servers} does not answer",
}
"""in an error -> what is waited for"""
