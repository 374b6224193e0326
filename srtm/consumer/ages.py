"""How old messages are when a consumer is done with them, as it tells a journey (`srtm.journey`).

A message's own time is when nsqd received it; what was before that only gateways know, and the
journey adds it. So the durations of every message are counted here, and of some, those of chosen
slots of nsqd's clock (srtm/limits/slots.py), the journey is told each by itself.
"""

import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from srtm.consumer.batch import Record
from srtm.host.clock import MOST_NS
from srtm.limits.bins import Bins, bins_of
from srtm.limits.slots import HIGHEST_LEVEL, level_of, slot_of
from srtm.nsq.checksum import checksum

MOST_SAMPLES = 1_000
"""of one topic in one report: some 60 KiB"""
MOST_TOPICS = 8
"""of NSQ that one consumer tells of; a Kafka topic may be fed from several"""
_MOST_COUNTED = 20_000
"""durations that are kept one by one, until they are counted by bin"""

Sample = tuple[int, int, int, int, int]
"""nsqd's time, checksum of the body, and nanoseconds in the bridge, until it was in hand, and until
it was done with"""


class _OfTopic:
    """What was seen of one topic of NSQ since the last report."""

    def __init__(self, level: int) -> None:
        self.level = level
        self.count = 0
        self.samples: list[Sample] = []
        self._durations: list[tuple[int, int]] = []
        self._bridge: Bins = Counter()
        self._consumer: Bins = Counter()

    def see(self, received: int, record: Record, bridge: int, queue: int, processing: int) -> None:
        self.count += 1
        self._durations.append((bridge, queue + processing))
        if len(self._durations) >= _MOST_COUNTED:
            self._fold()
        if level_of(slot_of(received)) < self.level:
            return
        body = checksum(record.value or b"")
        self.samples.append((received, body, bridge, queue, processing))
        while len(self.samples) > MOST_SAMPLES and self.level < HIGHEST_LEVEL:
            self.level += 1
            self.samples = [
                each for each in self.samples if level_of(slot_of(each[0])) >= self.level
            ]

    def _fold(self) -> None:
        if self._durations:
            values = np.maximum(np.array(self._durations, dtype=np.float64), 0.0)
            ones = np.ones(len(values), dtype=np.int64)
            self._bridge.update(bins_of(values[:, 0], ones))
            self._consumer.update(bins_of(values[:, 1], ones))
            self._durations = []

    @property
    def next_level(self) -> int:
        return max(0, self.level - (len(self.samples) * 4 < MOST_SAMPLES))

    def document(self) -> dict[str, Any]:
        self._fold()
        return {
            "count": self.count,
            "level": self.level,
            "bridge": self._bridge,
            "consumer": self._consumer,
            "samples": self.samples[:MOST_SAMPLES],
        }


class Ages:
    """What has been seen since the last report. The main thread sees, another one reports."""

    def __init__(self, topic: str) -> None:
        """topic: of NSQ, of records that do not name theirs; empty: they come from elsewhere"""
        self._topic = topic
        self._lock = threading.Lock()
        self._topics: dict[str, _OfTopic] = {}
        self._unknown = 0
        self.wanted: frozenset[str] | None = None
        """topics that the journey asks for; None: it has not said"""

    def see(self, records: Sequence[Record], in_hand: int, done: int) -> None:
        """A batch was in hand, and the sink had all of it: nanoseconds of the wall clock, as nsqd's
        own time is."""
        with self._lock:
            for record in records:
                topic, received, queued = self._origin(record)
                seen = self._of(topic) if topic and received else None
                if seen is None:
                    self._unknown += 1
                else:
                    bridge, queue = queued - received, in_hand - queued
                    seen.see(received, record, bridge, queue, done - in_hand)

    def _of(self, topic: str) -> _OfTopic | None:
        seen = self._topics.get(topic)
        is_wanted = self.wanted is None or topic in self.wanted
        if seen is None and is_wanted and len(self._topics) < MOST_TOPICS:
            seen = self._topics[topic] = _OfTopic(0)
        return seen

    def _origin(self, record: Record) -> tuple[str, int, int]:
        """Its topic of NSQ, when nsqd received it, and when Kafka had it (an NSQ consumer's: the
        same). 0 where nobody says."""
        topic, received = self._topic, 0
        for name, value in record.headers:
            if name == "nsq-time" and value is not None and value.isdigit() and len(value) < 20:
                received = int(value) if int(value) < MOST_NS else 0
            elif name == "nsq-topic" and value is not None:
                topic = value[:64].decode(errors="replace")
        at = record.timestamp
        queued = round(at * 1e9) if at is not None and 0 <= at * 1e9 < MOST_NS else received
        return topic, received, max(received, queued)

    def report(self) -> dict[str, Any]:
        """What was seen since the last report, as a document; the next one begins.

        unknown: messages without a topic or a time of NSQ's, which others have written to Kafka
        topics:  by topic of NSQ. Of every message, count, bridge and consumer (queue and processing
                 together), by bin (srtm/limits/bins.py); samples are of slots of `level` and above
        """
        with self._lock:
            topics, unknown = self._topics, self._unknown
            self._topics = {
                name: _OfTopic(each.next_level)
                for name, each in topics.items()
                if each.count or each.level
            }
            self._unknown = 0
        return {
            "unknown": unknown,
            "topics": {name: each.document() for name, each in topics.items() if each.count},
        }
