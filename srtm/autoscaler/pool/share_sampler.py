"""What is seen of a Kafka share group: rates, lags, latencies, and who consumes.

Kafka tells how many records of a partition the group has not finished (its lag), and not which. As
records are given out in their order, those are taken to be the last ones: then what was finished is
an offset again, and the rest is as for any group.
"""

import logging
import threading
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaException, TopicPartition

from srtm.autoscaler.live.capacity import Capacity
from srtm.autoscaler.live.monitor import SLOTS, Monitor, Sample
from srtm.autoscaler.pool.reading import PoolReading
from srtm.consumer.share_file import ShareFile
from srtm.host.clock import NS, monotonic_ns
from srtm.kafka.client import AWAY, LastFault, away, client_settings
from srtm.kafka.cut_off import let_go
from srtm.kafka.share import ShareGroup
from srtm.text.errors import SrtmError, UnavailableError

log = logging.getLogger("srtm.autoscale")

_ASK_SECONDS = 3.0
_RARELY_SECONDS = 5.0
"""between two looks at what changes rarely: the number of partitions, and their oldest records"""
_LATEST, _EARLIEST = -1, -2
"""the times by which ListOffsets asks for the ends of a partition"""


class ShareSampler:
    def __init__(self, file: ShareFile) -> None:
        """Raises UsageError for settings that the clients do not know."""
        self._file = file
        self._topic = file.group.topic
        self._monitor = Monitor(file.group.slo.target_seconds, file.group.reset)
        self._seconds = file.group.interval / SLOTS
        self._group = ShareGroup(file.kafka, file.group.id, self._topic)
        self._last = LastFault()
        name = f"srtm-autoscale-{file.group.id}"
        settings = client_settings(file.kafka, name, self._last)
        # It joins nothing, and no share group of this name is bothered by it.
        self._settings = {**settings, "group.id": name}
        self._consumer = Consumer(self._settings)
        self._starts: dict[int, int] = {}
        self._rarely_at = -_RARELY_SECONDS
        self._warned = 0
        self._finished: dict[int, int] = {}
        self._members: Mapping[str, str] = {}
        self._one = Capacity()
        self._part = 0.0
        self._finished_by_all = 0
        self._fault = ""
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._seen = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def aim(self, target_seconds: float) -> None:
        with self._lock:
            self._monitor.aim(target_seconds)

    def close(self) -> None:
        self._over.set()

    def wait_first(self, seconds: float) -> bool:
        return self._seen.wait(seconds)

    @property
    def faults(self) -> list[str]:
        return [self._fault] if self._fault else []

    def brokers(self) -> dict[str, str]:
        return {self._file.kafka.bootstrap_servers: self._fault}

    def read(self) -> PoolReading | None:
        faults = tuple(self.faults)
        if not self._seen.is_set():
            return None
        with self._lock:
            reading = self._monitor.read()
            waiting = sum(self._monitor.lag(p) for p in self._monitor.partitions)
            parts = tuple(f"{self._topic}/{p}" for p in self._monitor.partitions)
            ids = frozenset(self._members.values())
            clients = {f"{client}#{member}": 0 for member, client in sorted(self._members.items())}
            return PoolReading(reading, parts, clients, ids, waiting, faults=faults)

    def mu(self, consumer: str) -> float | None:
        """Kafka does not tell who finished what."""
        return None

    def mean_mu(self, consumers: int) -> float | None:
        """What one of those that Kafka names serves; where one was killed, that is a little less
        than what one serves, until Kafka has noticed."""
        with self._lock:
            return self._one.mu

    def least_mu(self) -> float | None:
        return None

    # --- its thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._over.is_set():
            begun = monotonic_ns()
            fault = ""
            try:
                self._look(begun / NS)
            except SrtmError as error:
                fault = str(error)
                if fault != self._fault:
                    log.warning("%s", error)
            except Exception as error:
                fault = f"the share group cannot be read: {error}"
                if fault != self._fault:
                    log.exception("the share group cannot be read")
            if self._fault and not fault:
                log.info("Kafka answers again")
            self._fault = fault
            self._over.wait(max(self._seconds - (monotonic_ns() - begun) / NS, 0.01))
        self._group.close()
        self._consumer.close()

    def _look(self, at: float) -> None:
        """Raises UnavailableError."""
        rarely = at - self._rarely_at >= _RARELY_SECONDS
        if rarely:
            partitions = self._partitions()
            self._starts = self._offsets(partitions, _EARLIEST)
            self._warn_of_many(len(partitions))
            self._rarely_at = at
        ends = self._offsets(list(self._starts), _LATEST)
        # Asked after the ends: what comes meanwhile would count as finished otherwise.
        lags = self._group.lags(ends)
        for partition, lag in lags.items():
            before = self._finished.get(partition, 0)
            before = before if before <= ends[partition] else 0  # the topic was made anew
            self._finished[partition] = max(ends[partition] - lag, before, 0)
        members = self._group.members()
        with self._lock:
            known = {p: self._finished[p] for p in lags}
            self._monitor.see(Sample(at, ends, self._starts, known))
            waiting = sum(self._monitor.lag(p) for p in ends)
            self._learn(at, members, waiting)
            self._members = members
        self._seen.set()

    def _warn_of_many(self, partitions: int) -> None:
        least = self._file.group.min
        if partitions > max(least, self._warned):
            self._warned = partitions
            log.warning(
                "topic %s has %d partitions, and min is %d: while consumers are fewer, Kafka gives "
                "each whole partitions, whatever they bring; a topic of few partitions is shared "
                "evenly",
                *(self._topic, partitions, least),
            )

    def _learn(self, at: float, members: Mapping[str, str], waiting: int) -> None:
        """Learn from an equal part of what all have finished. A window in which somebody came or
        went says nothing."""
        finished, count = sum(self._finished.values()), max(1, len(members))
        self._part += (finished - self._finished_by_all) / count
        self._finished_by_all = finished
        who = (count, hash(frozenset(members)))
        self._one.see(at, who, self._part, waiting / count)

    def _partitions(self) -> list[int]:
        try:
            found = self._consumer.list_topics(self._topic, timeout=_ASK_SECONDS).topics
        except KafkaException as error:
            raise self._away(error) from None
        topic = found.get(self._topic)
        if topic is None or topic.error is not None or not topic.partitions:
            where = self._file.kafka.bootstrap_servers
            raise UnavailableError(f"Kafka at {where} has no topic {self._topic}; create it")
        return sorted(topic.partitions)

    def _offsets(self, partitions: list[int], logical: int) -> dict[int, int]:
        asked = [TopicPartition(self._topic, each, logical) for each in partitions]
        try:
            found = self._consumer.offsets_for_times(asked, timeout=_ASK_SECONDS)
            for each in found:
                if each.error is not None:
                    raise KafkaException(each.error)
        except KafkaException as error:
            self._rarely_at = -_RARELY_SECONDS
            raise self._away(error) from None
        return {each.partition: each.offset for each in found}

    def _away(self, error: KafkaException) -> UnavailableError:
        """A new client asks the next time: this one may be cut off (see srtm.kafka.cut_off)."""
        self._consumer.poll(0)
        if error.args[0].code() in AWAY:
            old, self._consumer = [self._consumer], Consumer(self._settings)
            let_go(old)
        return UnavailableError(away(self._file.kafka, error, self._last.text))
