"""The data side of a consumer: what it has gathered, where it stands, what is committed."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping

from srtm.consumer.batch import Record
from srtm.consumer.file import ConsumerTable, GroupFile
from srtm.consumer.places import Place, Places
from srtm.host.clock import NS, monotonic_ns
from srtm.kafka.topic_ids import TopicIds

log = logging.getLogger("srtm.consumer")


class Records(ABC):
    """Whoever says which partitions it has, and by whichever client it reads them.

    fault: why nothing comes, or is not committed; "" while all is well
    """

    def __init__(self, file: GroupFile, table: ConsumerTable, client: str) -> None:
        self.fault = ""
        self._places = Places()
        self._topic = file.group.topic
        self._reset = file.group.reset
        self._table = table
        self._gathered: list[Record] = []
        self._bytes = 0
        self._due_ns = 0
        self._ids = TopicIds(file.kafka, client)
        self._is_anew = False

    # --- what the runner calls --------------------------------------------------------------------

    @property
    def positions(self) -> Mapping[int, int]:
        """partition -> the offset that is processed next"""
        return self._places.offsets

    def tokens(self) -> dict[int, int]:
        """partition -> a number that grows with each change of its owner; 0: there is none"""
        return dict.fromkeys(self.positions, 0)

    @abstractmethod
    def gather(self, interrupted: Callable[[], bool]) -> list[Record]:
        """Phase 1: until there are `batch` records or `batch-bytes`, or `wait` after the first one.
        Nothing where `interrupted`, and what was gathered stays for the next call; nothing also
        where there is only something to be committed."""

    @abstractmethod
    def rewind(self) -> None:
        """Read again from where the last commit stands: a batch was dropped."""

    def done(self, records: Iterable[Record]) -> None:
        """The sink has them: what is committed next."""
        self._places.done(records)

    def commit(self) -> bool:
        """False: Kafka did not take it; the positions stay, and go with the next commit."""
        moved = self._places.moved()
        refusal = self._write(moved) if moved else ""
        if refusal:
            self.fault = f"offsets are not committed: {refusal}"
            log.warning("%s", self.fault)
            return False
        self._places.committed(moved)
        self.fault = "" if moved else self.fault
        return True

    @abstractmethod
    def pause(self) -> None:
        """Wait a moment while nothing is to be done; the client is kept alive, and joins in
        rebalances. No more is kept than a batch."""

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def _write(self, places: Mapping[int, Place]) -> str:
        """Commit the places. Why Kafka did not take them; "" where it did."""

    # --- what is in hand --------------------------------------------------------------------------

    @property
    def _is_full(self) -> bool:
        whole = len(self._gathered) >= self._table.batch
        return whole or self._bytes >= self._table.batch_bytes

    def _keep(self, record: Record) -> None:
        if not self._gathered:
            self._due_ns = monotonic_ns() + round(self._table.wait * NS)
        self._gathered.append(record)
        self._bytes += _size(record)

    def _batch(self, at_once: bool) -> list[Record]:
        """What is in hand where it is a batch, or is due; nothing where more is waited for."""
        due = self._gathered and (at_once or monotonic_ns() >= self._due_ns)
        if not due and not self._is_full:
            return []
        found, self._gathered, self._bytes = self._gathered, [], 0
        return found

    def _let_go(self) -> None:
        self._gathered, self._bytes = [], 0
        self._places.rewind()

    def _drop(self, partitions: Collection[int]) -> None:
        """What was gathered of them and is not processed is left to the next owner."""
        self._places.drop(partitions)
        self._gathered = [each for each in self._gathered if each.partition not in partitions]
        self._bytes = sum(map(_size, self._gathered))

    # --- a topic that is made anew ----------------------------------------------------------------

    def _made_anew(self, _: str) -> bool:
        """Note that the topic was made anew; this is seen to when nothing is in hand."""
        self._is_anew = True
        return True

    def _has_none(self) -> bool:
        """Has it no partition yet? The first ones are those of the topic that there is now."""
        if self.positions:
            return False
        self._places.topic_id = self._ids.of(self._topic)
        if self._is_anew:
            self._say_anew(self._topic)
        return True

    def _begin_anew(self) -> None:
        self._is_anew = False
        self._places.begin_anew(self._ids.of(self._topic))
        if self.positions:
            self._say_anew(self._topic)

    def _say_anew(self, what: str) -> None:
        log.warning("%s was made anew: it is read from its beginning", what)


def _size(record: Record) -> int:
    return len(record.value or b"") + len(record.key or b"")
