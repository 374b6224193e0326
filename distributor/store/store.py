"""The narrow door to what the distributor keeps; one suite of tests holds for every back end.

All calls may take as long as a disk does and are made from one thread, off the event loop.
"""

import os
import re
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from importlib import resources
from typing import TypeVar

from distributor.store.rows import (
    BrokerRow,
    FittingRow,
    GrantRow,
    LineageRow,
    ModelRow,
    PlacementRow,
    PublisherRow,
    Snapshot,
    TopicRow,
)
from distributor.store.statements import COPIED, Statement, Value

Row = TypeVar("Row")


class Store(ABC):
    """Open, and migrated to this program's schema by whoever leads."""

    @abstractmethod
    def lead(self, name: str = "") -> bool:
        """Try to become the one writer; True where that worked or was so. The schema is there
        then. name: of this process, for people. Raises StoreError."""

    def unseat(self, silent_seconds: float) -> bool:
        """Take the lead from a process that has asked the store nothing for so long: it is frozen,
        and will find that it leads no more. False where nobody is, or the lead cannot be taken: an
        flock cannot, from a process that still runs. Raises StoreError."""
        return False

    @abstractmethod
    def confirm(self) -> None:
        """Raises StoreLost where somebody else may lead by now, or where what was opened is not
        what a restart would open."""

    def leader(self) -> str:
        """The process that leads, or led last, in words."""
        return str(self.query("SELECT process FROM leader")[0][0])

    @abstractmethod
    def write(self, statements: Sequence[Statement]) -> None:
        """One transaction: all of it is on disk when this returns. Raises StoreError where nothing
        was kept, StoreLost where that is not known."""

    @abstractmethod
    def query(self, sql: str) -> list[tuple[Value, ...]]:
        """Rows of a SELECT without parameters. Raises StoreError."""

    @abstractmethod
    def close(self) -> None: ...

    def snapshot(self) -> Snapshot:
        """Everything that is kept. Only the leader's is sure to be whole."""
        return Snapshot(
            epoch=self._counter("epoch"),
            lease_seconds=self._counter("lease_ms") / 1000,
            brokers=self._rows(
                _broker,
                "SELECT name, tcp_address, http_address, capacity, draining, instance "
                "FROM brokers ORDER BY name",
            ),
            topics=self._rows(
                TopicRow,
                "SELECT topic, contract, keys, adaptation, migration, grouping FROM topics "
                "ORDER BY topic",
            ),
            publishers=self._rows(
                PublisherRow,
                "SELECT topic, id, key, rate, broker FROM publishers ORDER BY topic, id",
            ),
            placements=self._rows(
                PlacementRow,
                "SELECT topic, epoch, at, policy, document FROM placements ORDER BY topic, epoch",
            ),
            grants=self._rows(
                GrantRow,
                "SELECT topic, broker, epoch, rate, burst, least, grace FROM grants "
                "ORDER BY topic, broker, epoch",
            ),
            fittings=self._rows(FittingRow, "SELECT topic, document FROM fittings ORDER BY topic"),
            model=self._rows(
                ModelRow, "SELECT broker, document FROM capacity_model ORDER BY broker"
            ),
            lineage=next(
                iter(self._rows(_lineage, "SELECT id, secret, unsure FROM lineage")), None
            ),
            lost=self._rows(str, "SELECT topic FROM lost_topics ORDER BY topic"),
        )

    def at_one_instant(self) -> Snapshot:
        """The snapshot of a store in which somebody else may write. Raises StoreError."""
        return self.snapshot()

    def _counter(self, name: str) -> int:
        values = self.query(f"SELECT value FROM counters WHERE name = '{name}'")
        return int(values[0][0] or 0) if values else 0

    def _rows(self, make: Callable[..., Row], sql: str) -> tuple[Row, ...]:
        return tuple(make(*values) for values in self.query(sql))


def this_process(address: str = "") -> str:
    """The name of this process as the leader, for people. address: of its door"""
    at = f", at {address}" if address else ""
    return f"process {os.getpid()} on {socket.gethostname()}{at}"


def _broker(
    name: str, tcp: str, http: str, capacity: float, draining: int, instance: str
) -> BrokerRow:
    return BrokerRow(name, tcp, http, capacity, bool(draining), instance)


def _lineage(id_: str, secret: str, unsure: int) -> LineageRow:
    return LineageRow(id_, secret, unsure == 1, unsure == COPIED)


def migrations(since: int) -> Iterator[tuple[int, list[str]]]:
    """(number, statements) of every step after `since`, from files named 0001_words.sql."""
    folder = resources.files("distributor.store") / "migrations"
    for file in sorted(folder.iterdir(), key=lambda each: each.name):
        found = re.fullmatch(r"([0-9]{4})_\w+\.sql", file.name)
        if found and int(found[1]) > since:
            text = file.read_text("utf-8")
            yield int(found[1]), [each.strip() for each in text.split(";") if each.strip()]


def latest() -> int:
    """The schema that this program writes."""
    return max(number for number, _ in migrations(0))
