"""One consumer of a Kafka share group at work: gather, process, sink, accept (KIP-932).

Nothing is accepted that the sink does not have. A record is its consumer's alone for the group's
lock (30 s as a rule). What a consumer held that died goes to another at once, and what one that is
frozen holds after the lock; that one drops its batch before the sink. Kafka counts deliveries, and
gives a record to nobody any more after the group's limit. So a batch that fails is halved until the
record that fails is alone; it comes again, and at its last delivery it is a dead letter.
"""

import logging
import os
import random
import signal
import threading
import uuid
from collections.abc import Sequence

from confluent_kafka import (
    AcknowledgeType,
    IllegalStateException,
    KafkaException,
    Message,
    ShareConsumer,
)

from srtm.consumer.batch import Batch, LeaseLost, Record
from srtm.consumer.dead_letters import DeadLetters
from srtm.consumer.figures import Figures, Phase
from srtm.consumer.file import ConsumerTable
from srtm.consumer.process import LAUNCH
from srtm.consumer.reader import record_of
from srtm.consumer.share_file import ShareFile
from srtm.consumer.topic import require_events
from srtm.consumer.work import Work, end_process
from srtm.host.backoff import backoff_seconds
from srtm.host.clock import NS, boottime_ns, monotonic_ns
from srtm.host.stop import Stop
from srtm.kafka.client import LastFault, away, client_settings, told
from srtm.kafka.share import ShareGroup
from srtm.text.errors import Exit, SrtmError, UnavailableError, UsageError
from srtm.text.words import counted

log = logging.getLogger("srtm.consumer")

_POLL_SECONDS = 0.1
_COMMIT_SECONDS = 10.0
_LOOK_SECONDS = 1.0
"""between two looks whether Kafka is back"""
_END_SECONDS = 5.0
"""from the end of the batch in hand to that of the process, where Kafka does not answer"""
_MOST_BACKOFF_SECONDS = 5.0
_WATCH_SECONDS = 0.05


