"""What is committed beside an offset, as its metadata. Pure.

An offset alone is no place: the topic may be made anew while a commit is under way, or while a
partition changes hands, and the same number is another record then. Nor is it a number of records:
markers of transactions, records of aborted ones and compacted ones have offsets too.
"""

from dataclasses import dataclass

_SIGN = "srtm"


@dataclass(frozen=True, slots=True)
class Note:
    """topic_id: of the topic whose offset it is; empty: not known
    records: of the partition that the group has done up to the offset, since it counts; None: it
             does not"""

    topic_id: str = ""
    records: int | None = None

    def __str__(self) -> str:
        return f"{_SIGN}:{self.topic_id}:{'' if self.records is None else self.records}"

    def is_of(self, topic_id: str) -> bool:
        """False where it is known to be another topic's."""
        return not self.topic_id or not topic_id or self.topic_id == topic_id


def read_note(text: str | None) -> Note:
    """The note in a commit's metadata, whoever made it; an empty note for what others write
    there."""
    sign, _, rest = (text or "").partition(":")
    topic_id, _, records = rest.partition(":")
    if sign != _SIGN or len(records) > 18 or not (records.isdecimal() or not records):
        return Note()
    return Note(topic_id, int(records) if records else None)
