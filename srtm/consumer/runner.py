"""One consumer at work: gather, process, sink, commit, and then what the controller wants.

Nothing goes to the sink without a lease, and nothing is committed that the sink does not have. A
command is carried out between two batches: what goes is committed and given up before it is said,
what comes begins where its last owner committed. A batch has `batch-timeout`; one that takes
longer, or whose sink works on after the lease has ended, ends the process: nothing else stops it.
"""

import asyncio
import logging
import os
import select
import signal
import threading

from confluent_kafka import KafkaException

from srtm.consumer.batch import Batch, LeaseLost, Record
from srtm.consumer.capacity import SelfMeasure
from srtm.consumer.figures import Figures, Phase
from srtm.consumer.file import ConsumerTable, GroupFile
from srtm.consumer.membership import Membership
from srtm.consumer.reader import Reader
from srtm.consumer.records import Records
from srtm.consumer.subscribed import Subscribed
from srtm.consumer.topic import require_events
from srtm.consumer.work import Work, end_process
from srtm.host.backoff import backoff_seconds
from srtm.host.clock import NS, monotonic_ns
from srtm.host.stop import Stop
from srtm.kafka.client import told
from srtm.text.errors import Exit, reason_of

log = logging.getLogger("srtm.consumer")

_MOST_BACKOFF_SECONDS = 30.0
_WATCH_SECONDS = 0.05
_COMMIT_SECONDS = 15.0
"""The longest that Kafka may leave a commit unanswered while it answers all else: librdkafka has
lost it then."""
_END_SECONDS = 5.0
"""The longest time from SIGTERM, or the end of the batch in hand, to the end of the process."""


