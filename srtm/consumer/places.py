"""Where a consumer stands in each of its partitions, and what of that is committed. Pure.

A place is an offset of a topic that is known by its id, with the number of records before it that
the group has done. Both are committed beside the offset, so whoever goes on from there knows them,
and so does whoever watches.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from srtm.consumer.batch import Record
from srtm.kafka.place import Note, read_note


@dataclass(frozen=True, slots=True)
class Place:
    """note: for the metadata of its commit"""

    offset: int
    note: str


@dataclass(slots=True)
class Places:
    """offsets: partition -> the offset that is processed next; topic_id: empty while not known
    has_moved: is there something to be committed?"""

    topic_id: str = ""
    offsets: dict[int, int] = field(default_factory=dict)
    has_moved: bool = False
    _records: dict[int, int] = field(default_factory=dict)
    _ends: dict[int, int] = field(default_factory=dict)
    _committed: dict[int, Place] = field(default_factory=dict)

    def begin(self, partition: int, offset: int, metadata: str | None = None) -> bool:
        """Begin a partition with what is committed, or where nothing is, at `offset` with
        `metadata` None. False where that is another topic's place: the partition begins at 0."""
        note = read_note(metadata)
        mine = note.is_of(self.topic_id)
        self.offsets[partition] = offset if mine else 0
        self._records[partition] = note.records or 0
        self._committed.pop(partition, None)
        if metadata is not None:
            self._committed[partition] = Place(offset, metadata)
        self.has_moved = True
        return mine

    def begin_at(self, partition: int, offset: int) -> None:
        """Kafka does not have what was to come next."""
        self.offsets[partition], self.has_moved = offset, True

    def begin_anew(self, topic_id: str) -> None:
        """Another topic has the name: every partition begins at 0."""
        self.topic_id = topic_id
        self.offsets = dict.fromkeys(self.offsets, 0)
        self._ends.clear()
        self.has_moved = True

    def drop(self, partitions: Iterable[int]) -> None:
        for each in partitions:
            for known in (self.offsets, self._records, self._ends, self._committed):
                known.pop(each, None)

    def reach(self, partition: int, offset: int) -> None:
        """Note that all that the log has before `offset` was taken: what is not done of it is in
        hand."""
        if partition in self.offsets:
            self._ends[partition] = offset

    def rewind(self) -> None:
        """What was taken and is not done is read again."""
        self._ends.clear()

    def done(self, records: Iterable[Record] = ()) -> None:
        """The sink has all that was taken: markers of transactions behind it are passed too."""
        for each in records:
            self.has_moved = True
            if each.partition in self.offsets:
                at = self.offsets[each.partition]
                self.offsets[each.partition] = max(each.offset + 1, at)
                self._records[each.partition] += 1
        for partition, end in self._ends.items():
            if end > self.offsets[partition]:
                self.offsets[partition], self.has_moved = end, True
        self._ends.clear()

    def moved(self) -> dict[int, Place]:
        """What is to be committed."""
        places = {p: self._place(p, at) for p, at in self.offsets.items() if at >= 0}
        return {p: each for p, each in places.items() if self._committed.get(p) != each}

    def _place(self, partition: int, offset: int) -> Place:
        return Place(offset, str(Note(self.topic_id, self._records[partition])))

    def committed(self, places: Mapping[int, Place]) -> None:
        """Kafka has taken them."""
        self._committed.update((p, each) for p, each in places.items() if p in self.offsets)
        self.has_moved = False

    def commit_again(self) -> None:
        self._committed.clear()
        self.has_moved = True
