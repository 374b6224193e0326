"""One consumer at work: gather, process, sink, commit, and then what the controller wants.

Nothing goes to the sink without a lease, and nothing is committed that the sink does not have. A
command is carried out between two batches: what goes is committed and given up before it is said,
what comes begins where its last owner committed. A batch has `batch-timeout`; one that takes
longer, or whose sink works on after the lease has ended, ends the process: nothing else stops it.
"""

import logging
import signal
import threading
from types import FrameType

from confluent_kafka import KafkaException

from srtm.backoff import backoff_seconds
from srtm.clock import NS, monotonic_ns
from srtm.consumer.batch import Batch, LeaseLost, Record
from srtm.consumer.capacity import SelfMeasure
from srtm.consumer.figures import Figures, Phase
from srtm.consumer.file import ConsumerTable, GroupFile
from srtm.consumer.membership import Membership
from srtm.consumer.reader import Reader
from srtm.consumer.subscribed import Subscribed
from srtm.consumer.work import Work, end_process
from srtm.errors import Exit
from srtm.kafka.client import told

log = logging.getLogger("srtm.consumer")

_MOST_BACKOFF_SECONDS = 30.0
_WATCH_SECONDS = 0.05


class Runner:
    def __init__(self, file: GroupFile, table: ConsumerTable, work: Work, figures: Figures) -> None:
        self._table = table
        self._do = work
        self._figures = figures
        self._membership = Membership(file)
        self._brokered = file.group.brokered
        kind = Subscribed if self._brokered else Reader
        self._reader = kind(file, table, f"{self._membership.name}-records")
        self._measure = SelfMeasure(table.batch)
        self._tokens: dict[int, int] = {}
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._leaving = False
        self._failures = 0
        self._again_ns = 0

    def run(self) -> int:
        """Until SIGTERM, or until the controller wants it to leave. Raises UnavailableError."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._asked)
        self._membership.start()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()
        log.info("%s has joined", self._membership.name)
        while not self._stopping.is_set() and not self._leaving:
            self._step()
        self._figures.enter(Phase.IDLE)
        self._commit()
        if not self._brokered:
            self._reader.stop(list(self._reader.positions))
        self._reader.close()
        self._membership.leave()
        self._ended.set()
        self._do.close()
        log.info("%s has left", self._membership.name)
        return Exit.OK

    def _asked(self, number: int, frame: FrameType | None) -> None:
        self._stopping.set()

    # --- a cycle ----------------------------------------------------------------------------------

    def _step(self) -> None:
        self._figures.member(self._membership.name, sorted(self._reader.positions))
        if self._brokered:
            self._say_what_the_broker_gave()
        elif self._membership.out:
            self._drop(f"{self._membership.out}: a batch in hand is dropped")
            self._reader.stop(list(self._reader.positions))
            self._tokens.clear()
            self._membership.rejoin()
        self._obey()
        if self._leaving:
            return
        if not self._failures:
            self._figures.fault = self._reader.fault
        self._membership.figures(self._measure.mu, self._figures.records, self._figures.fault)
        if not self._may_work() or monotonic_ns() < self._again_ns:
            self._reader.pause()
            return
        self._figures.enter(Phase.GATHER)
        records = self._reader.gather(self._interrupted)
        if records:
            self._work(tuple(records))

    def _interrupted(self) -> bool:
        changed = self._brokered and self._reader.positions.keys() != self._tokens.keys()
        asked = self._stopping.is_set() or self._membership.wanted() is not None
        return changed or asked or not self._may_work()

    def _may_work(self) -> bool:
        """Of who is put out the broker takes no commits; without one, a lease is needed."""
        return self._brokered or self._membership.holds()

    def _say_what_the_broker_gave(self) -> None:
        if self._membership.out:
            self._membership.rejoin()
            self._tokens.clear()
        has = dict.fromkeys(self._reader.positions, 0)
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
        except Exception as error:
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
        """Not without a lease: whoever has the partitions by then has committed further."""
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

    def _failed(self, error: Exception) -> None:
        """The user's code, or the sink: the batch comes again, later each time."""
        wait = backoff_seconds(self._failures, 0.5, _MOST_BACKOFF_SECONDS)
        if not self._failures:
            log.exception("a batch has failed; it comes again")
        self._failures += 1
        self._figures.enter(Phase.IDLE)
        self._figures.failed += 1
        self._figures.fault = f"{type(error).__name__}: {error}"
        self._again_ns = monotonic_ns() + round(wait * NS)
        self._reader.rewind()

    # --- what the controller wants ----------------------------------------------------------------

    def _obey(self) -> None:
        command = self._membership.wanted()
        if command is None or self._membership.out:
            return
        if self._brokered:
            self._membership.done(command.version, self._tokens)
            self._leaving = command.leave
            return
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

    def _watch(self) -> None:
        while not self._ended.wait(_WATCH_SECONDS):
            phase, seconds = self._figures.phase, self._figures.in_batch_seconds
            if phase is Phase.SINK and not self._may_work():
                end_process("the lease has ended while the sink was at work")
            if not self._membership.alive:
                end_process("the thread that speaks with the controller has failed")
            if seconds > self._table.batch_timeout:
                end_process(f"a batch takes longer than batch-timeout ({phase})")