class ShareRunner:
    def __init__(self, file: ShareFile, table: ConsumerTable, work: Work, figures: Figures) -> None:
        """Raises UsageError, UnavailableError."""
        self._file = file
        self._table = table
        self._do = work
        self._figures = figures
        self.name = os.environ.get(LAUNCH) or f"consumer-{uuid.uuid4().hex[:12]}"
        self._stop = Stop()
        self._ended = threading.Event()
        self._leaving_ns = 0
        self._failures = 0
        self._asked_ns = self._answered_ns = boottime_ns()
        self._look_ns = 0

    def run(self) -> int:
        """Run the consumer until SIGTERM or SIGINT. Raises UnavailableError, UsageError."""
        self._stop.heed(signal.SIGTERM, signal.SIGINT)
        self._begin()
        self._figures.member(self.name, [])
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()
        log.info("%s consumes %s", self.name, self._file.group.topic)
        while not self._stop.asked:
            self._step()
        self._figures.enter(Phase.IDLE)
        self._leaving_ns = monotonic_ns()
        self._consumer.close()
        self._ended.set()
        self._do.close()
        log.info("%s has left", self.name)
        return Exit.OK

    def _begin(self) -> None:
        """Join, which takes Kafka a while, and look meanwhile whether all is as it has to be."""
        file, kafka = self._file, self._file.kafka
        require_events(file)
        group = ShareGroup(kafka, file.group.id, file.group.topic)
        group.members()  # raises where there are no share groups
        group.begin_at(file.group.reset)
        self._last = LastFault()
        self._consumer = ShareConsumer(
            {
                **client_settings(kafka, self.name, self._last),
                "group.id": file.group.id,
                "share.acknowledgement.mode": "explicit",
                "max.poll.records": self._table.batch,
            }
        )
        self._consumer.subscribe([file.group.topic])
        try:
            self._limits = group.limits()
            if self._table.batch_timeout >= self._limits.lock_seconds:
                raise UsageError(
                    f"batch-timeout is {self._table.batch_timeout:g} s, and after "
                    f"{self._limits.lock_seconds:g} s Kafka gives a record to another consumer: "
                    "give a shorter one, or the group a longer share.record.lock.duration.ms"
                )
            self._letters = DeadLetters(file, f"{self.name}-dead")
        except SrtmError:
            self._consumer.close()
            raise
        group.close()

    # --- a cycle ----------------------------------------------------------------------------------

    def _step(self) -> None:
        self._figures.enter(Phase.GATHER)
        before, self._asked_ns = self._asked_ns, boottime_ns()
        try:
            found = list(self._consumer.poll(_POLL_SECONDS))
        except KafkaException as error:
            self._away(error)
            return
        records = []
        for message in found:
            fault = message.error()
            if fault is None:
                records.append(message)
            else:
                self._figures.fault = told(fault)
        if not records:
            if not found and not self._failures:
                self._figures.fault = self._silence()
            self._figures.enter(Phase.IDLE)
            return
        # What has come may have been acquired since the poll before, but not before its answers.
        since_ns = max(before, self._answered_ns)
        for first in range(0, len(records), self._table.batch):
            chunk = records[first : first + self._table.batch]
            if self._stop.asked:
                self._answer(chunk, AcknowledgeType.RELEASE)
            else:
                self._take(chunk, since_ns)

    def _take(self, chunk: list[Message], since_ns: int) -> None:
        left = []
        for each in chunk:
            count = each.delivery_count() or 0
            if count < self._limits.deliveries:
                left.append(each)
            else:
                self._bury(each, f"it came {count} times, and was never finished")
        if left:
            self._try(left, since_ns)

    def _try(self, chunk: list[Message], since_ns: int) -> None:
        """Accept the chunk once the sink has it; where it fails, try its halves."""

        def check() -> None:
            if boottime_ns() - since_ns >= self._limits.lock_seconds * NS:
                raise LeaseLost("the group's lock has passed: Kafka gives the records to others")

        begun = monotonic_ns()
        records = tuple(_record(each) for each in chunk)
        failed = None
        # A share group fences nobody, so all tokens are alike.
        try:
            check()
            self._do(Batch(records, {each.partition: 0 for each in records}, check))
        except LeaseLost as lost:
            log.warning("%s: nothing of the batch goes to the sink", lost)
            self._figures.dropped += 1
            self._answer(chunk, AcknowledgeType.RELEASE)
            return
        except Exception as error:
            failed = error
        if failed is not None:
            self._failed(chunk, since_ns, failed)
            return
        self._answer(chunk, AcknowledgeType.ACCEPT)
        self._failures = 0
        self._figures.served(records, (monotonic_ns() - begun) / NS)

    def _failed(self, chunk: list[Message], since_ns: int, error: Exception) -> None:
        fault = f"{type(error).__name__}: {error}"
        if fault != self._figures.fault:
            log.error("a batch of %s has failed", counted(len(chunk), "record"), exc_info=error)
        self._figures.enter(Phase.IDLE)
        self._figures.failed += 1
        self._figures.fault = fault
        if len(chunk) == 1:
            # Several that fail one after the other are no fault of theirs: the sink is away.
            wait = backoff_seconds(self._failures, random.random(), _MOST_BACKOFF_SECONDS)
            self._failures += 1
            self._stop.wait(wait)
            self._answer(chunk, AcknowledgeType.RELEASE)
            return
        half = len(chunk) // 2
        for part in (chunk[:half], chunk[half:]):
            if self._stop.asked:
                self._answer(part, AcknowledgeType.RELEASE)
            else:
                self._try(part, since_ns)

    def _bury(self, message: Message, reason: str) -> None:
        """Reject a record once it is a dead letter; Kafka would drop it otherwise."""
        where = f"{message.topic()}/{message.partition()} at offset {message.offset()}"
        for attempt in range(1000):
            try:
                self._letters.bury([(message, reason)])
            except UnavailableError as error:
                self._figures.fault = str(error)
                log.error("%s: %s: %s", where, reason, error)
                if self._stop.wait(backoff_seconds(attempt, random.random(), 1.0)):
                    return
            else:
                log.error("%s is a dead letter: %s", where, reason)
                self._figures.buried += 1
                self._answer([message], AcknowledgeType.REJECT)
                return

    def _answer(self, chunk: Sequence[Message], kind: AcknowledgeType) -> None:
        """Tell Kafka what became of the records. What it does not hear comes again."""
        self._figures.enter(Phase.COMMIT)
        try:
            for each in chunk:
                self._consumer.acknowledge(each, kind)
            results = self._consumer.commit_sync(_COMMIT_SECONDS)
        except KafkaException as error:
            self._away(error)
            return
        except IllegalStateException as error:  # the connection they came by is gone
            log.warning("%d records come again: %s", len(chunk), error)
            self._figures.enter(Phase.IDLE)
            return
        self._answered_ns = boottime_ns()
        for place, fault in results.items():
            if fault is not None:
                log.warning(
                    "%s/%d: %s: Kafka gives them to others too", place.topic, place.partition,
                    told(fault),
                )  # fmt: skip
        self._figures.enter(Phase.IDLE)

    def _silence(self) -> str:
        """Why nothing comes; "" where Kafka answers. The client alone does not tell when a broker
        that it had lost is back."""
        if not self._last.text:
            return ""
        if monotonic_ns() >= self._look_ns:
            fault = self._letters.fault()
            self._look_ns = monotonic_ns() + round(_LOOK_SECONDS * NS)
            if not fault:
                self._last.text = ""
                return ""
        return self._figures.fault or self._last.text

    def _away(self, error: KafkaException) -> None:
        self._figures.enter(Phase.IDLE)
        self._figures.fault = away(self._file.kafka, error, self._last.text)
        self._stop.wait(_POLL_SECONDS)

    # --- bounds -----------------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._ended.wait(_WATCH_SECONDS):
            if self._figures.in_batch_seconds > self._table.batch_timeout:
                end_process(f"a batch takes longer than batch-timeout ({self._figures.phase})")
            if self._leaving_ns and monotonic_ns() - self._leaving_ns > _END_SECONDS * NS:
                end_process("Kafka does not answer: what was not accepted comes again", Exit.OK)


def _record(message: Message) -> Record:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return record_of(message, partition, offset)
