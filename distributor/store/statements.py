"""Every write, as SQL that SQLite and PostgreSQL both take. A statement and its rows are data:
several of them, of several requests, make one transaction."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from math import ceil

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

HISTORY = 100
"""placements of a topic that are kept; one is a few kB"""

COPIED = 2
"""in place of `unsure`"""

Value = str | float | int | None


@dataclass(frozen=True, slots=True)
class Statement:
    """`sql` with a `?` for each value, run once for each of `rows`."""

    sql: str
    rows: Sequence[tuple[Value, ...]]


def put_leader(term: str, process: str) -> Statement:
    """The one row that says who leads. Part of becoming the leader; each write looks at it."""
    return Statement(
        "UPDATE leader SET term = ?, process = ?",
        [(term, process)],
    )


def put_lineage(row: LineageRow) -> list[Statement]:
    return [
        Statement("DELETE FROM lineage", [()]),
        Statement(
            "INSERT INTO lineage (id, secret, unsure) VALUES (?, ?, ?)",
            [(row.id, row.secret, COPIED if row.copied else int(row.unsure))],
        ),
    ]


def put_copied() -> Statement:
    """This store was restored from a copy."""
    return Statement("UPDATE lineage SET unsure = ? WHERE unsure = 0", [(COPIED,)])


def merged(statements: Iterable[Statement]) -> list[Statement]:
    """Those of the same SQL as one, for rows that do not depend on each other."""
    found: dict[str, list[tuple[Value, ...]]] = {}
    for each in statements:
        found.setdefault(each.sql, []).extend(each.rows)
    return [Statement(sql, rows) for sql, rows in found.items()]


def put_lost(topics: Iterable[str]) -> Statement:
    """Topics of which gateways know that they have a contract, and nobody knows which."""
    return Statement(
        "INSERT INTO lost_topics (topic) VALUES (?) ON CONFLICT (topic) DO NOTHING",
        [(topic,) for topic in topics],
    )


def delete_lost(topic: str) -> Statement:
    return Statement("DELETE FROM lost_topics WHERE topic = ?", [(topic,)])


def put_epoch(epoch: int) -> Statement:
    """The counter only grows, in whatever order writes arrive."""
    return Statement(
        "INSERT INTO counters (name, value) VALUES ('epoch', ?) "
        "ON CONFLICT (name) DO UPDATE SET value = excluded.value "
        "WHERE excluded.value > counters.value",
        [(epoch,)],
    )


def put_lease(seconds: float) -> Statement:
    """The longest lease that may still run, in milliseconds."""
    return Statement(
        "INSERT INTO counters (name, value) VALUES ('lease_ms', ?) "
        "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        [(ceil(seconds * 1000),)],
    )


def put_broker(row: BrokerRow) -> Statement:
    return Statement(
        "INSERT INTO brokers (name, tcp_address, http_address, capacity, draining, instance) "
        "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET "
        "tcp_address = excluded.tcp_address, http_address = excluded.http_address, "
        "capacity = excluded.capacity, draining = excluded.draining, "
        "instance = excluded.instance",
        [(*astuple(row)[:4], int(row.draining), row.instance)],
    )


def delete_broker(name: str) -> list[Statement]:
    return [
        Statement("DELETE FROM grants WHERE broker = ?", [(name,)]),
        Statement("DELETE FROM brokers WHERE name = ?", [(name,)]),
        Statement("DELETE FROM capacity_model WHERE broker = ?", [(name,)]),
    ]


def put_topic(row: TopicRow) -> Statement:
    return Statement(
        "INSERT INTO topics (topic, contract, keys) VALUES (?, ?, ?) "
        "ON CONFLICT (topic) DO UPDATE SET contract = excluded.contract, keys = excluded.keys",
        [(row.topic, row.contract, row.keys)],
    )


def put_adaptation(topic: str, document: str) -> Statement:
    return Statement("UPDATE topics SET adaptation = ? WHERE topic = ?", [(document, topic)])


def put_migration(topic: str, document: str) -> Statement:
    return Statement("UPDATE topics SET migration = ? WHERE topic = ?", [(document, topic)])


def put_grouping(topic: str, document: str) -> Statement:
    return Statement("UPDATE topics SET grouping = ? WHERE topic = ?", [(document, topic)])


def delete_topic(topic: str) -> list[Statement]:
    """Its grants stay: brokers hold them until they have been told, or for a lease."""
    return [
        Statement(f"DELETE FROM {table} WHERE topic = ?", [(topic,)])
        for table in ("publishers", "placements", "fittings", "topics", "lost_topics")
    ]


def put_publishers(rows: Iterable[PublisherRow]) -> Statement:
    """A publisher that is known keeps its broker."""
    return Statement(
        "INSERT INTO publishers (topic, id, key, rate, broker) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT (topic, id) DO UPDATE SET key = excluded.key, rate = excluded.rate",
        [(row.topic, row.id, row.key, row.rate, row.broker) for row in rows],
    )


def delete_publisher(topic: str, publisher: str) -> Statement:
    return Statement("DELETE FROM publishers WHERE topic = ? AND id = ?", [(topic, publisher)])


def put_placement(row: PlacementRow, moved: Mapping[str, str | None]) -> list[Statement]:
    """moved: publisher id -> broker, of those whose broker is another one than before."""
    return [
        Statement(
            "INSERT INTO placements (topic, epoch, at, policy, document) VALUES (?, ?, ?, ?, ?)",
            [astuple(row)],
        ),
        Statement(
            "UPDATE publishers SET broker = ? WHERE topic = ? AND id = ?",
            [(broker, row.topic, publisher) for publisher, broker in moved.items()],
        ),
        Statement(
            "DELETE FROM placements WHERE topic = ? AND epoch NOT IN (SELECT epoch FROM placements "
            "WHERE topic = ? ORDER BY epoch DESC LIMIT ?)",
            [(row.topic, row.topic, HISTORY)],
        ),
    ]


def put_rescale(row: PlacementRow) -> Statement:
    """The statement that changes the shares of a placement, which keeps its epoch."""
    return Statement(
        "UPDATE placements SET document = ? WHERE topic = ? AND epoch = ?",
        [(row.document, row.topic, row.epoch)],
    )


def put_grants(broker: str, rows: Iterable[GrantRow]) -> list[Statement]:
    """The statements that keep all that `broker` may hold; what was kept for it before is
    replaced."""
    return [
        Statement("DELETE FROM grants WHERE broker = ?", [(broker,)]),
        Statement(
            "INSERT INTO grants (topic, broker, epoch, rate, burst, least, grace) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            [astuple(row) for row in rows],
        ),
    ]


def put_fitting(row: FittingRow) -> Statement:
    return Statement(
        "INSERT INTO fittings (topic, document) VALUES (?, ?) "
        "ON CONFLICT (topic) DO UPDATE SET document = excluded.document",
        [astuple(row)],
    )


def put_model(rows: Iterable[ModelRow]) -> Statement:
    return Statement(
        "INSERT INTO capacity_model (broker, document) VALUES (?, ?) "
        "ON CONFLICT (broker) DO UPDATE SET document = excluded.document",
        [astuple(row) for row in rows],
    )


def put_all(kept: Snapshot) -> list[Statement]:
    """The statements that fill an empty store."""
    grants: dict[str, list[GrantRow]] = {}
    for grant in kept.grants:
        grants.setdefault(grant.broker, []).append(grant)
    found = [
        put_epoch(kept.epoch),
        put_lease(kept.lease_seconds),
        put_lost(kept.lost),
        *(put_broker(row) for row in kept.brokers),
        *(each for row in kept.topics for each in _whole(row)),
        put_publishers(kept.publishers),
        *(put_placement(row, {})[0] for row in kept.placements),
        *(each for broker, rows in grants.items() for each in put_grants(broker, rows)),
        *(put_fitting(row) for row in kept.fittings),
        put_model(kept.model),
    ]
    return merged(found if kept.lineage is None else [*put_lineage(kept.lineage), *found])


def _whole(row: TopicRow) -> list[Statement]:
    return [
        put_topic(row),
        put_adaptation(row.topic, row.adaptation),
        put_migration(row.topic, row.migration),
        put_grouping(row.topic, row.grouping),
    ]