class Runner:
    def __init__(self, file: GroupFile, table: ConsumerTable, work: Work, figures: Figures) -> None:
        self._table = table
        self._do = work
        self._figures = figures
        self._membership = Membership(file)
        self._file = file
        self._subscribes = file.group.subscribes
        self._reader = self._make_reader()
        self._measure = SelfMeasure(table.batch)
        self._tokens: dict[int, int] = {}
        self._stop = Stop()
        self._ended = threading.Event()
        self._leaving = False
        self._failures = 0
        self._again_ns = 0

    def _make_reader(self) -> Records:
        name = f"{self._membership.name}-records"
        if self._file.group.handover == "assignor":
            from srtm.consumer.joined import Joined  # kafka-python

            return Joined(self._file, self._table, self._membership)
        if self._file.group.brokered:
            return Subscribed(self._file, self._table, name)
        reader = Reader(self._file, self._table, name)
        reader.warm()
        return reader

    def run(self) -> int:
        """Run the consumer until SIGTERM or SIGINT, or until the controller wants it to leave.
        Raises UnavailableError."""
        self._stop.heed(signal.SIGTERM, signal.SIGINT)
        # The handler waits for the main thread, which may wait for Kafka: the watchdog does not.
        told, tell = os.pipe()
        os.set_blocking(tell, False)
        signal.set_wakeup_fd(tell)
        require_events(self._file)
        self._membership.start()
        watch = threading.Thread(target=self._watch, args=(told,), name="watchdog", daemon=True)
        watch.start()
        log.info("%s has joined", self._membership.name)
        while not self._stop.asked and not self._leaving:
            self._step()
        self._figures.enter(Phase.IDLE)
        self._commit()
        self._reader.close()
        self._membership.leave()
        self._ended.set()
        self._do.close()
        log.info("%s has left", self._membership.name)
        return Exit.OK

    # --- a cycle ----------------------------------------------------------------------------------

    def _step(self) -> None:
        self._figures.member(self._membership.name, sorted(self._reader.positions))
        if self._membership.out:
            self._come_back()
        if self._subscribes:
            self._say_what_was_assigned()
        self._obey()
        if self._leaving:
            return
        if not self._failures:
            self._figures.fault = self._reader.fault or self._membership.fault
            if not self._may_work():
                self._figures.fault = self._figures.fault or "no lease: no word is read back"
        self._membership.figures(self._measure.mu, self._figures.records, self._figures.fault)
        if not self._may_work() or monotonic_ns() < self._again_ns:
            self._reader.pause()
            return
        self._figures.enter(Phase.GATHER)
        records = self._reader.gather(self._interrupted)
        if records:
            self._work(tuple(records))
        elif not self._interrupted():
            self._figures.enter(Phase.COMMIT)
            self._commit()
            self._figures.enter(Phase.IDLE)

    def _interrupted(self) -> bool:
        changed = self._subscribes and self._reader.tokens() != self._tokens
        asked = self._stop.asked or self._membership.wanted() is not None
        return changed or asked or not self._may_work()

    def _may_work(self) -> bool:
        """May the work go on? The broker takes no commits of a member that it has put out
        (KIP-848); without such a broker, a lease is needed."""
        return self._file.group.brokered or self._membership.holds()

    def _come_back(self) -> None:
        """Come back as somebody new. Where Kafka assigns partitions itself (KIP-848), it also puts
        members out itself, and nothing is given up here; otherwise everything is."""
        if not self._file.group.brokered:
            self._drop(f"{self._membership.out}: a batch in hand is dropped")
        self._tokens.clear()
        if isinstance(self._reader, Reader) and not self._subscribes:
            self._reader.stop(list(self._reader.positions))
            self._membership.rejoin()
        elif self._file.group.brokered:
            self._membership.rejoin()
        else:  # a static member's name is its own, and is never used again
            self._reader.close()
            self._membership.rejoin()
            self._reader = self._make_reader()

    def _say_what_was_assigned(self) -> None:
        has = self._reader.tokens()
        if has != self._tokens:
            self._tokens = has
            self._membership.done(self._membership.version, has)

    def _work(self, records: tuple[Record, ...]) -> None:
        begun = monotonic_ns()
        batch = Batch(records, dict(self._tokens), self._check)
        try:
            self._do(batch)
        except LeaseLost as lost:
            self._drop(str(lost))
            return
        except (Exception, asyncio.CancelledError) as error:  # a task of the user's was cancelled
            self._failed(error)
            return
        self._figures.enter(Phase.COMMIT)
        self._reader.done(records)
        self._commit()
        self._figures.enter(Phase.IDLE)
        self._failures = 0
        seconds = (monotonic_ns() - begun) / NS
        self._measure.see(len(records), seconds)
        self._figures.served(records, seconds)

    def _commit(self) -> None:
        """Commit, but not without a lease: whoever has the partitions by then has committed
        further."""
        if self._may_work():
            self._reader.commit()

    def _check(self) -> None:
        if not self._may_work():
            raise LeaseLost(self._membership.out or "the lease has ended")

    def _drop(self, why: str) -> None:
        log.warning("%s: nothing of the batch goes to the sink", why)
        self._figures.enter(Phase.IDLE)
        self._figures.dropped += 1
        self._reader.rewind()

    def _failed(self, error: BaseException) -> None:
        """The user's code, or the sink: the batch comes again, later each time."""
        wait = backoff_seconds(self._failures, 0.5, _MOST_BACKOFF_SECONDS)
        if not self._failures:
            log.exception("a batch has failed; it comes again")
        self._failures += 1
        self._figures.enter(Phase.IDLE)
        self._figures.failed += 1
        self._figures.fault = reason_of(error)
        self._again_ns = monotonic_ns() + round(wait * NS)
        self._reader.rewind()

    # --- what the controller wants ----------------------------------------------------------------

    def _obey(self) -> None:
        command = self._membership.wanted()
        if command is None or self._membership.out:
            return
        if self._subscribes:
            self._membership.done(command.version, self._tokens)
            self._leaving = command.leave
            return
        assert isinstance(self._reader, Reader)
        goes = [p for p in self._reader.positions if p not in command.start]
        comes = [p for p in command.start if p not in self._reader.positions]
        if goes:
            self._commit()
            self._reader.stop(goes)
        try:
            self._reader.start(comes)
        except KafkaException as error:
            self._figures.fault = told(error)
            log.warning("partitions %s cannot be started yet: %s", comes, told(error))
            self._reader.pause()
            return
        self._tokens = dict(command.start)
        self._membership.done(command.version, self._tokens)
        if goes or comes:
            log.info("given up: %s; taken up: %s", goes or "none", comes or "none")
        self._leaving = command.leave

    # --- bounds -----------------------------------------------------------------------------------

    def _watch(self, told: int) -> None:
        asked_ns, held_ns = 0, monotonic_ns()
        while not self._ended.is_set():
            if not self._membership.holds():  # Kafka is away
                held_ns = monotonic_ns()
            if not asked_ns and select.select([told], [], [], _WATCH_SECONDS)[0]:
                asked_ns = monotonic_ns()
            elif asked_ns:
                self._ended.wait(_WATCH_SECONDS)
            (phase, lasts), seconds = self._figures.phase_seconds, self._figures.in_batch_seconds
            since_asked = (monotonic_ns() - asked_ns) / NS if asked_ns else 0.0
            since_held = (monotonic_ns() - held_ns) / NS
            if phase is Phase.COMMIT and min(lasts, since_held) > _COMMIT_SECONDS:
                end_process(
                    "Kafka answers, but not to a commit: what was not committed comes again"
                )
            if not seconds and min(since_asked, lasts) > _END_SECONDS:
                end_process("Kafka does not answer: what was not committed comes again", Exit.OK)
            if phase is Phase.SINK and not self._may_work():
                end_process("the lease has ended while the sink was at work")
            if not self._membership.alive:
                end_process("the thread that speaks with the controller has failed")
            if seconds > self._table.batch_timeout:
                end_process(f"a batch takes longer than batch-timeout ({phase})")
