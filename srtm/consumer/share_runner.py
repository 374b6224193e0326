"""One consumer of a Kafka share group at work: gather, process, sink, accept (KIP-932).

Nothing is accepted that the sink does not have. A record is its consumer's alone for the group's
lock (30 s as a rule). What a consumer held that died goes to another at once, and what one that is
frozen holds after the lock; that one drops its batch before the sink. Kafka counts deliveries, and
gives a record to nobody any more after the group's limit. So a batch that fails is halved until the
record that fails is alone; it comes again, and once only one delivery is left it is a dead letter.
Where nothing goes well any more the sink is away: records are kept in hand and tried again for half
of the lock, so that deliveries last for a minute or more.
"""

import asyncio
import logging
import os
import random
import select
import signal
import threading
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import groupby

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
from srtm.text.errors import Exit, SrtmError, UnavailableError, UsageError, reason_of
from srtm.text.words import counted

log = logging.getLogger("srtm.consumer")

_POLL_SECONDS = 0.1
_COMMIT_SECONDS = 10.0
_LOOK_SECONDS = 1.0
"""between two looks whether Kafka is back"""
_END_SECONDS = 5.0
"""from the end of the batch in hand to that of the process, where Kafka does not answer"""
_MOST_BACKOFF_SECONDS = 5.0
_AGAIN_SECONDS = 0.5
_TRIES = 8
"""that fail one after the other, those of new records among them, after which the sink is away"""
_LIMITS_SECONDS = 10.0
"""between two looks at the group's limits, which may be altered while it works"""
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
        self._failures = 0  # polls of which nothing went well, one after the other
        self._in_a_row = 0  # tries that failed, since one did not
        self._away_ns = 0  # since when the sink is away, as it seems
        self._last_in_hand: dict[int, Message] = {}  # what came for the last time, not answered yet
        self._said = ""
        self._refused: UsageError | None = None  # what the group's limits have become
        self._asked_ns = self._answered_ns = boottime_ns()
        self._look_ns = 0

    def run(self) -> int:
        """Run the consumer until SIGTERM or SIGINT. Raises UnavailableError, UsageError."""
        self._stop.heed(signal.SIGTERM, signal.SIGINT)
        self._begin()
        self._figures.member(self.name, [])
        # The handler waits for the main thread, which may wait for Kafka: the watchdog does not.
        asked, tell = os.pipe()
        os.set_blocking(tell, False)
        signal.set_wakeup_fd(tell)
        watch = threading.Thread(target=self._watch, args=(asked,), name="watchdog", daemon=True)
        watch.start()
        threading.Thread(target=self._follow_the_limits, name="limits", daemon=True).start()
        log.info("%s consumes %s", self.name, self._file.group.topic)
        try:
            while not self._stop.asked:
                self._step()
        finally:
            self._figures.enter(Phase.IDLE)
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
        group.prepare(file.group.reset)
        self._group = group
        self._last = LastFault()
        self._consumer = ShareConsumer(
            {
                **client_settings(kafka, self.name, self._last),
                "group.id": file.group.id,
                "share.acknowledgement.mode": "explicit",
                "max.poll.records": self._table.batch,
                **({} if "fetch.wait.max.ms" in kafka.settings else {"fetch.wait.max.ms": 50}),
            }
        )
        self._consumer.subscribe([file.group.topic])
        try:
            self._look_at_the_limits()
            self._letters = DeadLetters(file, f"{self.name}-dead")
        except SrtmError:
            self._consumer.close()
            raise

    def _look_at_the_limits(self) -> None:
        """Raises UsageError, UnavailableError."""
        self._limits = limits = self._group.limits()
        if self._table.batch_timeout >= limits.lock_seconds:
            raise UsageError(
                f"batch-timeout of [consumer] is {self._table.batch_timeout:g} s, and after "
                f"{limits.lock_seconds:g} s Kafka gives a record to another consumer: "
                "give a shorter one, or the group a longer share.record.lock.duration.ms"
            )

    def _follow_the_limits(self) -> None:
        while not self._ended.wait(_LIMITS_SECONDS):
            try:
                self._look_at_the_limits()
            except UsageError as error:
                self._refused = error
                return
            except SrtmError:  # Kafka is away, as others say
                continue

    # --- a cycle ----------------------------------------------------------------------------------

    def _step(self) -> None:
        if self._refused is not None:
            raise self._refused
        self._figures.enter(Phase.GATHER)
        before, self._asked_ns = self._asked_ns, boottime_ns()
        try:
            found = list(self._consumer.poll(_POLL_SECONDS))
        except KafkaException as error:
            self._away(error)
            return
        except IllegalStateException as error:
            end_process(f"librdkafka does not go on: {error}; what it held comes again")
            return
        records = []
        for message in found:
            fault = message.error()
            if fault is None:
                records.append(message)
            else:
                self._figures.fault = told(fault)
        if records:
            # They may have been acquired since the poll before, but not before its answers.
            self._work(records, max(before, self._answered_ns))
        elif not found and not self._failures:
            self._figures.fault = self._silence()
        self._figures.enter(Phase.IDLE)

    def _work(self, records: list[Message], since_ns: int) -> None:
        """Work off what one poll has brought. A batch that fails is halved, and its halves come
        after all others: what is well is not held up. What cannot be tried in time is given back,
        but never what has come for the last time: Kafka would drop it."""
        last = [each for each in records if self._is_last(each)]
        self._last_in_hand = {id(each): each for each in last}
        waiting = deque([each] for each in last)
        waiting += _parts([each for each in records if not self._is_last(each)], self._table.batch)
        are_new = any(_deliveries(each) < 2 for each in records)
        fine = failed = 0
        while waiting:
            lapsed = boottime_ns() - since_ns > self._limits.lock_seconds * NS / 2
            part = waiting.popleft()
            is_last = self._is_last(part[0])
            if not is_last and (self._stop.asked or (lapsed and fine + failed)):
                rest = [each for one in (part, *waiting) for each in one if not self._is_last(each)]
                self._answer(rest, AcknowledgeType.RELEASE)
                waiting = deque(one for one in waiting if self._is_last(one[0]))
                continue
            error = self._try(part, since_ns)
            if error is None:
                fine += 1
                self._in_a_row = self._away_ns = 0
                continue
            self._tell(part, error)
            self._in_a_row += 1
            is_away = not fine and self._is_away(are_new)
            if is_away and not (is_last and (lapsed or self._stop.asked)):
                failed += 1
                self._wait_for_the_sink()
                waiting.append(part[:1])
                if len(part) > 1:
                    waiting.appendleft(part[1:])
                continue
            if len(part) > 1:
                failed += 1
                half = len(part) // 2
                waiting += (part[:half], part[half:])
            elif _deliveries(part[0]) < self._limits.deliveries - 1:
                failed += 1
                self._answer(part, AcknowledgeType.RELEASE)
            elif not self._bury(part[0], reason_of(error), since_ns):
                failed += 1
        if fine:
            self._failures = self._in_a_row = 0
        elif failed:
            wait = backoff_seconds(self._failures, random.random(), _MOST_BACKOFF_SECONDS)
            self._failures += 1
            self._figures.enter(Phase.IDLE)
            self._stop.wait(wait)

    def _is_away(self, are_new: bool) -> bool:
        """Is the sink away, as it seems? are_new: are there records that have not failed before?
        Those that have may be at fault, and are not waited with for longer than it takes to be
        given them as often as Kafka does."""
        now = boottime_ns()
        if self._in_a_row < _TRIES or not (are_new or self._away_ns):
            return False
        self._away_ns = self._away_ns or now
        patience = self._limits.deliveries * self._limits.lock_seconds * NS / 2
        return are_new or now - self._away_ns < patience

    def _is_last(self, message: Message) -> bool:
        return _deliveries(message) >= self._limits.deliveries

    def _wait_for_the_sink(self) -> None:
        """Wait with the records in hand: each time that they are given back is a delivery."""
        tries = self._in_a_row - _TRIES
        self._figures.enter(Phase.IDLE)
        self._stop.wait(backoff_seconds(tries, random.random(), _MOST_BACKOFF_SECONDS))

    def _try(self, part: list[Message], since_ns: int) -> BaseException | None:
        """Accept the records once the sink has them; otherwise the error, and nothing is
        answered."""

        def check() -> None:
            if boottime_ns() - since_ns >= self._limits.lock_seconds * NS:
                raise LeaseLost("the group's lock has passed: Kafka gives the records to others")

        begun = monotonic_ns()
        records = tuple(_record(each) for each in part)
        # A share group fences nobody, so all tokens are alike.
        tokens = {each.partition: 0 for each in records}
        try:
            check()
            self._do(Batch(records, tokens, check))
        except LeaseLost as lost:
            log.warning("%s: nothing of the batch goes to the sink", lost)
            self._figures.dropped += 1
            self._answer(part, AcknowledgeType.RELEASE)
            return None
        except (Exception, asyncio.CancelledError) as error:  # a task of the user's was cancelled
            return error
        self._figures.fault = ""
        self._answer(part, AcknowledgeType.ACCEPT)
        self._figures.served(records, (monotonic_ns() - begun) / NS)
        return None

    def _tell(self, part: list[Message], error: BaseException) -> None:
        fault = reason_of(error)
        if fault != self._said:
            log.error("a batch of %s has failed", counted(len(part), "record"), exc_info=error)
        self._said = self._figures.fault = fault
        self._figures.failed += 1

    def _bury(self, message: Message, reason: str, since_ns: int) -> bool:
        """Reject a record once it is a dead letter; is it one? Where that cannot be, it comes once
        more, and the last time it is tried as long as the record is ours: Kafka drops it then."""
        where, is_last = _place(message), self._is_last(message)
        ends_ns = since_ns + self._limits.lock_seconds * NS
        self._figures.enter(Phase.COMMIT)
        while True:
            try:
                self._letters.bury(message, reason)
            except UnavailableError as error:
                self._figures.fault = str(error)
                if is_last and boottime_ns() < ends_ns and not self._stop.wait(_AGAIN_SECONDS):
                    continue
                log.error("%s: %s: %s", where, reason, error)
                self._answer([message], AcknowledgeType.RELEASE)
                return False
            log.error("%s is a dead letter: %s", where, reason)
            self._figures.buried += 1
            self._answer([message], AcknowledgeType.REJECT)
            return True

    def _answer(self, chunk: Sequence[Message], kind: AcknowledgeType) -> None:
        """Tell Kafka what became of the records. What it does not hear comes again."""
        for each in chunk:
            self._last_in_hand.pop(id(each), None)
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
        """Raises UnavailableError where the client does nothing any more."""
        if error.args[0].fatal():
            raise UnavailableError(
                f"share group {self._file.group.id} cannot be used any more: {told(error)}; where "
                "that names no remedy, a group of another kind has this id, or share groups were "
                "switched off (share.version)"
            )
        self._figures.enter(Phase.IDLE)
        self._figures.fault = away(self._file.kafka, error, self._last.text)
        self._stop.wait(_POLL_SECONDS)

    # --- bounds -----------------------------------------------------------------------------------

    def _watch(self, asked: int) -> None:
        """asked: a file that has something to read once the process is to end"""
        idle_since_ns = 0
        while not self._ended.wait(_WATCH_SECONDS):
            in_batch = self._figures.in_batch_seconds
            if in_batch > self._table.batch_timeout:
                self._end_late(f"a batch takes longer than batch-timeout ({self._figures.phase})")
            if in_batch or not select.select([asked], [], [], 0)[0]:
                idle_since_ns = 0
                continue
            idle_since_ns = idle_since_ns or monotonic_ns()
            if monotonic_ns() - idle_since_ns > _END_SECONDS * NS:
                end_process("Kafka does not answer: what was not accepted comes again", Exit.OK)

    def _end_late(self, why: str) -> None:
        """End the process. Kafka drops what came for the last time: that is a dead letter now."""
        for each in list(self._last_in_hand.values()):
            try:
                self._letters.bury(each, why)
                log.error("%s is a dead letter: %s", _place(each), why)
            except UnavailableError as error:
                log.error("%s: %s: %s", _place(each), why, error)
        end_process(why)


def _parts(records: Sequence[Message], batch: int) -> Iterator[list[Message]]:
    """Batches of records that have come equally often, the fewest times first. What was given back,
    or whose consumer died, comes in smaller ones and then alone: one of them may be at fault."""
    ranked = sorted(records, key=_deliveries)
    for count, same in groupby(ranked, _deliveries):
        found = list(same)
        size = batch if count < 2 else max(1, batch // 8) if count < 3 else 1
        yield from (found[first : first + size] for first in range(0, len(found), size))


def _place(message: Message) -> str:
    """Where the record is, as the log has it."""
    return f"{message.topic()}/{message.partition()} at offset {message.offset()}"


def _deliveries(message: Message) -> int:
    return message.delivery_count() or 0


def _record(message: Message) -> Record:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return record_of(message, partition, offset)
