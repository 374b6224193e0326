"""One consumer of an NSQ channel at work: gather, process, sink, FIN.

Nothing is finished that the sink does not have. What a consumer holds that dies comes to another
after msg-timeout; one that was frozen for longer than that drops its batch before the sink. A batch
that fails is requeued, later each time, and the next ones are smaller, down to one message: so a
message that cannot be processed is soon alone, and holds up nobody. SIGTERM drains: RDY 0, what has
come is worked off, and the process ends.
"""

import asyncio
import logging
import os
import random
import signal
import threading
import uuid

from srtm.consumer.batch import Batch, LeaseLost, Record
from srtm.consumer.figures import Figures, Phase
from srtm.consumer.file import ConsumerTable
from srtm.consumer.pool_file import PoolFile
from srtm.consumer.process import LAUNCH
from srtm.consumer.subscription import Delivery, Subscription
from srtm.consumer.work import Work, end_process
from srtm.host.backoff import backoff_seconds
from srtm.host.clock import NS, monotonic_ns
from srtm.host.stop import Stop
from srtm.text.errors import Exit, reason_of

log = logging.getLogger("srtm.consumer")

_MOST_BACKOFF_SECONDS = 30.0
_WATCH_SECONDS = 0.05
_TOKENS = {0: 0}
"""NSQ fences nobody."""


class PoolRunner:
    def __init__(self, file: PoolFile, table: ConsumerTable, work: Work, figures: Figures) -> None:
        self._table = table
        self._do = work
        self._figures = figures
        self._topic = file.nsq.topic
        self.name = os.environ.get(LAUNCH) or f"consumer-{uuid.uuid4().hex[:12]}"
        self._subscription = Subscription(file.nsq, table, self.name)
        self._most = table.batch
        self._stop = Stop()
        self._ended = threading.Event()
        self._failures = 0
        self._again_ns = 0

    def run(self) -> int:
        """Run the consumer until SIGTERM or SIGINT."""
        self._stop.heed(signal.SIGTERM, signal.SIGINT)
        self._figures.member(self.name, [])
        self._subscription.start()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()
        log.info("%s consumes %s", self.name, self._topic)
        while not self._stop.asked:
            self._step()
        self._drain()
        self._ended.set()
        self._do.close()
        log.info("%s has left", self.name)
        return Exit.OK

    def _step(self) -> None:
        if not self._failures:
            self._figures.fault = self._subscription.fault
        if self._stop.wait(max(self._again_ns - monotonic_ns(), 0) / NS):
            return
        self._figures.enter(Phase.GATHER)
        found = self._subscription.gather(self._most, self._interrupted)
        if found:
            self._work(found)

    def _interrupted(self) -> bool:
        faulty = not self._failures and self._figures.fault != self._subscription.fault
        return self._stop.asked or faulty

    def _drain(self) -> None:
        self._subscription.drain()
        self._again_ns = 0
        while found := self._subscription.left(self._most):
            self._work(found)
        self._figures.enter(Phase.IDLE)
        self._subscription.close()

    def _work(self, found: list[Delivery]) -> None:
        def check() -> None:
            if not self._subscription.holds(found):
                raise LeaseLost("msg-timeout has passed: nsqd gives the messages to others")

        begun = monotonic_ns()
        records = tuple(_record(self._topic, each) for each in found)
        try:
            self._do(Batch(records, _TOKENS, check))
        except LeaseLost as lost:
            log.warning("%s: nothing of the batch goes to the sink", lost)
            self._figures.enter(Phase.IDLE)
            self._figures.dropped += 1
            self._subscription.requeue(found, [0.0] * len(found))
            return
        except (Exception, asyncio.CancelledError) as error:  # a task of the user's was cancelled
            self._failed(found, error)
            return
        self._figures.enter(Phase.COMMIT)
        self._subscription.finish(found)
        self._figures.enter(Phase.IDLE)
        self._failures = 0
        self._allow(2 * self._most)
        self._figures.served(records, (monotonic_ns() - begun) / NS)

    def _failed(self, found: list[Delivery], error: BaseException) -> None:
        if not self._failures:
            log.exception("a batch has failed; its messages come again")
        wait = backoff_seconds(self._failures, random.random(), _MOST_BACKOFF_SECONDS)
        self._failures += 1
        self._figures.enter(Phase.IDLE)
        self._figures.failed += 1
        self._figures.fault = reason_of(error)
        self._again_ns = monotonic_ns() + round(wait * NS)
        self._allow(len(found) // 2)
        self._subscription.requeue(found, [_delay(each.attempts) for each in found])
        self._subscription.hold(wait)

    def _allow(self, most: int) -> None:
        """Allow `most` messages in a batch, and under way: 1 at least, and no more than `batch`."""
        self._most = min(max(most, 1), self._table.batch)
        self._subscription.ready = self._most

    def _watch(self) -> None:
        while not self._ended.wait(_WATCH_SECONDS):
            if not self._subscription.alive:
                end_process("the thread that speaks with nsqd has failed")
            if self._figures.in_batch_seconds > self._table.batch_timeout:
                end_process(f"a batch takes longer than batch-timeout ({self._figures.phase})")


def _delay(attempts: int) -> float:
    """Seconds until a message that failed `attempts` times comes again."""
    return backoff_seconds(attempts, random.random(), _MOST_BACKOFF_SECONDS)


def _record(topic: str, each: Delivery) -> Record:
    """offset: the message's id as a number; partition: 0, as a channel has none."""
    try:
        number = int(each.id, 16)
    except ValueError:
        number = int.from_bytes(each.id)
    return Record(
        topic=topic,
        partition=0,
        offset=number & (2**63 - 1),
        key=None,
        value=each.body,
        headers=(
            ("nsq-id", each.id),
            ("nsq-attempts", b"%d" % each.attempts),
            ("nsq-host", each.host.address.encode()),
            ("nsq-time", b"%d" % each.time_ns),
        ),
        timestamp=each.time_ns / 1e9,
    )
