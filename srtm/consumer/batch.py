"""What a user's function and a sink are given."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass


class LeaseLost(Exception):
    """The partitions may be somebody else's by now; the batch is dropped, and read again by whoever
    has them."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record of Kafka's. timestamp: seconds since 1970 by its producer, or None."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: float | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """records: in order of offset within each partition
    tokens:  partition -> a number that grows with each change of its owner. A store that remembers
             the largest that it saw, and refuses smaller ones, is never written by two
    check:   raises LeaseLost; call it last before what cannot be undone, where that takes long
    """

    records: tuple[Record, ...]
    tokens: Mapping[int, int]
    check: Callable[[], None]

    @property
    def ranges(self) -> dict[int, tuple[int, int]]:
        """partition -> (first, last offset)"""
        found: dict[int, tuple[int, int]] = {}
        for each in self.records:
            first, _ = found.get(each.partition, (each.offset, 0))
            found[each.partition] = (first, each.offset)
        return found
