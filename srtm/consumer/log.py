"""The group's own partition: what is said is written to it, and read from it in order."""

import logging
import threading

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from srtm.consumer.file import GroupFile
from srtm.consumer.topic import Look, TopicWatch, make_topic
from srtm.consumer.wire import Word, Written, decode, encode, tombstones
from srtm.host.clock import NS, boottime_ns
from srtm.kafka.client import MAKES_NONE, client_settings, told
from srtm.kafka.cut_off import CUT_OFF, CutOff
from srtm.text.errors import UnavailableError

log = logging.getLogger("srtm.consumer")

_QUIET_LEASES = 1.0
"""Who writes beats reads them back five times in a lease: without a word for so long it was away,
or Kafka was, and the topic may be another one. In less no lease can have ended."""
_LOOK_NS = NS
WORDS = {
    "acks": "all",
    "linger.ms": 0,
    "max.in.flight.requests.per.connection": 1,
    **MAKES_NONE,
}
"""settings of the producer of words"""


class GroupLog:
    """Reads from the beginning. Writes are in order, and given up after a lease: what is older than
    that helps nobody.

    keeps: it writes beats, so it knows when the topic falls silent, and makes it anew where it is
           gone
    fault: what is wrong with the topic; "" while nothing is known to be
    """

    def __init__(self, file: GroupFile, client: str, keeps: bool = False) -> None:
        self.fault = ""
        self.caught_up = False
        """Has all been read that was there at the start?"""
        self.begun_anew = False
        """Set where the topic was made anew. Whoever sees it sets it back."""
        self._file = file
        self._held: list[Message] = []
        self._quiet_ns = round(_QUIET_LEASES * file.group.lease * NS)
        self._heard_ns = self._looked_ns = boottime_ns()
        self._topic_watch = TopicWatch(file, client) if keeps else None
        if self._topic_watch is not None:
            self._topic_watch.look()
        self._group = f"{file.group.id}/{file.group.topic}"
        self._topic = file.group.metadata
        self._next = self._end_ns = 0
        self._end: int | None = None
        self._client = client
        self._open()

    def _open(self) -> None:
        """Open the log with clients that know nothing of a topic that was there before: librdkafka
        takes no leader of a partition whose epoch is below one that it has seen, and a new topic
        begins at 0."""
        self._next, self._end, self.caught_up = 0, None, False
        self._connect(OFFSET_BEGINNING)

    def _connect(self, begin: int) -> None:
        settings = client_settings(self._file.kafka, self._client)
        self._producer = Producer(
            {
                **settings,
                **WORDS,
                "message.timeout.ms": max(round(self._file.group.lease * 1e3), 1000),
            }
        )
        self._consumer = Consumer(
            {
                **settings,
                "group.id": self._file.group.id,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 500,
                "fetch.queue.backoff.ms": 5,
                "enable.partition.eof": False,
            }
        )
        self._cut_off = CutOff(settings), CutOff({**settings, "group.id": self._file.group.id})
        self._consumer.assign([TopicPartition(self._topic, 0, begin)])

    def write(self, word: Written) -> None:
        """Any thread; it comes back by `read`, or never."""
        key, value = encode(self._group, word)
        self._produce(key, value)

    def end(self, member: str) -> None:
        """Write tombstones for all that is kept of the member."""
        for key in tombstones(self._group, member):
            self._produce(key, None)

    def _produce(self, key: bytes, value: bytes | None) -> None:
        try:
            self._producer.produce(self._topic, value, key, 0)
        except BufferError:
            log.warning("Kafka takes nothing: a word to the group is dropped")
        except KafkaException as error:  # the topic is gone: `read` sees to it
            log.warning("a word to the group is dropped: %s", told(error))
        self._producer.poll(0)

    def read(self, seconds: float) -> list[Word]:
        """What came, at most `seconds` after the call."""
        first = self._consumer.poll(seconds)
        found = [] if first is None else [first, *self._consumer.consume(1000, 0)]
        self._producer.poll(0)
        self._held += [each for each in found if not each.error()]
        if not self._is_the_same_topic():
            return []
        words: list[Word] = []
        messages, self._held = self._held, []
        for message in messages:
            offset = message.offset()
            if offset is None:
                continue
            if offset < self._next:
                self.begun_anew = True
                self._end, self.caught_up = None, False
                words.clear()
            self._next = offset + 1
            word = decode(self._group, _bytes(message.key()), _bytes(message.value()))
            if word is not None:
                words.append(word)
        if not self.caught_up:
            self._look_for_the_end()
        return words

    def _is_the_same_topic(self) -> bool:
        """False: it is not, or nobody knows, and what was read has to wait."""
        now = boottime_ns()
        quiet = now - self._heard_ns > self._quiet_ns
        if self._topic_watch is None or not quiet:
            self._heard_ns = now if self._held else self._heard_ns
            return True
        if not self._held and now - self._looked_ns < _LOOK_NS:
            return True
        self._looked_ns = now
        look = self._topic_watch.look()
        if look in (Look.SAME, Look.UNKNOWN) and not self._held and self._is_cut_off():
            log.warning("%s: %s", self._topic, CUT_OFF)
            self._close_beside()
            self._connect(self._next or OFFSET_BEGINNING)
        if look is Look.SAME:
            self._heard_ns = boottime_ns() if self._held else self._heard_ns
            self.fault = ""
            return True
        if look is Look.GONE:
            self._make_again()
        elif look is Look.ANEW:
            self._held.clear()
            self.begun_anew = True
            self._heard_ns = boottime_ns()
            self.fault = ""
            self._close_beside()
            self._open()
        return not self._held

    def _is_cut_off(self) -> bool:
        """Each of the two clients may be cut off by itself."""
        writes, reads = self._cut_off
        found = writes.look(self._producer), reads.look(self._consumer)
        return any(found)

    def _close_beside(self) -> None:
        """librdkafka may wait for an answer of Kafka, for longer than a lease."""
        threading.Thread(target=self._consumer.close, name="old-client", daemon=True).start()

    def _make_again(self) -> None:
        self.fault = f"topic {self._topic} is gone; it is made anew"
        log.error("%s", self.fault)
        self._held.clear()
        try:
            make_topic(self._file)
        except UnavailableError as error:
            self.fault = f"topic {self._topic} is gone, and cannot be made anew: {error}"

    def _look_for_the_end(self) -> None:
        partition = TopicPartition(self._topic, 0)
        try:
            if self._end is None or boottime_ns() - self._end_ns > _LOOK_NS:  # or it is another's
                _, self._end = self._consumer.get_watermark_offsets(partition, 1.0)
                self._end_ns = boottime_ns()
            (position,) = self._consumer.position([partition])
        except KafkaException:
            return
        # Where compaction took the last records the position goes on to the end all the same.
        self.caught_up = self._next >= self._end or position.offset >= self._end

    def close(self, seconds: float = 2.0) -> None:
        """What is on its way is waited for."""
        self._producer.flush(seconds)
        self._consumer.close()


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
